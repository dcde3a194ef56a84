package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	interval = 5 * time.Second
	podTries = 60
	gpuTries = 30
	owner    = "nvidia-operator-validator"
	facts    = "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=" + driverRoot + "\nDRIVER_ROOT_CTR_PATH=/driver-root\n" +
		"NVIDIA_DEV_ROOT=" + driverRoot + "\nDEV_ROOT_CTR_PATH=/driver-root\n"
)

// validator is `nvidia-validator`: it tries one component, and says in a file that it works.
func validator(ending context.Context, _ []string) error {
	component := os.Getenv("COMPONENT")
	tries := map[string]func(context.Context) error{
		"driver":  tryDriver,
		"toolkit": func(ctx context.Context) error { return smi(ctx, nil) },
		"cuda":    tryCuda,
		"plugin":  tryPlugin,
	}
	try, known := tries[component]
	if !known {
		return fmt.Errorf("this stand-in does not know the component %q", component)
	}
	status := validations + "/" + component + "-ready"
	if err := removeIfThere(status); err != nil {
		return err
	}
	for {
		err := try(ending)
		if err == nil {
			break
		}
		if os.Getenv("WITH_WAIT") != "true" || ending.Err() != nil {
			return err
		}
		say("%v", err)
		if err := pause(ending, interval); err != nil {
			return err
		}
	}
	say("%s is validated", component)
	if component == "driver" {
		return write(status, facts)
	}
	return write(status, "")
}

func tryDriver(ctx context.Context) error {
	if !exists(validations + "/.driver-ctr-ready") {
		return errors.New("the driver container is not ready")
	}
	command := exec.CommandContext(ctx, "/usr/bin/nvidia-smi")
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: driverRoot}
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

func tryCuda(ctx context.Context) error {
	if os.Getenv("WITH_WORKLOAD") == "false" {
		return nil
	}
	return runPod(ctx, "nvidia-cuda-validator", nil)
}

func tryPlugin(ctx context.Context) error {
	api, err := connect()
	if err != nil {
		return err
	}
	for range gpuTries {
		node, err := api.node(ctx, os.Getenv("NODE_NAME"))
		if err != nil {
			return err
		}
		capacity, _ := node.Status["capacity"].(map[string]any)
		if count, _ := capacity[resource].(string); count != "" && count != "0" {
			if os.Getenv("WITH_WORKLOAD") == "false" {
				return nil
			}
			return runPod(ctx, "nvidia-device-plugin-validator", map[string]any{"limits": map[string]string{resource: "1"}})
		}
		say("%s has no capacity of %s yet", node.Metadata.Name, resource)
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
	return fmt.Errorf("the node offers no %s", resource)
}

// runPod runs a pod that adds vectors on this node, and waits until it has succeeded.
func runPod(ctx context.Context, app string, resources map[string]any) error {
	api, err := connect()
	if err != nil {
		return err
	}
	namespace, node := os.Getenv("OPERATOR_NAMESPACE"), os.Getenv("NODE_NAME")
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	old, err := api.pods(ctx, namespace, app, node)
	if err != nil {
		return err
	}
	for _, each := range old {
		if err := api.call(ctx, http.MethodDelete, pods+"/"+each.Metadata.Name, nil, nil); err != nil {
			return err
		}
	}
	var set, made object
	if err := api.call(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets/"+owner, nil, &set); err != nil {
		return err
	}
	if err := api.call(ctx, http.MethodPost, pods, vectorPod(app, node, set.Metadata.UID, resources), &made); err != nil {
		return err
	}
	for range podTries {
		if err := api.call(ctx, http.MethodGet, pods+"/"+made.Metadata.Name, nil, &made); err != nil {
			return err
		}
		if made.Status["phase"] == "Succeeded" {
			return nil
		}
		say("waiting for the pod %s, it is %s", made.Metadata.Name, strings.ToLower(fmt.Sprint(made.Status["phase"])))
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
	return fmt.Errorf("the pod %s does not succeed", made.Metadata.Name)
}

func vectorPod(app, node, uid string, resources map[string]any) map[string]any {
	image, policy := os.Getenv("VALIDATOR_IMAGE"), os.Getenv("VALIDATOR_IMAGE_PULL_POLICY")
	adding := map[string]any{"name": "vector-add", "image": image, "imagePullPolicy": policy, "command": []string{"vectorAdd"}}
	if resources != nil {
		adding["resources"] = resources
	} else {
		adding["env"] = []map[string]string{{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}}
	}
	said := map[string]any{"name": app, "image": image, "imagePullPolicy": policy, "command": []string{"sh", "-c"},
		"args": []string{"echo it works"}}
	spec := map[string]any{
		"nodeName": node, "restartPolicy": "OnFailure", "initContainers": []any{adding}, "containers": []any{said},
		"tolerations": []map[string]string{{"operator": "Exists"}},
	}
	if class := os.Getenv("VALIDATOR_RUNTIME_CLASS"); class != "" {
		spec["runtimeClassName"] = class
	}
	owned := map[string]string{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": uid}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": map[string]any{
		"generateName": app + "-", "labels": map[string]string{"app": app}, "ownerReferences": []any{owned}}}
}
