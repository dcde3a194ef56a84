"""State `state-container-toolkit`: the container toolkit, which teaches each node's container runtime about GPUs."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import images, rbac, scripts, toolkit_runtime
from gpuward.operands.common import set_env, set_envs, set_host_network, set_image, set_pod_resources
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, driver_validation, fill_validation
from gpuward.operands.facts import DEFAULT_TOOLKIT_DIR, Context
from gpuward.operands.objects import (
    EXECUTABLE_BY_OWNER,
    Json,
    config_map,
    config_map_volume,
    env,
    find,
    host_path,
    mount,
    namespace_env,
    privileged,
)
from gpuward.operands.state import ObjectRef

NAME = "state-container-toolkit"
ACCOUNT = "nvidia-container-toolkit"
DAEMON_SET = names.TOOLKIT_APP
CONTAINER = "nvidia-container-toolkit-ctr"
ENTRYPOINT = "nvidia-container-toolkit-entrypoint"
CRIO_HOOKS_DIR = "/usr/share/containers/oci/hooks.d"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the toolkit installed."""
    return ctx.spec.toolkit.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, ACCOUNT, cluster=False),
        ObjectRef("v1", "ConfigMap", ctx.namespace, ENTRYPOINT),
        ref(ctx.namespace, DAEMON_SET),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the toolkit's account, entrypoint and DaemonSet."""
    rules = [rbac.use_privileged_scc(), rbac.rule("apps", ["daemonsets"], ["list"])]
    made = rbac.access(ctx.namespace, ACCOUNT, rules)
    made.append(config_map(ctx.namespace, ENTRYPOINT, {"entrypoint.sh": scripts.TOOLKIT_ENTRYPOINT}, {"app": DAEMON_SET}))
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=DAEMON_SET, component="container-toolkit", account=ACCOUNT,
                      annotations={"openshift.io/scc": "hostmount-anyuid"})
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def _pod() -> Json:
    return {
        "hostPID": True,
        "initContainers": [{**driver_validation([
            mount("driver-install-dir", "/run/nvidia/driver", propagation="HostToContainer"),
            mount("run-nvidia-validations", STATUS_FILES, propagation="Bidirectional"),
            mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            mount("host-dev-char", "/host-dev-char"),
        ]), "imagePullPolicy": "IfNotPresent"}],
        "containers": [_container()],
        "volumes": [
            config_map_volume(ENTRYPOINT, ENTRYPOINT, mode=EXECUTABLE_BY_OWNER),
            host_path("toolkit-root", "/run/nvidia/toolkit", "DirectoryOrCreate"),
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            host_path("driver-install-dir", "/run/nvidia/driver", "DirectoryOrCreate"),
            host_path("host-root", "/"),
            host_path("toolkit-install-dir", DEFAULT_TOOLKIT_DIR),
            host_path("crio-hooks", "/run/containers/oci/hooks.d"),
            host_path("host-dev-char", "/dev/char"),
            host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
        ],
    }


def _container() -> Json:
    return {
        "name": CONTAINER,
        "command": ["/bin/sh", "-c"],
        "args": ["/bin/entrypoint.sh"],
        "env": [
            env("ROOT", DEFAULT_TOOLKIT_DIR),
            env("NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND", "management.nvidia.com/gpu"),
            env("NVIDIA_VISIBLE_DEVICES", "void"),
            env("TOOLKIT_PID_FILE", "/run/nvidia/toolkit/toolkit.pid"),
            namespace_env("NRI_NAMESPACE"),
        ],
        "securityContext": privileged(se_linux=True),
        "volumeMounts": [
            mount(ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh"),
            mount("toolkit-root", "/run/nvidia/toolkit"),
            mount("run-nvidia-validations", STATUS_FILES),
            mount("toolkit-install-dir", DEFAULT_TOOLKIT_DIR),
            mount("crio-hooks", CRIO_HOOKS_DIR),
            mount("driver-install-dir", "/driver-root", propagation="HostToContainer"),
            mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            mount("cdi-root", "/var/run/cdi"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    """Put the section `toolkit` into the pod; its `args` have no effect, as in NVIDIA's operator."""
    toolkit = ctx.spec.toolkit
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    fill_validation(ctx, pod)
    image = images.resolve("spec.toolkit", toolkit, "CONTAINER_TOOLKIT_IMAGE", ctx.images)
    set_image(pod, container, image, toolkit)
    set_pod_resources(pod, toolkit.resources)
    _fill_cdi(ctx, container)
    _fill_install_dir(pod, container, ctx.toolkit_dir)
    if ctx.facts.runtime == "crio":
        find(pod["volumes"], "crio-hooks")["hostPath"]["path"] = CRIO_HOOKS_DIR
    set_envs(container, toolkit.env)
    toolkit_runtime.fill(ctx, pod, container)
    set_host_network(pod, toolkit.host_network)


def _fill_cdi(ctx: Context, container: Json) -> None:
    if ctx.spec.cdi.is_enabled:
        set_env(container, "CDI_ENABLED", "true")
        set_env(container, "NVIDIA_RUNTIME_SET_AS_DEFAULT", "false")
        set_env(container, "NVIDIA_CONTAINER_RUNTIME_MODE", "cdi")
        set_env(container, "CRIO_CONFIG_MODE", "config")
        if ctx.spec.cdi.is_nri_plugin_enabled:
            set_env(container, "ENABLE_NRI_PLUGIN", "true")
    elif ctx.facts.runtime == "crio":
        set_env(container, "CRIO_CONFIG_MODE", "hook")


def _fill_install_dir(pod: Json, container: Json, directory: str) -> None:
    if directory == DEFAULT_TOOLKIT_DIR:
        return
    set_env(container, "ROOT", directory)
    find(pod["volumes"], "toolkit-install-dir")["hostPath"]["path"] = directory
    find(container["volumeMounts"], "toolkit-install-dir")["mountPath"] = directory
