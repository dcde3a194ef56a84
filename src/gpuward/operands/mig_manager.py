"""State `state-mig-manager`: the MIG manager, which partitions each node's GPUs as its label asks."""

from __future__ import annotations

from gpuward.operands import images, mig_profiles, rbac, scripts
from gpuward.operands.common import set_container, set_env, set_envs, set_gpu_access, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, fill_validation, wait_for_toolkit
from gpuward.operands.config_files import yaml_text
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    EXECUTABLE_BY_OWNER,
    Json,
    config_map,
    config_map_volume,
    env,
    field_env,
    find,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)
from gpuward.operands.state import ObjectRef

NAME = "state-mig-manager"
APP = "nvidia-mig-manager"
ENTRYPOINT = "nvidia-mig-manager-entrypoint"
DEFAULT_LAYOUTS = "default-mig-parted-config"
DEFAULT_CLIENTS = "default-gpu-clients"

GPU_CLIENTS = (
    "nvsm", "nvsm-mqtt", "nvsm-core", "nvsm-api-gateway", "nvsm-notifier", "nv_peer_mem", "nvidia-dcgm", "dcgm", "dcgm-exporter",
)
"""Services of a host that hold its GPUs, so that they must pause while the layout changes."""


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the MIG manager."""
    return ctx.spec.mig_manager.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    config_maps = (DEFAULT_LAYOUTS, DEFAULT_CLIENTS, ENTRYPOINT)
    return (
        *rbac.access_refs(ctx.namespace, APP),
        *(ObjectRef("v1", "ConfigMap", ctx.namespace, name) for name in config_maps),
        ref(ctx.namespace, APP),
    )


def kept(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return the built-in ConfigMaps, which stay if they exist even when the policy names others."""
    return tuple(ObjectRef("v1", "ConfigMap", ctx.namespace, name) for name in (DEFAULT_LAYOUTS, DEFAULT_CLIENTS))


def objects(ctx: Context) -> list[Json]:
    """Return the manager's account, built-in configurations that the policy does not replace, entrypoint and DaemonSet."""
    rules = [
        rbac.use_privileged_scc(),
        rbac.rule("", ["pods"], [*rbac.READ, "delete"]),
        rbac.rule("", ["configmaps"], ["create", "get", "list", "update", "patch"]),
    ]
    cluster_rules = [rbac.rule("", ["nodes"], [*rbac.READ, "update", "patch"]), rbac.rule("", ["pods"], ["list"])]
    made = rbac.access(ctx.namespace, APP, rules, cluster_rules)
    if not _layouts(ctx):
        made.append(config_map(ctx.namespace, DEFAULT_LAYOUTS, {"config.yaml": mig_profiles.config_yaml()}))
    if not ctx.spec.mig_manager.gpu_clients_config.name:
        made.append(config_map(ctx.namespace, DEFAULT_CLIENTS, {"clients.yaml": clients_yaml()}))
    made.append(config_map(ctx.namespace, ENTRYPOINT, {"entrypoint.sh": scripts.MIG_MANAGER_ENTRYPOINT}, {"app": APP}))
    if ctx.facts.has_gpu_nodes:
        made.append(daemon_set(ctx, DaemonSetFrame(name=APP, component="mig-manager", account=APP), _pod(ctx), _fill))
    return made


def clients_yaml() -> str:
    """Return the built-in list of services that hold GPUs, as the text of the manager's file."""
    return yaml_text({"version": "v1", "systemd-services": [f"{name}.service" for name in GPU_CLIENTS]})


def _layouts(ctx: Context) -> str:
    config = ctx.spec.mig_manager.config
    return config.name if config is not None else ""


def _pod(ctx: Context) -> Json:
    own_layouts = _layouts(ctx)
    clients = ctx.spec.mig_manager.gpu_clients_config.name or DEFAULT_CLIENTS
    items = [] if own_layouts else [("config.yaml", "config-default.yaml")]
    return {
        "hostPID": True,
        "hostIPC": True,
        "initContainers": [wait_for_toolkit("run-nvidia-validations", STATUS_FILES, subject="toolkit")],
        "containers": [_container()],
        "volumes": [
            config_map_volume(ENTRYPOINT, ENTRYPOINT, mode=EXECUTABLE_BY_OWNER),
            host_path("host-sys", "/sys", "Directory"),
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            host_path("driver-install-dir", "/run/nvidia/driver", "DirectoryOrCreate"),
            host_path("host-root", "/"),
            config_map_volume("gpu-clients", clients),
            config_map_volume("mig-parted-config", own_layouts or DEFAULT_LAYOUTS, items=items),
            host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
        ],
    }


def _container() -> Json:
    return {
        "name": APP,
        "command": ["/bin/sh", "-c"],
        "args": ["/bin/entrypoint.sh"],
        "env": [
            node_name_env(),
            field_env("POD_NAME", "metadata.name"),
            namespace_env("POD_NAMESPACE"),
            env("GPU_CLIENTS_FILE", "/gpu-clients/clients.yaml"),
            namespace_env("DEFAULT_GPU_CLIENTS_NAMESPACE"),
        ],
        "securityContext": privileged(),
        "volumeMounts": [
            mount(ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh"),
            mount("run-nvidia-validations", STATUS_FILES),
            mount("host-sys", "/sys"),
            mount("host-root", "/host", propagation="HostToContainer"),
            mount("gpu-clients", "/gpu-clients"),
            mount("mig-parted-config", "/mig-parted-config"),
            mount("driver-install-dir", "/driver-root", propagation="HostToContainer"),
            mount("cdi-root", "/var/run/cdi"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    manager = ctx.spec.mig_manager
    pod = template["spec"]
    container = find(pod["containers"], APP)
    fill_validation(ctx, pod)
    set_container(pod, container, images.resolve("spec.migManager", manager, "MIG_MANAGER_IMAGE", ctx.images), manager)
    set_gpu_access(ctx, template, APP)
    if _layouts(ctx):
        set_env(container, "CONFIG_FILE", "/mig-parted-config/config.yaml")
    else:
        set_env(container, "DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml")
    if ctx.spec.cdi.is_enabled:
        set_env(container, "CDI_ENABLED", "true")
        if ctx.cdi_hook_path:
            set_env(container, "NVIDIA_CDI_HOOK_PATH", ctx.cdi_hook_path)
    set_envs(container, manager.env)
    set_host_network(pod, manager.host_network)
