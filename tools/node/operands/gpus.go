package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource  = "nvidia.com/gpu"
	features  = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
	lookAgain = time.Second
)

// hold opens a device that the runtime has injected: from then on the module is in use.
func hold() (*os.File, error) {
	given := numbered(devices)
	if given == nil {
		return nil, errors.New("no driver was given to this container")
	}
	say("uses driver %s", read(given[0]))
	return os.Open(given[0])
}

type gpu struct{ uuid, name, memory string }

// list asks NVML, which is there only where the runtime has injected it.
func list() ([]gpu, error) {
	var said bytes.Buffer
	command := exec.Command("nvml-list")
	command.Stderr = &said
	content, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("GPUs cannot be listed: %w: %s", err, strings.TrimSpace(said.String()))
	}
	var found []gpu
	for line := range strings.Lines(string(content)) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		found = append(found, gpu{parts[0], parts[1], parts[2]})
	}
	return found, nil
}

type gpus struct {
	plugin.UnimplementedDevicePluginServer
	found []gpu
}

func (gpus) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (g gpus) ListAndWatch(_ *plugin.Empty, to plugin.DevicePlugin_ListAndWatchServer) error {
	var offered []*plugin.Device
	for _, each := range g.found {
		offered = append(offered, &plugin.Device{ID: each.uuid, Health: plugin.Healthy})
	}
	if err := to.Send(&plugin.ListAndWatchResponse{Devices: offered}); err != nil {
		return err
	}
	<-to.Context().Done()
	return nil
}

// Allocate hands GPUs out by the variable that the runtime reads, whatever strategy is asked for.
func (gpus) Allocate(_ context.Context, asked *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	answer := &plugin.AllocateResponse{}
	for _, each := range asked.ContainerRequests {
		given := strings.Join(each.DevicesIds, ",")
		say("gives %s", given)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&plugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": given}})
	}
	return answer, nil
}

// devicePlugin is `nvidia-device-plugin`: it offers GPUs to the kubelet, and again when the kubelet was restarted.
func devicePlugin(ending context.Context, _ []string) error {
	used, err := hold()
	if err != nil {
		return err
	}
	defer used.Close()
	found, err := list()
	if err != nil {
		return err
	}
	for ending.Err() == nil {
		if err := offer(ending, filepath.Join(plugin.DevicePluginPath, "nvidia-gpu.sock"), found); err != nil {
			say("%v", err)
		}
		_ = pause(ending, lookAgain)
	}
	return nil
}

func offer(ending context.Context, socket string, found []gpu) error {
	if err := removeIfThere(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	serving := grpc.NewServer()
	plugin.RegisterDevicePluginServer(serving, gpus{found: found})
	go serving.Serve(listener)
	defer serving.Stop()
	kubelet, err := grpc.NewClient("unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	_, err = plugin.NewRegistrationClient(kubelet).Register(ending, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: filepath.Base(socket), ResourceName: resource})
	if err != nil {
		return err
	}
	say("offers %d GPUs", len(found))
	// A kubelet that starts removes all sockets.
	for exists(socket) {
		if pause(ending, lookAgain) != nil {
			return nil
		}
	}
	return fmt.Errorf("the kubelet was restarted")
}

// featureDiscovery is `gpu-feature-discovery`: it writes labels for node feature discovery.
func featureDiscovery(ending context.Context, _ []string) error {
	used, err := hold()
	if err != nil {
		return err
	}
	defer used.Close()
	found, err := list()
	if err != nil {
		return err
	}
	labels := fmt.Sprintf("nvidia.com/gpu.count=%d\nnvidia.com/gpu.product=%s\n", len(found), found[0].name)
	if err := write(features, labels); err != nil {
		return err
	}
	<-ending.Done()
	return removeIfThere(features)
}

// exporter is `dcgm-exporter`: it answers its probes.
func exporter(ending context.Context, _ []string) error {
	used, err := hold()
	if err != nil {
		return err
	}
	defer used.Close()
	found, err := list()
	if err != nil {
		return err
	}
	http.HandleFunc("/health", func(to http.ResponseWriter, _ *http.Request) { fmt.Fprintln(to, "OK") })
	http.HandleFunc("/metrics", func(to http.ResponseWriter, _ *http.Request) {
		for i, each := range found {
			fmt.Fprintf(to, "DCGM_FI_DEV_GPU_TEMP{gpu=\"%d\",UUID=\"%s\",modelName=\"%s\"} 40\n", i, each.uuid, each.name)
		}
	})
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(os.Getenv("DCGM_EXPORTER_LISTEN"), nil) }()
	select {
	case err := <-failed:
		return err
	case <-ending.Done():
		return nil
	}
}

// vectorAdd is NVIDIA's sample: it succeeds where a GPU can be used.
func vectorAdd(context.Context, []string) error {
	used, err := hold()
	if err != nil {
		return err
	}
	defer used.Close()
	say("Test PASSED")
	return nil
}

// train is a workload: it uses its GPU until it is told to end.
func train(ending context.Context, _ []string) error {
	used, err := hold()
	if err != nil {
		return err
	}
	defer used.Close()
	<-ending.Done()
	say("ends as it was told")
	return nil
}
