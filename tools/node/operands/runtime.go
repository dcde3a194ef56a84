package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How the table of containerd's handler `nvidia` begins; whoever uses the RuntimeClass cannot start a container before it is there.
const handler = `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia`

// toolkit is `nvidia-toolkit`: it installs the runtime on the node, tells containerd of it, and stays. As containerd reads its
// configuration only when it starts, it is restarted under everything that runs, and once more at the end.
func toolkit(ending context.Context, _ []string) error {
	root := os.Getenv("ROOT")
	if root == "" {
		return errors.New("ROOT is not set")
	}
	if found := os.Getenv("DRIVER_ROOT_CTR_PATH"); !exists(found + "/usr/bin/nvidia-smi") {
		return fmt.Errorf("there is no driver at %s", found)
	}
	socket, program := os.Getenv("RUNTIME_SOCKET"), filepath.Join(root, "toolkit", "nvidia-container-runtime")
	if err := copyProgram(program); err != nil {
		return err
	}
	if err := configure(os.Getenv("RUNTIME_CONFIG"), program); err != nil {
		return err
	}
	if err := restart(socket); err != nil {
		return err
	}
	pid := os.Getenv("TOOLKIT_PID_FILE")
	if err := write(pid, fmt.Sprintln(os.Getpid())); err != nil {
		return err
	}
	say("installed the runtime for %s below %s", os.Getenv("RUNTIME"), root)
	<-ending.Done()
	return errors.Join(restart(socket), os.Remove(pid))
}

func configure(path, program string) error {
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), handler) {
		return err
	}
	added := fmt.Sprintf("%s]\nruntime_type = \"io.containerd.runc.v2\"\n%s.options]\nBinaryName = %q\nSystemdCgroup = false\n",
		handler, handler, program)
	return write(path, string(content)+added)
}

// restart signals the process at the other end of containerd's socket, which whoever keeps it running starts again.
func restart(socket string) error {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("there is no container runtime at %s: %w", socket, err)
	}
	defer connection.Close()
	raw, err := connection.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	say("restarting the container runtime, process %d", peer.Pid)
	return syscall.Kill(int(peer.Pid), syscall.SIGHUP)
}

func copyProgram(target string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	// The old one may be running.
	if err := write(target, string(self)); err != nil {
		return err
	}
	return os.Chmod(target, 0o755)
}

// containerRuntime is `nvidia-container-runtime`: runc, but containers that ask for GPUs get their devices and the loaded driver's library, and
// cannot be created where none is loaded.
func containerRuntime(_ context.Context, args []string) error {
	if slices.Contains(args, "create") {
		if err := inject(filepath.Join(option(args, "--bundle", "-b"), "config.json")); err != nil {
			explain(option(args, "--log"), err)
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, args...), os.Environ())
}

func option(args []string, names ...string) string {
	for i, each := range args[:len(args)-1] {
		if slices.Contains(names, each) {
			return args[i+1]
		}
	}
	return ""
}

func inject(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		return err
	}
	wanted := wantedDevices(spec)
	if wanted == "" || wanted == "void" || wanted == "none" {
		return nil
	}
	if !loaded() || !exists(driverRoot+installed+nvml) {
		return errors.New("nvidia-container-cli: initialization error: no NVIDIA driver is loaded on this node")
	}
	mounts, _ := spec["mounts"].([]any)
	mounts = append(mounts, bind(driverRoot+installed+nvml, injected+nvml), bind(driverRoot+installed+cuda, injected+cuda),
		bind(driverRoot+smiProgram, smiProgram))
	for i, file := range numbered(deviceFiles) {
		if wanted == "all" || slices.Contains(strings.Split(wanted, ","), uuid(i)) {
			mounts = append(mounts, bind(file, fmt.Sprint(devices, i)))
		}
	}
	spec["mounts"] = mounts
	changed, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return write(path, string(changed))
}

func bind(source, destination string) map[string]any {
	return map[string]any{"destination": destination, "type": "bind", "source": source, "options": []string{"bind", "ro"}}
}

func uuid(index int) string { return fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", index) }

func wantedDevices(spec map[string]any) string {
	process, _ := spec["process"].(map[string]any)
	variables, _ := process["env"].([]any)
	wanted := ""
	for _, each := range variables {
		if value, found := strings.CutPrefix(fmt.Sprint(each), "NVIDIA_VISIBLE_DEVICES="); found {
			wanted = value
		}
	}
	return wanted
}

// containerd takes the reason of a failure from runc's log.
func explain(log string, reason error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer file.Close()
	line, _ := json.Marshal(map[string]string{"level": "error", "msg": reason.Error(), "time": time.Now().Format(time.RFC3339)})
	io.WriteString(file, string(line)+"\n")
}
