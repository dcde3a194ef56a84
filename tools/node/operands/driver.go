package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	daemons     = validations + "/.driver-daemons-status"
	installTime = 1500 * time.Millisecond
)

// driver is `nvidia-driver init`: it installs and loads the driver, shows its own files as the driver's root, and takes all of it
// back when it is told to end.
func driver(ending context.Context, args []string) error {
	if len(args) != 1 || args[0] != "init" {
		return fmt.Errorf("unknown arguments %q", args)
	}
	lock, err := os.OpenFile(pidFile, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return errors.New("another driver container runs on this node")
	}
	fmt.Fprintln(lock, os.Getpid())
	if err := install(ending, os.Getenv("DRIVER_VERSION"), os.Getenv("DRIVER_CONFIG_DIGEST")); err != nil {
		return err
	}
	say("done, waiting for a signal")
	<-ending.Done()
	if err := unload(); err != nil {
		return err
	}
	unmountRoot()
	say("unloaded")
	return os.Remove(pidFile)
}

func install(ending context.Context, version, digest string) error {
	if version == "" {
		return errors.New("DRIVER_VERSION is not set")
	}
	if err := write(daemons, "NotReady\n"); err != nil {
		return err
	}
	same := loaded() && digest != "" && read(digestFile) == digest
	if same {
		say("the driver is loaded already, with the same configuration: installing its library only")
	} else if err := unload(); err != nil {
		return err
	}
	unmountRoot()
	say("installing driver %s", version)
	select {
	case <-ending.Done():
		return errors.New("told to end while it installed")
	case <-time.After(installTime):
	}
	if !same {
		if err := load(version); err != nil {
			return err
		}
	}
	err := errors.Join(
		write(library, version+"\n"),
		// A link until now, and those who follow it call it by another name.
		copyProgram(smiProgram),
		copyFile(packed+nvml, installed+nvml),
		copyFile(packed+cuda, installed+cuda),
		syscall.Mount(modules, "/sys/module", "", syscall.MS_BIND, ""),
		os.MkdirAll(driverRoot, 0o755),
		// Not what is mounted below: a second copy of /sys, with the control groups, would keep containers from starting.
		syscall.Mount("/", driverRoot, "", syscall.MS_BIND, ""),
		write(digestFile, digest+"\n"))
	if err != nil {
		return err
	}
	return write(daemons, "Ready\n")
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	return errors.Join(err, write(to, string(content)))
}

// smi is `nvidia-smi`: it works where a driver was injected, in the driver's container, and under the driver's root, entered or not.
func smi(context.Context, []string) error {
	module, found := read("/sys/module/nvidia/version"), read(library)
	if given := numbered(devices); given != nil {
		module, found = read(given[0]), read(given[0])
	} else if self, err := os.Executable(); err == nil && self == driverRoot+smiProgram {
		if os.Getenv("LD_PRELOAD") != driverRoot+installed+nvml {
			return errors.New("couldn't find libnvidia-ml.so library in your system")
		}
		module, found = read(moduleFile), read(driverRoot+library)
	}
	if module != "" && found != "" && module != found {
		return fmt.Errorf("Driver/library version mismatch: the module is %s, the library %s", module, found)
	}
	if found == "" {
		return errors.New("couldn't communicate with the NVIDIA driver")
	}
	say("NVIDIA-SMI %s", found)
	return nil
}
