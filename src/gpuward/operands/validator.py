"""State `state-operator-validation`: the validator, which tries each layer of the stack on every node in turn."""

from __future__ import annotations

from gpuward import names
from gpuward.crd.shapes import EnvVar
from gpuward.operands import rbac
from gpuward.operands.common import (
    add_pull_secrets,
    set_container,
    set_env,
    set_envs,
    set_gpu_access,
    set_host_network,
)
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import (
    STATUS_FILES,
    driver_validation,
    fill_container,
    fill_validation,
    validator_image,
)
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    env,
    exec_action,
    find,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)
from gpuward.operands.state import ObjectRef

NAME = "state-operator-validation"
APP = names.VALIDATOR_APP


def enabled(_ctx: Context) -> bool:
    """Tell whether nodes are validated: always."""
    return True


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, APP), ref(ctx.namespace, APP))


def objects(ctx: Context) -> list[Json]:
    """Return the validator's account and DaemonSet."""
    write = ["create", *rbac.READ, "update", "patch", "delete"]
    rules = [
        rbac.use_privileged_scc(),
        rbac.rule("", ["pods"], write),
        rbac.rule("apps", ["daemonsets"], rbac.READ),
    ]
    owners = ["clusterpolicies/finalizers", "nvidiadrivers/finalizers"]
    made = rbac.access(ctx.namespace, APP, rules, [rbac.read_nodes(), rbac.rule(names.NVIDIA_GROUP, owners, write)])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="operator-validator", account=APP,
                      selector={names.PART_OF_LABEL: "gpu-operator"})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _pod(ctx: Context) -> Json:
    checks = [_driver_check(), _toolkit_check(), _cuda_check()]
    if ctx.spec.device_plugin.is_enabled:
        checks.append(_plugin_check())
    return {
        "initContainers": checks,
        "containers": [{
            "name": APP,
            "command": ["sh", "-c"],
            "args": ["echo all validations are successful; while true; do sleep 86400; done"],
            "lifecycle": {"preStop": exec_action("sh", "-c", f"rm -f {STATUS_FILES}/*-ready")},
            "securityContext": privileged(),
            "volumeMounts": [_status_mount()],
        }],
        "volumes": [
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            host_path("driver-install-dir", "/run/nvidia/driver"),
            host_path("host-root", "/"),
            host_path("host-dev-char", "/dev/char"),
        ],
    }


def _status_mount() -> Json:
    return mount("run-nvidia-validations", STATUS_FILES, propagation="Bidirectional")


def _check(component: str, variables: list[Json]) -> Json:
    return {
        "name": f"{component}-validation",
        "command": ["sh", "-c"],
        "args": ["nvidia-validator"],
        "env": variables,
        "securityContext": privileged(),
        "volumeMounts": [_status_mount()],
    }


def _driver_check() -> Json:
    return driver_validation([
        mount("host-root", "/host", propagation="HostToContainer", read_only=True),
        mount("driver-install-dir", "/run/nvidia/driver", propagation="HostToContainer"),
        _status_mount(),
        mount("host-dev-char", "/host-dev-char"),
    ])


def _toolkit_check() -> Json:
    return _check("toolkit", [
        env("NVIDIA_VISIBLE_DEVICES", "all"), env("WITH_WAIT", "false"), env("COMPONENT", "toolkit"),
    ])


def _cuda_check() -> Json:
    return _check("cuda", [env("WITH_WAIT", "false"), env("COMPONENT", "cuda"), node_name_env(), namespace_env()])


def _plugin_check() -> Json:
    return _check("plugin", [
        env("COMPONENT", "plugin"), env("WITH_WAIT", "false"), env("WITH_WORKLOAD", "false"), env("MIG_STRATEGY", ""),
        node_name_env(), namespace_env(),
    ])


def _fill(ctx: Context, template: Json) -> None:
    validator = ctx.spec.validator
    pod = template["spec"]
    container = find(pod["containers"], APP)
    set_container(pod, container, validator_image(ctx), validator)
    set_envs(container, validator.env)
    fill_container(ctx, container)
    set_gpu_access(ctx, template, "toolkit-validation")
    fill_validation(ctx, pod)
    _fill_workload(ctx, pod, "cuda", validator.cuda.env)
    if ctx.spec.device_plugin.is_enabled:
        _fill_workload(ctx, pod, "plugin", validator.plugin.env)
    add_pull_secrets(pod, validator.image_pull_secrets)
    set_host_network(pod, validator.host_network)


def _fill_workload(ctx: Context, pod: Json, component: str, variables: tuple[EnvVar, ...]) -> None:
    """Tell a check how the workload pod that it starts gets its image and its GPU."""
    validator = ctx.spec.validator
    container = find(pod["initContainers"], f"{component}-validation")
    set_env(container, "VALIDATOR_IMAGE", validator_image(ctx))
    set_env(container, "VALIDATOR_IMAGE_PULL_POLICY", validator.image_pull_policy)
    if validator.image_pull_secrets:
        set_env(container, "VALIDATOR_IMAGE_PULL_SECRETS", ",".join(validator.image_pull_secrets))
    if "runtimeClassName" in pod:
        set_env(container, "VALIDATOR_RUNTIME_CLASS", pod["runtimeClassName"])
    if component == "plugin":
        set_env(container, "MIG_STRATEGY", ctx.spec.mig.strategy or "")
    set_envs(container, variables)
