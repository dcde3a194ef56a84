"""The driver's pod as it is without the policy: the manager that clears the node, and the container that installs the driver."""

from __future__ import annotations

from gpuward import names
from gpuward.operands.common_validation import STATUS_FILES
from gpuward.operands.driver import sidecars as driver_sidecars
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    EXECUTABLE_BY_ALL,
    Json,
    config_map_volume,
    env,
    exec_action,
    field_env,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)

CONTAINER = names.DRIVER_CONTAINER
MANAGER = "k8s-driver-manager"
STARTUP_PROBE = "nvidia-driver-startup-probe"


def pod(ctx: Context) -> Json:
    """Return the pod, with the sidecars that the policy turns on."""
    alone = {"key": names.COMPONENT_LABEL, "operator": "In", "values": [names.DRIVER_COMPONENT]}
    return {
        "hostPID": True,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchExpressions": [alone]}, "topologyKey": "kubernetes.io/hostname"},
        ]}},
        "initContainers": [manager()],
        "containers": [container(), *driver_sidecars.sidecars(ctx)],
        "volumes": volumes(),
    }


def manager() -> Json:
    """Return the init container that clears the node, without its image."""
    return {
        "name": MANAGER,
        "command": ["driver-manager"],
        "args": ["uninstall_driver"],
        "imagePullPolicy": "IfNotPresent",
        "env": [
            node_name_env(),
            env("NVIDIA_VISIBLE_DEVICES", "void"),
            env("ENABLE_GPU_POD_EVICTION", "true"),
            env("ENABLE_AUTO_DRAIN", "false"),
            env("DRAIN_USE_FORCE", "false"),
            env("DRAIN_POD_SELECTOR_LABEL", ""),
            env("DRAIN_TIMEOUT_SECONDS", "0s"),
            env("DRAIN_DELETE_EMPTYDIR_DATA", "false"),
            namespace_env(),
        ],
        "securityContext": privileged(),
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="Bidirectional"),
            mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            mount("host-sys", "/sys"),
            mount("run-mellanox-drivers", "/run/mellanox/drivers", propagation="HostToContainer"),
        ],
    }


def container() -> Json:
    """Return the container that installs the driver, without its image."""
    clean_up = f"rm -f {STATUS_FILES}/.driver-ctr-ready {STATUS_FILES}/.driver-daemons-status"
    return {
        "name": CONTAINER,
        "command": ["nvidia-driver"],
        "args": ["init"],
        "env": [node_name_env(), field_env("NODE_IP", "status.hostIP")],
        "lifecycle": {"preStop": exec_action("/bin/sh", "-c", clean_up)},
        "startupProbe": {
            **exec_action("sh", "/usr/local/bin/startup-probe.sh"),
            "initialDelaySeconds": 60, "periodSeconds": 10, "timeoutSeconds": 60,
            "successThreshold": 1, "failureThreshold": 120,
        },
        "securityContext": privileged(se_linux=True),
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="Bidirectional"),
            mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
            mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
            mount("var-log", "/var/log"),
            mount("dev-log", "/dev/log"),
            mount("host-os-release", "/host-etc/os-release", read_only=True),
            mount("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src", propagation="HostToContainer"),
            mount("run-mellanox-drivers", "/run/mellanox/drivers", propagation="HostToContainer"),
            mount("host-sys-devices-system", "/sys/devices/system"),
            mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            mount("nv-firmware", "/lib/firmware"),
            mount("driver-startup-probe-script", "/usr/local/bin/startup-probe.sh", sub_path="startup-probe.sh"),
        ],
    }


def volumes() -> list[Json]:
    """Return the volumes that every driver pod has."""
    return [
        host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        host_path("var-log", "/var/log"),
        host_path("dev-log", "/dev/log"),
        host_path("host-os-release", "/etc/os-release"),
        host_path("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", "DirectoryOrCreate"),
        host_path("run-nvidia-topologyd", "/run/nvidia-topologyd", "DirectoryOrCreate"),
        host_path("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src", "DirectoryOrCreate"),
        host_path("run-mellanox-drivers", "/run/mellanox/drivers", "DirectoryOrCreate"),
        host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
        host_path("host-root", "/"),
        host_path("host-sys", "/sys", "Directory"),
        host_path("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        host_path("host-sys-devices-system", "/sys/devices/system", "Directory"),
        host_path("nv-firmware", "/run/nvidia/driver/lib/firmware", "DirectoryOrCreate"),
        config_map_volume("driver-startup-probe-script", STARTUP_PROBE, mode=EXECUTABLE_BY_ALL),
    ]
