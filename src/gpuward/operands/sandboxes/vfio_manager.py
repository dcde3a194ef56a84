"""State `state-vfio-manager`: the manager that binds a node's GPUs to vfio-pci, so that virtual machines get them whole."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import images, rbac
from gpuward.operands.common import set_container, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, exec_action, find, host_path, mount, privileged
from gpuward.operands.sandboxes.driver_manager import fill_manager, manager, rules_of_manager
from gpuward.operands.state import ObjectRef

NAME = "state-vfio-manager"
APP = names.VFIO_MANAGER_APP
_MANAGER = "spec.vfioManager.driverManager"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants GPUs to be bound to vfio-pci."""
    return ctx.spec.sandbox_workloads.is_enabled and ctx.spec.vfio_manager.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, APP), ref(ctx.namespace, APP))


def objects(ctx: Context) -> list[Json]:
    """Return the manager's account and DaemonSet."""
    rules = [*cluster_rules(), *rules_of_manager(ctx, _MANAGER, ctx.spec.vfio_manager.driver_manager)]
    made = rbac.access(ctx.namespace, APP, [rbac.use_privileged_scc()], rules)
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="vfio-manager", account=APP, selected_by="name")
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def cluster_rules() -> list[Json]:
    """Return what a driver manager that evicts nobody may do in the cluster."""
    return [
        rbac.rule("config.openshift.io", ["clusterversions"], ["get", "list"]),
        rbac.rule("", ["nodes"], ["get", "list", "patch", "watch"]),
        rbac.rule("", ["pods"], rbac.READ),
        rbac.rule("", ["pods/eviction"], ["create"]),
    ]


def _pod() -> Json:
    return {
        "terminationGracePeriodSeconds": 30,
        "initContainers": [manager()],
        "containers": [_container()],
        "volumes": [
            host_path("host-sys", "/sys", "Directory"),
            host_path("host-lib-modules", "/lib/modules", "Directory"),
            host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
            host_path("host-root", "/"),
        ],
    }


def _container() -> Json:
    return {
        "name": APP,
        "command": ["/bin/sh", "-c"],
        "args": ["vfio-manage bind --all && while true; do sleep 86400; done"],
        "env": [env("HOST_ROOT", "/host")],
        "lifecycle": {"preStop": exec_action("/bin/sh", "-c", "vfio-manage unbind --all")},
        "resources": {"limits": {"memory": "200Mi"}, "requests": {"cpu": "100m", "memory": "200Mi"}},
        "securityContext": privileged(se_linux=True),
        "volumeMounts": [
            mount("host-sys", "/sys"),
            mount("host-lib-modules", "/lib/modules", read_only=True),
            mount("host-root", "/host"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    section = ctx.spec.vfio_manager
    pod = template["spec"]
    container = find(pod["containers"], APP)
    fill_manager(ctx, pod, _MANAGER, section.driver_manager, section.resources)
    set_container(pod, container, images.resolve("spec.vfioManager", section, "VFIO_MANAGER_IMAGE", ctx.images), section)
    set_envs(container, section.env)
    set_host_network(pod, section.host_network)
