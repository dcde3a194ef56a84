package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource  = "nvidia.com/gpu"
	count     = 2
	features  = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
	lookAgain = time.Second
)

// hold opens the device that the runtime has injected: from then on the module is in use.
func hold() (*os.File, error) {
	open, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("no driver was given to this container: %w", err)
	}
	say("uses driver %s", read(device))
	return open, nil
}

type gpus struct {
	plugin.UnimplementedDevicePluginServer
}

func (gpus) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (gpus) ListAndWatch(_ *plugin.Empty, to plugin.DevicePlugin_ListAndWatchServer) error {
	var found []*plugin.Device
	for i := range count {
		found = append(found, &plugin.Device{ID: fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i), Health: plugin.Healthy})
	}
	if err := to.Send(&plugin.ListAndWatchResponse{Devices: found}); err != nil {
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
	for ending.Err() == nil {
		if err := offer(ending, filepath.Join(plugin.DevicePluginPath, "nvidia-gpu.sock")); err != nil {
			say("%v", err)
		}
		_ = pause(ending, lookAgain)
	}
	return nil
}

func offer(ending context.Context, socket string) error {
	if err := removeIfThere(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	serving := grpc.NewServer()
	plugin.RegisterDevicePluginServer(serving, gpus{})
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
	say("offers %d GPUs", count)
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
	labels := fmt.Sprintf("nvidia.com/gpu.count=%d\nnvidia.com/gpu.product=stand-in\n", count)
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
	http.HandleFunc("/health", func(to http.ResponseWriter, _ *http.Request) { fmt.Fprintln(to, "OK") })
	http.HandleFunc("/metrics", func(to http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(to, `DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40`)
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
