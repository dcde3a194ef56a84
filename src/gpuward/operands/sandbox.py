"""The states of nodes whose GPUs serve virtual machines or confidential containers: named, and not yet rendered.

A policy that leaves them off gets them removed where another operator had put them; a policy that wants one gets an error.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuward.errors import PolicyError
from gpuward.operands import rbac
from gpuward.operands.common_daemonset import ref
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json
from gpuward.operands.state import ObjectRef


class SandboxState(msgspec.Struct, frozen=True):
    """Describe a state by its name, when it is wanted, and the names of what it consists of."""

    NAME: str
    field: str
    wanted: Callable[[Context], bool]
    account: str
    daemon_set: str
    config_maps: tuple[str, ...] = ()

    def enabled(self, ctx: Context) -> bool:
        """Tell whether the policy wants this state."""
        return ctx.spec.sandbox_workloads.is_enabled and self.wanted(ctx)

    def refs(self, ctx: Context) -> tuple[ObjectRef, ...]:
        """Return all that this state can consist of."""
        return (
            *rbac.access_refs(ctx.namespace, self.account),
            *(ObjectRef("v1", "ConfigMap", ctx.namespace, name) for name in self.config_maps),
            ref(ctx.namespace, self.daemon_set),
        )

    def objects(self, ctx: Context) -> list[Json]:
        """Refuse: what the policy asks for cannot be made yet."""
        raise PolicyError(f"spec.{self.field}", ctx.spec.sandbox_workloads.mode,
                          f"{self.NAME} is not supported yet: set spec.sandboxWorkloads.enabled to false")


def _mode(ctx: Context, mode: str) -> bool:
    return ctx.spec.sandbox_workloads.mode == mode


def _always(_ctx: Context) -> bool:
    return True


def _never(_ctx: Context) -> bool:
    return False


SANDBOX_STATES = (
    SandboxState("state-vgpu-manager", "vgpuManager", lambda ctx: ctx.spec.vgpu_manager.is_enabled,
                 "nvidia-vgpu-manager", "nvidia-vgpu-manager-daemonset"),
    SandboxState("state-vgpu-device-manager", "vgpuDeviceManager", lambda ctx: ctx.spec.vgpu_device_manager.is_enabled,
                 "nvidia-vgpu-device-manager", "nvidia-vgpu-device-manager", ("default-vgpu-devices-config",)),
    SandboxState("state-sandbox-validation", "sandboxWorkloads", _always,
                 "nvidia-sandbox-validator", "nvidia-sandbox-validator"),
    SandboxState("state-vfio-manager", "vfioManager", lambda ctx: ctx.spec.vfio_manager.is_enabled,
                 "nvidia-vfio-manager", "nvidia-vfio-manager"),
    SandboxState("state-sandbox-device-plugin", "sandboxDevicePlugin",
                 lambda ctx: ctx.spec.sandbox_device_plugin.is_enabled and _mode(ctx, "kubevirt"),
                 "nvidia-sandbox-device-plugin", "nvidia-sandbox-device-plugin-daemonset"),
    SandboxState("state-kata-device-plugin", "kataSandboxDevicePlugin",
                 lambda ctx: ctx.spec.kata_sandbox_device_plugin.is_enabled and _mode(ctx, "kata"),
                 "nvidia-kata-sandbox-device-plugin", "nvidia-kata-sandbox-device-plugin-daemonset"),
    SandboxState("state-kata-manager", "kataManager", _never, "nvidia-kata-manager", "nvidia-kata-manager",
                 ("nvidia-kata-manager-config", "nvidia-kata-manager-entrypoint")),
    SandboxState("state-cc-manager", "ccManager", lambda ctx: ctx.spec.cc_manager.is_enabled and _mode(ctx, "kata"),
                 "nvidia-cc-manager", "nvidia-cc-manager"),
)
"""In the order of the ClusterPolicy's states. NVIDIA's operator no longer deploys the Kata manager and always removes it."""
