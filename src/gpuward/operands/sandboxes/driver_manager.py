"""The init container that takes the driver for containers from a node before its GPUs serve virtual machines."""

from __future__ import annotations

from gpuward.crd.shapes import DriverManager, Resources
from gpuward.operands import images
from gpuward.operands.common import add_pull_secrets, set_envs, set_resources
from gpuward.operands.driver.pod import MANAGER
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, find, mount, namespace_env, node_name_env, privileged
from gpuward.operands.own_agents import is_own, rules_of_driver_manager, use_own_agent


def manager() -> Json:
    """Return the init container without its image. It evicts nobody: under a running GPU pod gpuward's own fails, and is tried
    again.
    """
    return {
        "name": MANAGER,
        "command": ["driver-manager"],
        "args": ["uninstall_driver"],
        "imagePullPolicy": "IfNotPresent",
        "env": [
            node_name_env(),
            env("NVIDIA_VISIBLE_DEVICES", "void"),
            env("ENABLE_GPU_POD_EVICTION", "false"),
            env("ENABLE_AUTO_DRAIN", "false"),
            namespace_env(),
        ],
        "securityContext": privileged(),
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="Bidirectional"),
            mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            mount("host-sys", "/sys"),
        ],
    }


def rules_of_manager(ctx: Context, field: str, section: DriverManager) -> list[Json]:
    """Return what the init container may do besides in the cluster; raises PolicyError when it has no image."""
    return rules_of_driver_manager(_image(ctx, field, section)) if ctx.facts.has_gpu_nodes else []


def fill_manager(ctx: Context, pod: Json, field: str, section: DriverManager, resources: Resources | None) -> None:
    """Put the policy's section into the init container; `resources` are those of the operand that it belongs to.

    Raises:
        PolicyError: the init container has no image.
    """
    container = find(pod["initContainers"], MANAGER)
    container["image"] = _image(ctx, field, section)
    if section.image_pull_policy:
        container["imagePullPolicy"] = images.pull_policy(section)
    set_resources(container, resources)
    set_envs(container, section.env)
    add_pull_secrets(pod, section.image_pull_secrets)
    use_own_agent(container)
    if is_own(container["image"]):
        pod["hostPID"] = True  # else it could not see who uses the GPUs, and would disturb the operands before it fails


def _image(ctx: Context, field: str, section: DriverManager) -> str:
    return images.resolve(field, section, "DRIVER_MANAGER_IMAGE", ctx.images)
