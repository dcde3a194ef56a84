"""Whether the driver DaemonSets are what people ask for: nodes know these alone, and are up to date with an older one too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.operands.changes import Prepared
from gpuward.operands.driver.withholding import told_otherwise
from gpuward.operands.nvidiadriver.status import NOT_APPLIED, NOT_FOLLOWED
from gpuward.operands.state import OperandState
from gpuward.operands.statuses import refusal, unapplied
from gpuward.operands.yet_to_go import unsettled
from gpuward.policy.unmade import DRIVER_STATE


def not_applied(
    policy: ClusterPolicy, states: Sequence[OperandState], prepared: Sequence[Prepared], snapshot: Snapshot
) -> str:
    """Say why drivers are not even on the way to what people ask for, if they are not: nodes know the DaemonSets alone."""
    unseen = unsettled(snapshot)
    if policy.spec.driver.is_left_to_nvidia_drivers:
        return next((why for view in snapshot.drivers if not view.deleting and (why := _error(view))), unseen)
    error = next((state.error for state in states if state.name == DRIVER_STATE and state.error is not None), None)
    if error is not None:
        return f"{DRIVER_STATE} cannot be made: {error}"
    drivers = [one for one in prepared if one.state == DRIVER_STATE]
    if why := refusal(drivers, snapshot):
        return f"{DRIVER_STATE} cannot be made: {why}"
    pending = unapplied(drivers, snapshot)
    return f"DaemonSet {pending}{_waits_for(policy, drivers, snapshot)}" if pending else unseen


def _waits_for(policy: ClusterPolicy, drivers: Sequence[Prepared], snapshot: Snapshot) -> str:
    """Name a node that cannot be told that upgrades are not automatic any more, for which the driver DaemonSets wait."""
    if policy.spec.driver.is_upgraded:
        return ""
    found = (name for one in drivers for obj in one.objects for name in told_otherwise(obj.body, snapshot))
    node = next(found, "")
    return f": node {node} has yet to lose the annotation {names.UPGRADE_ENABLED}" if node else ""


def _error(view: PolicyView) -> str:
    """Return why the drivers of an NVIDIADriver are not what it asks for, as its status says; one that says of which generation
    it is, and is of an older one, does not say that they are.
    """
    conditions = (view.body.get("status") or {}).get("conditions") or ()
    found: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Error"), {})
    if found.get("observedGeneration", view.generation) != view.generation:
        return f"NVIDIADriver {view.name} was edited, and that is not taken up yet"
    told = {NOT_APPLIED: "applied", **dict.fromkeys(NOT_FOLLOWED, "followed")}.get(str(found.get("reason")))
    return f"NVIDIADriver {view.name} is not {told}: {found.get('message')}" if told and found.get("status") == "True" else ""
