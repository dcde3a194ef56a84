"""State `state-mps-control-daemon`: the daemon that lets processes share a GPU, on nodes configured for it."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import common_plugin_config, device_plugin, rbac
from gpuward.operands.common import (
    set_gpu_access,
    set_host_network,
    set_image,
    set_mig_strategy,
    set_pod_resources,
    set_resources,
)
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import fill_validation, wait_for_toolkit
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, find, host_path, mount, node_name_env, privileged
from gpuward.operands.state import ObjectRef

NAME = "state-mps-control-daemon"
DAEMON_SET = names.MPS_DAEMON_APP
CONTAINER = "mps-control-daemon-ctr"
MOUNTER = "mps-control-daemon-mounts"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the MPS daemon, which comes and goes with the device plugin."""
    return ctx.spec.device_plugin.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, DAEMON_SET), ref(ctx.namespace, DAEMON_SET))


def objects(ctx: Context) -> list[Json]:
    """Return the daemon's account and DaemonSet. Its pods run as the device plugin's account, not as this one."""
    made = rbac.access(ctx.namespace, DAEMON_SET, [rbac.use_privileged_scc()], [rbac.read_nodes()])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=DAEMON_SET, component="device-plugin", account=device_plugin.ACCOUNT,
                      node_selector={names.MPS_CAPABLE: "true"},
                      annotations={"openshift.io/scc": "hostmount-anyuid"})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _pod(ctx: Context) -> Json:
    mounter = {
        "name": MOUNTER,
        "command": ["mps-control-daemon", "mount-shm"],
        "securityContext": privileged(),
        "volumeMounts": [mount("mps-root", "/mps", propagation="Bidirectional")],
    }
    daemon = {
        "name": CONTAINER,
        "command": ["mps-control-daemon"],
        "env": [
            node_name_env(),
            env("NVIDIA_VISIBLE_DEVICES", "all"),
            env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ],
        "securityContext": privileged(),
        "volumeMounts": [mount("mps-shm", "/dev/shm"), mount("mps-root", "/mps")],
    }
    return {
        "hostPID": True,
        "initContainers": [
            wait_for_toolkit("run-nvidia", "/run/nvidia"),
            mounter,
            *common_plugin_config.init_container(ctx),
        ],
        "containers": [daemon, *common_plugin_config.sidecar(ctx, "/usr/bin/mps-control-daemon")],
        "volumes": [
            host_path("run-nvidia", "/run/nvidia", "Directory"),
            host_path("mps-root", device_plugin.DEFAULT_MPS_ROOT, "DirectoryOrCreate"),
            host_path("mps-shm", f"{device_plugin.DEFAULT_MPS_ROOT}/shm"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    """Put the plugin's section into the pod; the plugin's `args` and `env` are not the daemon's."""
    plugin = ctx.spec.device_plugin
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    mounter = find(pod["initContainers"], MOUNTER)
    image = common_plugin_config.plugin_image(ctx)
    fill_validation(ctx, pod)
    set_image(pod, mounter, image, plugin)
    set_resources(mounter, plugin.resources)
    set_image(pod, container, image, plugin)
    set_pod_resources(pod, plugin.resources)
    common_plugin_config.fill_plugin_config(ctx, pod, CONTAINER, plugin.resources)
    set_gpu_access(ctx, template, CONTAINER)
    set_mig_strategy(container, ctx.spec.mig.strategy)
    device_plugin.fill_mps_root(pod, plugin.mps.root)
    set_host_network(pod, plugin.host_network)
