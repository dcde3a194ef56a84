package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	deviceFile  = kernel + "/nvidia0"
	trail       = kernel + "/trail"
	device      = "/dev/nvidia0"
	driverRoot  = run + "/driver"
	pidFile     = run + "/nvidia-driver.pid"
	digestFile  = run + "/nvidia-driver.state"
	validations = run + "/validations"
	library     = "/opt/nvidia/version"
)

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
	err := errors.Join(write(deviceFile, version+"\n"), write(modules+"/nvidia_uvm/refcnt", "0\n"), write(moduleFile, version+"\n"),
		write(refcnt, "1\n"))
	note("loaded", version)
	return err
}

// Whoever has the device open uses the module, as with the real one; all processes of the node have to be seen for that.
func users() []string {
	found, err := os.Stat(deviceFile)
	if err != nil {
		return nil
	}
	var named []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if open, err := os.Stat(link); err == nil && os.SameFile(found, open) {
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
	err := errors.Join(os.RemoveAll(modules+"/nvidia"), os.RemoveAll(modules+"/nvidia_uvm"), os.Remove(deviceFile))
	note("unloaded", version)
	return err
}

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
