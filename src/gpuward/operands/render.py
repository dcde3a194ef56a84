"""From a ClusterPolicy and a few facts of the cluster to the objects that should exist, state by state.

A state is a module with its name, whether the policy wants it, what it can consist of, and the objects themselves. Nothing here
reads a cluster: equal input gives equal output, in another process too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from gpuward.errors import PolicyError
from gpuward.operands import (
    dcgm,
    dcgm_exporter,
    device_plugin,
    gfd,
    mig_manager,
    monitors,
    mps,
    node_status_exporter,
    operator_metrics,
    runtime_classes,
    toolkit,
    validator,
)
from gpuward.operands.driver import operand as driver
from gpuward.operands.facts import ClusterFacts, Context
from gpuward.operands.objects import Json
from gpuward.operands.sandboxes import vgpu_devices
from gpuward.operands.sandboxes.states import SANDBOX_STATES
from gpuward.operands.state import ObjectRef, OperandState, ref_of


class OperandModule(Protocol):
    """Be one state of the policy. Modules are operands too."""

    @property
    def NAME(self) -> str:
        """Return the state's name, such as `state-driver`."""
        ...

    def enabled(self, ctx: Context, /) -> bool:
        """Tell whether the policy wants the state."""
        ...

    def refs(self, ctx: Context, /) -> tuple[ObjectRef, ...]:
        """Return all that the state can consist of, under any policy."""
        ...

    def objects(self, ctx: Context, /) -> list[Json]:
        """Return what the state consists of; raises PolicyError when the policy cannot be followed."""
        ...


OPERANDS: tuple[OperandModule, ...] = (
    runtime_classes,
    operator_metrics,
    driver,
    toolkit,
    validator,
    device_plugin,
    mps,
    dcgm,
    dcgm_exporter,
    gfd,
    mig_manager,
    node_status_exporter,
    *SANDBOX_STATES,
)
"""In the order of the ClusterPolicy's states."""


def render(policy: ClusterPolicy, facts: ClusterFacts, images: Mapping[str, str]) -> tuple[OperandState, ...]:
    """Return every state of the policy, in order.

    `images` are the operator's variables that name images (DRIVER_MANAGER_IMAGE, VALIDATOR_IMAGE, ...). What one state cannot
    follow is that state's `error`, and the others are rendered all the same.

    Raises:
        PolicyError: the policy contradicts itself, so that no state can be rendered.
    """
    _check(policy.spec)
    ctx = Context(policy, facts, images)
    return tuple(_state(operand, ctx) for operand in OPERANDS)


def _check(spec: ClusterPolicySpec) -> None:
    if not spec.cdi.nri_plugin_enabled:
        return
    if not spec.cdi.enabled:
        raise PolicyError("spec.cdi.nriPluginEnabled", True, "set spec.cdi.enabled true too: the NRI plugin works through CDI")
    if not spec.toolkit.is_enabled:
        raise PolicyError("spec.cdi.nriPluginEnabled", True, "set spec.toolkit.enabled true too: the toolkit runs the NRI plugin")


def _state(operand: OperandModule, ctx: Context) -> OperandState:
    if not operand.enabled(ctx):
        return OperandState(operand.NAME, enabled=False, absent=_known(operand.refs(ctx), ctx))
    try:
        objects = tuple(operand.objects(ctx))
    except PolicyError as error:
        return OperandState(operand.NAME, enabled=True, error=error)
    made = {ref_of(obj) for obj in objects}
    absent = tuple(ref for ref in _known(operand.refs(ctx), ctx) if ref not in made and not _is_kept(ref, ctx))
    return OperandState(operand.NAME, enabled=True, objects=objects, absent=absent)


def _known(refs: tuple[ObjectRef, ...], ctx: Context) -> tuple[ObjectRef, ...]:
    """Leave out objects of a kind that the cluster does not have."""
    return tuple(ref for ref in refs if ref.api_version != monitors.VERSION or ctx.facts.has_service_monitor_crd)


def _is_kept(ref: ObjectRef, ctx: Context) -> bool:
    """Tell whether an object stays, although its wanted state did not make it.

    Built-in configurations of MIG and vGPU devices stay when the policy names others; and while there are no GPU nodes, which
    can be an outage of their discovery, no DaemonSet is touched. A driver DaemonSet of another mode goes in its own way, since
    its pods run on.
    """
    if ref.kind == "DaemonSet" and ref.name == names.DRIVER_APP:
        return True
    return ref in (*mig_manager.kept(ctx), *vgpu_devices.kept(ctx)) or (ref.kind == "DaemonSet" and not ctx.facts.has_gpu_nodes)
