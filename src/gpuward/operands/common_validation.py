"""Init containers that hold an operand back until the node is ready for it, run from the validator's image."""

from __future__ import annotations

from gpuward.operands import images
from gpuward.operands.common import add_pull_secrets, set_envs, set_resources
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, mount, namespace_env, privileged
from gpuward.operands.own_agents import use_own_agent

STATUS_FILES = "/run/nvidia/validations"


def validator_image(ctx: Context) -> str:
    """Return the validator's image; raises PolicyError when there is none."""
    return images.resolve("spec.validator", ctx.spec.validator, "VALIDATOR_IMAGE", ctx.images)


def wait_for_toolkit(volume: str, path: str, *, subject: str = "stack") -> Json:
    """Return the init container that waits for the toolkit's status file, which it sees in `volume` mounted at `path`.

    The command is part of the pod template, so it is spelled as NVIDIA's: another text would replace every pod.
    """
    message = f"echo waiting for nvidia container {subject} to be setup"
    return {
        "name": "toolkit-validation",
        "command": ["sh", "-c"],
        "args": [f"until [ -f {STATUS_FILES}/toolkit-ready ]; do {message}; sleep 5; done"],
        "securityContext": privileged(),
        "volumeMounts": [mount(volume, path, propagation="HostToContainer")],
    }


def driver_validation(mounts: list[Json]) -> Json:
    """Return the init container that waits until the driver works and then writes its status file."""
    return {
        "name": "driver-validation",
        "command": ["sh", "-c"],
        "args": ["nvidia-validator"],
        "env": [env("WITH_WAIT", "true"), env("COMPONENT", "driver"), namespace_env()],
        "securityContext": privileged(se_linux=True),
        "volumeMounts": mounts,
    }


def fill_validation(ctx: Context, pod: Json) -> None:
    """Put the policy's section `validator` into the pod's validation init containers.

    Raises:
        PolicyError: there is no image for the validator.
    """
    validator = ctx.spec.validator
    for container in pod["initContainers"]:
        if "validation" not in container["name"]:
            continue
        if container["name"].startswith("driver"):
            set_envs(container, validator.driver.env)
        if container["name"].startswith("toolkit"):
            set_envs(container, validator.toolkit.env)
        fill_container(ctx, container)
    add_pull_secrets(pod, validator.image_pull_secrets)


def fill_container(ctx: Context, container: Json) -> None:
    """Put the validator's image, resources and user into one container."""
    validator = ctx.spec.validator
    container["image"] = validator_image(ctx)
    if validator.image_pull_policy:
        container["imagePullPolicy"] = images.pull_policy(validator)
    set_resources(container, validator.resources)
    use_own_agent(container)
    container["securityContext"]["runAsUser"] = 0
