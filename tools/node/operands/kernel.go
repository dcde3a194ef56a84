package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The stand-in of a kernel: each node has a /run of its own, so each node has a kernel of its own.
const (
	run         = "/run/nvidia"
	kernel      = run + "/.kernel"
	modules     = kernel + "/module"
	moduleFile  = modules + "/nvidia/version"
	refcnt      = modules + "/nvidia/refcnt"
	deviceFiles = kernel + "/nvidia"
	trail       = kernel + "/trail"
	devices     = "/dev/nvidia"
	count       = 2
	driverRoot  = run + "/driver"
	pidFile     = run + "/nvidia-driver.pid"
	digestFile  = run + "/nvidia-driver.state"
	validations = run + "/validations"
	library     = "/opt/nvidia/version"
	packed      = "/opt/nvidia/"
	installed   = "/usr/lib64/"
	injected    = "/usr/lib/"
	nvml        = "libnvidia-ml.so.1"
	cuda        = "libcuda.so.1"
	smiProgram  = "/usr/bin/nvidia-smi"
	rmmodFile   = kernel + "/rmmod"
)

// numbered returns the files whose names are a beginning and a number, in the order of their numbers: there are fewer than ten.
func numbered(beginning string) []string {
	found, _ := filepath.Glob(beginning + "[0-9]")
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(path string) string {
	content, _ := os.ReadFile(path)
	return strings.TrimSpace(string(content))
}

// Readers must never see half a file.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func loaded() bool { return exists(refcnt) }

func load(version string) error {
	if loaded() {
		return errors.New("a driver is loaded already")
	}
	var err error
	for i := range count {
		err = errors.Join(err, write(fmt.Sprint(deviceFiles, i), version+"\n"))
	}
	err = errors.Join(err, copyProgram(rmmodFile), write(modules+"/nvidia_uvm/refcnt", "0\n"), write(moduleFile, version+"\n"),
		write(refcnt, "1\n"))
	note("loaded", version)
	return err
}

// Whoever has a device open uses the module, as with the real one; all processes of the node have to be seen for that.
func users() []string {
	var found []os.FileInfo
	for _, file := range numbered(deviceFiles) {
		if about, err := os.Stat(file); err == nil {
			found = append(found, about)
		}
	}
	var named []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		open, err := os.Stat(link)
		if err == nil && slices.ContainsFunc(found, func(device os.FileInfo) bool { return os.SameFile(device, open) }) {
			process := strings.Split(link, "/")[2]
			named = append(named, fmt.Sprintf("process %s (%s)", process, read("/proc/"+process+"/comm")))
		}
	}
	return named
}

func unload() error {
	if !loaded() {
		return nil
	}
	if by := users(); by != nil {
		return fmt.Errorf("the module nvidia cannot be unloaded, it is in use by %s", strings.Join(by, ", "))
	}
	version := read(moduleFile)
	err := errors.Join(os.RemoveAll(modules+"/nvidia"), os.RemoveAll(modules+"/nvidia_uvm"))
	for _, file := range numbered(deviceFiles) {
		err = errors.Join(err, os.Remove(file))
	}
	note("unloaded", version)
	return err
}

// rmmod unloads one module for a driver manager that is not of this program: `rmmod unload NAME`. It ends with 11 where the module is in
// use, as the system call does. While a file hold-NAME is beside it, it waits: for tests, which end its caller meanwhile.
func rmmod(ending context.Context, args []string) error {
	if len(args) != 2 || args[0] != "unload" {
		return fmt.Errorf("unknown arguments %q", args)
	}
	for exists(kernel + "/hold-" + args[1]) {
		if err := pause(ending, 50*time.Millisecond); err != nil {
			return err
		}
	}
	if args[1] != "nvidia" {
		return os.RemoveAll(modules + "/" + args[1])
	}
	if exists(modules+"/nvidia_uvm") || users() != nil {
		return inUse{}
	}
	return unload()
}

type inUse struct{}

func (inUse) Error() string { return "the module is in use" }

// For tests: what was loaded when.
func note(what, version string) {
	file, err := os.OpenFile(trail, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer file.Close()
	fmt.Fprintf(file, "%.3f %s %s\n", float64(time.Now().UnixMilli())/1000, what, version)
}

func unmountRoot() {
	for syscall.Unmount(driverRoot, syscall.MNT_DETACH) == nil {
	}
}
