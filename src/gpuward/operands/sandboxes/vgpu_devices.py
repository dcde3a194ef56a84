"""State `state-vgpu-device-manager`: the manager that divides a host's GPUs into vGPU devices, as the node's label asks."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import images, rbac
from gpuward.operands.common import set_container, set_env, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, fill_validation
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    config_map,
    config_map_volume,
    env,
    find,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)
from gpuward.operands.sandboxes.vgpu_layouts import config_yaml
from gpuward.operands.state import ObjectRef

NAME = "state-vgpu-device-manager"
APP = names.VGPU_DEVICE_MANAGER_APP
DEFAULT_LAYOUTS = "default-vgpu-devices-config"
_DEFAULT_LAYOUT = "default"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants vGPU devices to be made."""
    return ctx.spec.sandbox_workloads.is_enabled and ctx.spec.vgpu_device_manager.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, APP),
        ObjectRef("v1", "ConfigMap", ctx.namespace, DEFAULT_LAYOUTS),
        ref(ctx.namespace, APP),
    )


def kept(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return the built-in ConfigMap, which stays if it exists even when the policy names another."""
    return (ObjectRef("v1", "ConfigMap", ctx.namespace, DEFAULT_LAYOUTS),)


def objects(ctx: Context) -> list[Json]:
    """Return the manager's account, the built-in layouts if the policy does not replace them, and the DaemonSet."""
    rules = [rbac.use_privileged_scc(), rbac.rule("", ["pods"], rbac.READ)]
    cluster_rules = [
        rbac.rule("config.openshift.io", ["clusterversions"], ["get", "list"]),
        rbac.rule("", ["nodes"], [*rbac.READ, "update"]),
    ]
    made = rbac.access(ctx.namespace, APP, rules, cluster_rules)
    if _layouts(ctx) == DEFAULT_LAYOUTS:
        made.append(config_map(ctx.namespace, DEFAULT_LAYOUTS, {"config.yaml": config_yaml()}))
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="vgpu-device-manager", account=APP, annotations={"openshift.io/scc": APP})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _layouts(ctx: Context) -> str:
    config = ctx.spec.vgpu_device_manager.config
    return (config.name if config is not None else "") or DEFAULT_LAYOUTS


def _pod(ctx: Context) -> Json:
    return {
        "initContainers": [_wait_for_manager()],
        "containers": [{
            "name": APP,
            "env": [namespace_env("NAMESPACE"), node_name_env(), env("CONFIG_FILE", "/vgpu-config/config.yaml")],
            "securityContext": privileged(),
            "volumeMounts": [
                mount("vgpu-config", "/vgpu-config"),
                mount("host-sys", "/sys"),
                mount("host-root", "/host", propagation="HostToContainer"),
                mount("driver-install-dir", "/driver-root", propagation="HostToContainer"),
            ],
        }],
        "volumes": [
            config_map_volume("vgpu-config", _layouts(ctx)),
            host_path("host-sys", "/sys", "Directory"),
            host_path("host-root", "/"),
            host_path("driver-install-dir", "/run/nvidia/driver", "DirectoryOrCreate"),
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
        ],
    }


def _wait_for_manager() -> Json:
    """Return the init container that waits for the vGPU manager, whether it runs in a container or on the host itself.

    The command is part of the pod template, so it is spelled as NVIDIA's: another text would replace every pod.
    """
    ready = f"[ -f {STATUS_FILES}/vgpu-manager-ready ] || [ -f {STATUS_FILES}/host-vgpu-manager-ready ]"
    return {
        "name": "vgpu-manager-validation",
        "command": ["sh", "-c"],
        "args": [f"until {ready}; do echo waiting for NVIDIA vGPU Manager to be setup; sleep 5; done"],
        "securityContext": privileged(),
        "volumeMounts": [mount("run-nvidia-validations", STATUS_FILES, propagation="Bidirectional")],
    }


def _fill(ctx: Context, template: Json) -> None:
    section = ctx.spec.vgpu_device_manager
    pod = template["spec"]
    container = find(pod["containers"], APP)
    fill_validation(ctx, pod)
    image = images.resolve("spec.vgpuDeviceManager", section, "VGPU_DEVICE_MANAGER_IMAGE", ctx.images)
    set_container(pod, container, image, section)
    set_envs(container, section.env)
    default = section.config.default if section.config is not None else ""
    set_env(container, "DEFAULT_VGPU_CONFIG", default or _DEFAULT_LAYOUT)
    set_host_network(pod, section.host_network)
