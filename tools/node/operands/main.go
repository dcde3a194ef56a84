// Stands in for NVIDIA's operands on real nodes: one program, and each operand is one of its names.
//
// What they keep of the originals' contract is in docs/node.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Each takes what ends when the container is told to end, and its arguments.
var commands = map[string]func(context.Context, []string) error{
	"nvidia-driver":            driver,
	"driver-manager":           manager,
	"nvidia-toolkit":           toolkit,
	"nvidia-container-runtime": containerRuntime,
	"nvidia-validator":         validator,
	"nvidia-device-plugin":     devicePlugin,
	"gpu-feature-discovery":    featureDiscovery,
	"dcgm-exporter":            exporter,
	"nvidia-smi":               smi,
	"rmmod":                    rmmod,
	"vectorAdd":                vectorAdd,
	"train":                    train,
}

func main() {
	name := filepath.Base(os.Args[0])
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is none of the operands\n", name)
		os.Exit(2)
	}
	ending, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	if err := command(ending, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if errors.As(err, &inUse{}) {
			os.Exit(int(syscall.EAGAIN))
		}
		os.Exit(1)
	}
}

func say(format string, values ...any) {
	fmt.Printf(format+"\n", values...)
}
