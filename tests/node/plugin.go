// A device plugin with two devices, `gpuward.io/part`. A container that gets one is told by a variable, and, where containerd knows
// CDI, by a second one from the device's specification.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource      = "gpuward.io/part"
	socket        = "part.sock"
	specification = "/var/run/cdi/part.json"
)

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
}

func (plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *v1beta1.Empty, to grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	devices := []*v1beta1.Device{{ID: "one", Health: v1beta1.Healthy}, {ID: "two", Health: v1beta1.Healthy}}
	check(to.Send(&v1beta1.ListAndWatchResponse{Devices: devices}))
	<-to.Context().Done()
	return nil
}

func (plugin) Allocate(_ context.Context, asked *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		one := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"PART": container.DevicesIds[0]}}
		for _, id := range container.DevicesIds {
			one.CdiDevices = append(one.CdiDevices, &v1beta1.CDIDevice{Name: resource + "=" + id})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

func specify() {
	type object = map[string]any
	devices := []object{}
	for _, id := range []string{"one", "two"} {
		devices = append(devices, object{"name": id, "containerEdits": object{"env": []string{"PART_BY_CDI=" + id}}})
	}
	text, err := json.Marshal(object{"cdiVersion": "0.6.0", "kind": resource, "devices": devices})
	check(err)
	check(os.WriteFile(specification, text, 0o644))
}

func main() {
	specify()
	listener, err := net.Listen("unix", v1beta1.DevicePluginPath+socket)
	check(err)
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, plugin{})
	go func() { check(server.Serve(listener)) }()
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	request := &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: socket, ResourceName: resource}
	_, err = v1beta1.NewRegistrationClient(connection).Register(context.Background(), request)
	check(err)
	select {}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
