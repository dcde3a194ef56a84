package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	deploy   = "nvidia.com/gpu.deploy."
	marker   = "paused-for-driver-upgrade"
	podsPoll = 5 * time.Second
	podsTime = 5 * time.Minute
)

// In the order in which their pods are waited for; those of the second kind only where their label has a value.
var (
	paused = [][2]string{
		{"operator-validator", "nvidia-operator-validator"}, {"container-toolkit", "nvidia-container-toolkit-daemonset"},
		{"device-plugin", "nvidia-device-plugin-daemonset"}, {"gpu-feature-discovery", "gpu-feature-discovery"},
		{"dcgm-exporter", "nvidia-dcgm-exporter"}, {"dcgm", "nvidia-dcgm"}}
	pausedIfThere = [][2]string{{"mig-manager", "nvidia-mig-manager"}}
)

// manager is `driver-manager uninstall_driver`: it makes room for the driver that comes after it in its pod.
func manager(ending context.Context, args []string) error {
	if len(args) != 1 || args[0] != "uninstall_driver" {
		return fmt.Errorf("unknown arguments %q", args)
	}
	api, err := connect()
	if err != nil {
		return err
	}
	name, namespace := os.Getenv("NODE_NAME"), os.Getenv("OPERATOR_NAMESPACE")
	node, err := api.node(ending, name)
	if err != nil {
		return err
	}
	if node.Metadata.Annotations["nvidia.com/gpu-driver-upgrade-enabled"] != "true" && os.Getenv("ENABLE_GPU_POD_EVICTION") == "true" {
		say("pods that use GPUs are not evicted by this stand-in: a module in use is told of")
	}
	before := values(node.Metadata.Labels)
	if !loaded() {
		say("no driver is loaded")
		unmountRoot()
		return errors.Join(removeIfThere(pidFile), api.label(ending, name, restored(before)))
	}
	say("pausing the operands of %s", name)
	err = api.label(ending, name, withMarker(before))
	if err == nil {
		err = api.awaitOperands(ending, name, namespace, before)
	}
	if err == nil {
		err = makeRoom()
	}
	say("restoring the operands of %s", name)
	// Also when the container is told to end.
	return errors.Join(err, api.label(context.WithoutCancel(ending), name, restored(before)))
}

func makeRoom() error {
	if digest := os.Getenv("DRIVER_CONFIG_DIGEST"); os.Getenv("FORCE_REINSTALL") != "true" && digest != "" && read(digestFile) == digest {
		say("the loaded driver has the wanted configuration: it stays")
	} else if err := unload(); err != nil {
		return err
	} else {
		say("unloaded the driver")
	}
	unmountRoot()
	return removeIfThere(pidFile)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// values returns the labels of a node that turn operands on and off, those too that it lacks.
func values(labels map[string]string) map[string]string {
	found := map[string]string{}
	for _, each := range paused {
		found[deploy+each[0]] = labels[deploy+each[0]]
	}
	for _, each := range pausedIfThere {
		if value := labels[deploy+each[0]]; value != "" {
			found[deploy+each[0]] = value
		}
	}
	return found
}

func withMarker(before map[string]string) map[string]string {
	after := maps.Clone(before)
	for key, value := range before {
		if value == "true" {
			after[key] = marker
		} else if value != "" && value != "false" && !strings.Contains(value, marker) {
			after[key] = value + "_" + marker
		}
	}
	return after
}

func restored(before map[string]string) map[string]string {
	after := maps.Clone(before)
	for key, value := range before {
		if value == marker {
			after[key] = "true"
		} else {
			after[key] = strings.Trim(strings.ReplaceAll(value, marker, ""), "_")
		}
	}
	return after
}

func (s *server) label(ctx context.Context, node string, labels map[string]string) error {
	patch := map[string]any{"metadata": map[string]any{"labels": labels}}
	var err error
	for range 7 {
		if err = s.call(ctx, http.MethodPatch, "/api/v1/nodes/"+node, patch, nil); err == nil {
			return nil
		}
		say("%s cannot be labelled yet: %v", node, err)
		if pause(ctx, time.Second) != nil {
			break
		}
	}
	return err
}

func (s *server) awaitOperands(ctx context.Context, node, namespace string, before map[string]string) error {
	for _, each := range append(append([][2]string{}, paused...), pausedIfThere...) {
		if _, known := before[deploy+each[0]]; !known {
			continue
		}
		if err := s.awaitGone(ctx, node, namespace, each[1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) awaitGone(ctx context.Context, node, namespace, app string) error {
	until := time.Now().Add(podsTime)
	for {
		left, err := s.pods(ctx, namespace, app, node)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("the pod %s does not end", left[0].Metadata.Name)
		}
		say("waiting for the pod %s to end", left[0].Metadata.Name)
		if err := pause(ctx, podsPoll); err != nil {
			return err
		}
	}
}
