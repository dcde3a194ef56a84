"""State `state-sandbox-validation`: the validator of nodes whose GPUs serve virtual machines."""

from __future__ import annotations

from gpuward import names
from gpuward.crd.shapes import EnvVar
from gpuward.operands import rbac
from gpuward.operands.common import set_container, set_env, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, fill_container, validator_image
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, exec_action, find, host_path, mount, node_name_env, privileged
from gpuward.operands.state import ObjectRef

NAME = "state-sandbox-validation"
APP = names.SANDBOX_VALIDATOR_APP


def enabled(ctx: Context) -> bool:
    """Tell whether there can be nodes for virtual machines."""
    return ctx.spec.sandbox_workloads.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, APP), ref(ctx.namespace, APP))


def objects(ctx: Context) -> list[Json]:
    """Return the validator's account and DaemonSet."""
    made = rbac.access(ctx.namespace, APP, [rbac.use_privileged_scc()], [rbac.rule("", ["nodes"], ["get"])])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="sandbox-validator", account=APP,
                               selector={names.PART_OF_LABEL: "gpu-operator"})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _pod(ctx: Context) -> Json:
    return {
        "initContainers": _checks(ctx),
        "containers": [{
            "name": APP,
            "command": ["sh", "-c"],
            "args": ["echo all validations are successful; while true; do sleep 86400; done"],
            "lifecycle": {"preStop": exec_action("sh", "-c", f"rm -f {STATUS_FILES}/*")},
            "securityContext": privileged(),
            "volumeMounts": [_status_mount()],
        }],
        "volumes": [
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            host_path("driver-install-path", "/run/nvidia/driver"),
            host_path("host-root", "/"),
        ],
    }


def _checks(ctx: Context) -> list[Json]:
    """Return the init containers in their order. That of the CC manager is there also where the mode is not for it."""
    root = mount("host-root", "/host", propagation="HostToContainer", read_only=True)
    driver = mount("driver-install-path", "/run/nvidia/driver", propagation="HostToContainer")
    of_cc_manager = [_check("cc-manager")] if ctx.spec.cc_manager.is_enabled else []
    return [
        *of_cc_manager,
        _check("vfio-pci", root),
        _check("vgpu-manager", dict(root), driver),
        _check("vgpu-devices", se_linux=False),
    ]


def _check(component: str, *mounts: Json, se_linux: bool = True) -> Json:
    return {
        "name": f"{component}-validation",
        "command": ["sh", "-c"],
        "args": ["nvidia-validator"],
        "env": [env("WITH_WAIT", "true"), env("COMPONENT", component), node_name_env()],
        "securityContext": privileged(se_linux=se_linux),
        "volumeMounts": [*mounts, _status_mount()],
    }


def _status_mount() -> Json:
    return mount("run-nvidia-validations", STATUS_FILES, propagation="Bidirectional")


def _fill(ctx: Context, template: Json) -> None:
    section = ctx.spec.validator
    pod = template["spec"]
    container = find(pod["containers"], APP)
    set_container(pod, container, validator_image(ctx), section)
    set_envs(container, section.env)
    fill_container(ctx, container)
    for check in pod["initContainers"]:
        fill_container(ctx, check)
    _fill_check(ctx, pod, "vfio-pci", section.vfio_pci.env)
    _fill_check(ctx, pod, "vgpu-manager", section.vgpu_manager.env)
    _fill_check(ctx, pod, "vgpu-devices", section.vgpu_devices.env)
    set_host_network(pod, section.host_network)


def _fill_check(ctx: Context, pod: Json, component: str, variables: tuple[EnvVar, ...]) -> None:
    """Tell a check what nodes are for that do not say so themselves."""
    container = find(pod["initContainers"], f"{component}-validation")
    set_env(container, "DEFAULT_GPU_WORKLOAD_CONFIG", ctx.spec.sandbox_workloads.default_workload)
    set_envs(container, variables)
