"""State `state-device-plugin`: the device plugin, which offers GPUs to the kubelet as resources."""

from __future__ import annotations

from gpuward.operands import common_plugin_config, rbac, scripts
from gpuward.operands.common import set_container, set_env, set_envs, set_gpu_access, set_host_network, set_mig_strategy
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, fill_validation, wait_for_toolkit
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    EXECUTABLE_BY_OWNER,
    Json,
    config_map,
    config_map_volume,
    env,
    find,
    host_path,
    mount,
    privileged,
)
from gpuward.operands.state import ObjectRef

NAME = "state-device-plugin"
ACCOUNT = "nvidia-device-plugin"
DAEMON_SET = "nvidia-device-plugin-daemonset"
CONTAINER = "nvidia-device-plugin"
ENTRYPOINT = "nvidia-device-plugin-entrypoint"
DEFAULT_MPS_ROOT = "/run/nvidia/mps"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the device plugin."""
    return ctx.spec.device_plugin.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, ACCOUNT),
        ObjectRef("v1", "ConfigMap", ctx.namespace, ENTRYPOINT),
        ref(ctx.namespace, DAEMON_SET),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the plugin's account, entrypoint and DaemonSet."""
    made = rbac.access(ctx.namespace, ACCOUNT, [rbac.use_privileged_scc()], [rbac.read_nodes()])
    script = {"entrypoint.sh": scripts.DEVICE_PLUGIN_ENTRYPOINT}
    made.append(config_map(ctx.namespace, ENTRYPOINT, script, {"app": DAEMON_SET}))
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=DAEMON_SET, component="device-plugin", account=ACCOUNT,
                      annotations={"openshift.io/scc": "hostmount-anyuid"})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _pod(ctx: Context) -> Json:
    return {
        "initContainers": [
            wait_for_toolkit("run-nvidia-validations", STATUS_FILES),
            *common_plugin_config.init_container(ctx),
        ],
        "containers": [_container(), *common_plugin_config.sidecar(ctx, "nvidia-device-plugin")],
        "volumes": [
            config_map_volume(ENTRYPOINT, ENTRYPOINT, mode=EXECUTABLE_BY_OWNER),
            host_path("device-plugin", "/var/lib/kubelet/device-plugins"),
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            host_path("driver-install-dir", "/run/nvidia/driver", "DirectoryOrCreate"),
            host_path("host-root", "/"),
            host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
            host_path("mps-root", DEFAULT_MPS_ROOT, "DirectoryOrCreate"),
            host_path("mps-shm", f"{DEFAULT_MPS_ROOT}/shm"),
        ],
    }


def _container() -> Json:
    return {
        "name": CONTAINER,
        "command": ["/bin/sh", "-c"],
        "args": ["/bin/entrypoint.sh"],
        "env": [
            env("PASS_DEVICE_SPECS", "true"),
            env("FAIL_ON_INIT_ERROR", "true"),
            env("DEVICE_LIST_STRATEGY", "envvar"),
            env("DEVICE_ID_STRATEGY", "uuid"),
            env("NVIDIA_VISIBLE_DEVICES", "all"),
            env("NVIDIA_DRIVER_CAPABILITIES", "all"),
            env("MPS_ROOT", DEFAULT_MPS_ROOT),
        ],
        "securityContext": privileged(),
        "volumeMounts": [
            mount(ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh"),
            mount("device-plugin", "/var/lib/kubelet/device-plugins"),
            mount("run-nvidia-validations", STATUS_FILES),
            mount("driver-install-dir", "/driver-root", propagation="HostToContainer"),
            mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            mount("cdi-root", "/var/run/cdi"),
            mount("mps-shm", "/dev/shm"),
            mount("mps-root", "/mps"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    plugin = ctx.spec.device_plugin
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    fill_validation(ctx, pod)
    set_container(pod, container, common_plugin_config.plugin_image(ctx), plugin)
    if ctx.spec.gds.is_enabled:
        set_env(container, "GDS_ENABLED", "true")
        set_env(container, "MOFED_ENABLED", "true")
    if ctx.spec.gdrcopy.is_enabled:
        set_env(container, "GDRCOPY_ENABLED", "true")
    common_plugin_config.fill_plugin_config(ctx, pod, CONTAINER, plugin.resources)
    set_gpu_access(ctx, template, CONTAINER)
    set_mig_strategy(container, ctx.spec.mig.strategy)
    _fill_cdi(ctx, container)
    if fill_mps_root(pod, plugin.mps.root):
        set_env(container, "MPS_ROOT", plugin.mps.root)
    set_envs(container, plugin.env)
    set_host_network(pod, plugin.host_network)


def _fill_cdi(ctx: Context, container: Json) -> None:
    if not ctx.spec.cdi.is_enabled:
        return
    set_env(container, "CDI_ENABLED", "true")
    set_env(container, "DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri")
    set_env(container, "CDI_ANNOTATION_PREFIX", "cdi.k8s.io/")
    if ctx.cdi_hook_path:
        set_env(container, "NVIDIA_CDI_HOOK_PATH", ctx.cdi_hook_path)


def fill_mps_root(pod: Json, root: str) -> bool:
    """Move the directory that MPS clients and the MPS daemon share; tell whether it is another than the usual one."""
    if root in ("", DEFAULT_MPS_ROOT):
        return False
    find(pod["volumes"], "mps-root")["hostPath"]["path"] = root
    find(pod["volumes"], "mps-shm")["hostPath"]["path"] = f"{root.rstrip('/')}/shm"
    return True
