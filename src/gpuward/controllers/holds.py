"""Say on each node why it is held: one Kubernetes event whenever its own reason changes.

What holds the whole fleet is said once, on the policy's condition; what every node passes through for a moment is not said at
all. After a start, or a change of leader, the reasons that are there already are taken as said, since the former leader said
them: whoever comes later finds every reason in `gpuward status`, the condition and the metrics, which are always up to date.
"""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.kube.events import NORMAL, WARNING, About, EventRecorder
from gpuward.model.explain import sentence
from gpuward.model.passes import Pass
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.waits import ComesBack, HeldDevices, OnPod, WaitsFor
from gpuward.policy.nvidiadrivers import PoliciesInForce


class Said(msgspec.Struct, frozen=True):
    """Tell what was said of a node: its reason in a state, and about whom; None about anybody."""

    state: State | None
    reason: Reason
    about: frozenset[str] | None = frozenset()

    def and_now(self, before: Said | None) -> Said:
        """Return what has been said once this is said after something else."""
        if before is None or (before.state, before.reason) != (self.state, self.reason):
            return self
        known = before.about is None or self.about is None
        return msgspec.structs.replace(self, about=None if known else (before.about or frozenset()) | (self.about or frozenset()))


class HoldEvents:
    """Remember what was said about each node, and say what is new."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._said: dict[str, Said] = {}
        self._begun = False

    def __call__(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass: an event for each node whose own reason is another than the last one said in its state, or about another
        pod. A node that waits for nothing any more begins anew.
        """
        snapshot, plan = seen.snapshot, seen.decision
        if plan is None:
            return
        self._said = {name: said for name, said in self._said.items()
                      if (status := plan.nodes.get(name)) is not None and status.state is said.state and status.hold is not None}
        for name, status in plan.nodes.items():
            fresh = self._begun or _is_own(status)
            now, before = own_reason(status) if fresh else _said_before(status), self._said.get(name)
            if now is None or (said := now.and_now(before)) == before:
                continue
            self._said[name] = said
            if fresh and name in snapshot.nodes and status.hold is not None:
                about = About("v1", "Node", name, snapshot.nodes[name].uid)
                level = WARNING if status.hold.reason.needs_person else NORMAL
                self._recorder.record(about, level, names.HELD_EVENT_REASON, f"{status.hold.reason}: {sentence(status.hold)}")
        self._begun = self._begun or bool(plan.nodes)


def _is_own(status: NodeStatus) -> bool:
    """Tell whether only this process can know the reason, and has just met it."""
    return status.hold is not None and status.hold.reason is Reason.WRITE_REFUSED


def _said_before(status: NodeStatus) -> Said | None:
    """Return what the former leader may have said of a node: refused evictions are forgotten in a restart, and met again."""
    if status.hold is not None and status.hold.reason is Reason.EVICTING:
        return Said(status.state, Reason.EVICTION_REFUSED, None)
    return own_reason(status)


def own_reason(status: NodeStatus) -> Said | None:
    """Return the state and the reason of a node that is held for a reason of its own; None for any other."""
    if status.hold is None or status.hold.reason.concerns_fleet or (status.hold.reason.in_passing and not status.hold.lasts):
        return None
    told = status.state in (State.UPGRADE_REQUIRED, State.FAILED) or status.hold.lasts or status.hold.repels
    if status.hold.reason is Reason.DRIVER_POD_MISSING and not told:
        return None  # between the old driver pod and the new one, or before the first
    return Said(status.state, status.hold.reason, frozenset({_about(status.hold.what)}))


def _about(what: WaitsFor) -> str:
    if isinstance(what, HeldDevices | ComesBack) and what.owner is not None:
        return f"{what.owner.kind} {what.owner.name}"
    return str(what.pod) if isinstance(what, OnPod) else ""
