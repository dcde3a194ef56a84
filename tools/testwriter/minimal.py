"""Leave out of a decision's facts whatever makes no difference to what it says about some nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gpuward.model.actions import Action
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide

MOST_WORK = 60_000
"""Nodes that may be decided about while one kind of fact is thinned out: some seconds."""
T = TypeVar("T")
replace = msgspec.structs.replace


class DecisionCase(msgspec.Struct, frozen=True):
    """Hold all that one decision depends on."""

    snapshot: Snapshot
    policy: UpgradePolicy
    now: float


class NodePlans(msgspec.Struct, frozen=True):
    """Hold what a decision says about some nodes."""

    actions: tuple[Action, ...]
    nodes: Mapping[str, tuple[State | None, Hold | None]]


def verdict(case: DecisionCase, names: Sequence[str]) -> NodePlans | None:
    """Return what is decided about nodes; None if one of them is not managed, or the decision fails."""
    try:
        plan = decide(case.snapshot, case.policy, case.now)
    except Exception:  # facts that were made up by leaving others out may contradict each other
        return None
    if any(name not in plan.nodes for name in names):
        return None
    actions = tuple(action for action in plan.actions if action.lane in names)
    return NodePlans(actions, {name: (plan.nodes[name].state, plan.nodes[name].hold) for name in names})


def minimal(case: DecisionCase, names: Sequence[str], wanted: NodePlans) -> DecisionCase:
    """Return the case with fewer facts and the same verdict."""
    attempt = _Attempt(case, names, wanted)
    bare = replace(case.snapshot, policies=(), grants=None)
    attempt.try_with(bare)
    for narrow in (_nodes, _pods, _objects, _labels, _details):
        attempt.work = MOST_WORK
        narrow(attempt)
    return attempt.case


class _Attempt:
    """Take one fact after another away for as long as the verdict stays."""

    def __init__(self, case: DecisionCase, names: Sequence[str], wanted: NodePlans) -> None:
        self.case = case
        self.names = names
        self._wanted = wanted
        self.work = MOST_WORK

    @property
    def snapshot(self) -> Snapshot:
        """Return the facts that are left."""
        return self.case.snapshot

    def try_with(self, snapshot: Snapshot) -> bool:
        """Go on with other facts if they lead to the same verdict."""
        case = replace(self.case, snapshot=snapshot)
        self.work -= 30 + len(snapshot.nodes)
        if self.work < 0 or verdict(case, self.names) != self._wanted:
            return False
        self.case = case
        return True

    def thin_out(self, items: Sequence[T], left: Callable[[Snapshot, Sequence[T]], Snapshot]) -> None:
        """Take items away, many at once and then fewer; `left` returns the facts with only some of them left."""
        keep, size = list(items), len(items)
        while size and self.work >= 0:
            at = 0
            while at < len(keep) and self.work >= 0:
                fewer = keep[:at] + keep[at + size:]
                if self.try_with(left(self.snapshot, fewer)):
                    keep = fewer
                else:
                    at += size
            size //= 2


def _nodes(attempt: _Attempt) -> None:
    """Leave out other nodes with their pods, unless they count."""
    def left(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
        keep = {*names, *attempt.names}
        return replace(
            snapshot, nodes={name: node for name, node in snapshot.nodes.items() if name in keep},
            pods={name: pods for name, pods in snapshot.pods.items() if name in keep},
            unsettled=snapshot.unsettled & keep,
        )

    attempt.thin_out(sorted(attempt.snapshot.nodes.keys() - set(attempt.names)), left)


def _pods(attempt: _Attempt) -> None:
    def left(snapshot: Snapshot, keys: Sequence[PodView]) -> Snapshot:
        keep = {pod.ref for pod in keys}
        pods = {name: tuple(pod for pod in some if pod.ref in keep) for name, some in snapshot.pods.items()}
        return replace(snapshot, pods={name: some for name, some in pods.items() if some})

    def likeness(pod: PodView) -> tuple[bool, str, bool]:
        """Put those side by side of which many can be left out at once."""
        return pod.node not in attempt.names, pod.labels.get("app", ""), pod.uses_gpu

    attempt.thin_out(sorted((pod for some in attempt.snapshot.pods.values() for pod in some), key=likeness), left)


def _objects(attempt: _Attempt) -> None:
    attempt.thin_out(attempt.snapshot.budgets, lambda snapshot, some: replace(snapshot, budgets=tuple(some)))
    attempt.thin_out(attempt.snapshot.daemonsets, lambda snapshot, some: replace(snapshot, daemonsets=tuple(some)))
    attempt.thin_out(attempt.snapshot.revisions, lambda snapshot, some: replace(snapshot, revisions=tuple(some)))
    refusals = list(attempt.snapshot.refusals.items())
    attempt.thin_out(refusals, lambda snapshot, some: replace(snapshot, refusals=dict(some)))


def _labels(attempt: _Attempt) -> None:
    """Leave out labels and annotations, each from all nodes or all pods at once."""
    nodes = attempt.snapshot.nodes.values()
    attempt.thin_out(sorted({key for node in nodes for key in node.labels}), lambda snapshot, keys: _each_node(
        snapshot, lambda node: replace(node, labels=_only(node.labels, keys))))
    attempt.thin_out(sorted({key for node in nodes for key in node.annotations}), lambda snapshot, keys: _each_node(
        snapshot, lambda node: replace(node, annotations=_only(node.annotations, keys))))
    pods = [pod for some in attempt.snapshot.pods.values() for pod in some]
    attempt.thin_out(sorted({key for pod in pods for key in pod.labels}), lambda snapshot, keys: _each_pod(
        snapshot, lambda pod: replace(pod, labels=_only(pod.labels, keys))))


def _details(attempt: _Attempt) -> None:
    """Leave out what no decision reads today, such as versions; if one does, it stays."""
    attempt.try_with(_each_node(attempt.snapshot, lambda node: replace(node, version="", runtime="", created=0.0)))
    attempt.try_with(_each_pod(attempt.snapshot, lambda pod: replace(pod, version="")))
    objects = attempt.snapshot
    attempt.try_with(replace(
        objects,
        budgets=tuple(replace(each, version="") for each in objects.budgets),
        daemonsets=tuple(replace(each, version="", image="", applied_hash="") for each in objects.daemonsets),
        revisions=tuple(replace(each, version="") for each in objects.revisions),
    ))


def _only(texts: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in texts.items() if key in keys}


def _each_node(snapshot: Snapshot, change: Callable[[NodeView], NodeView]) -> Snapshot:
    return replace(snapshot, nodes={name: change(node) for name, node in snapshot.nodes.items()})


def _each_pod(snapshot: Snapshot, change: Callable[[PodView], PodView]) -> Snapshot:
    return replace(snapshot, pods={name: tuple(map(change, some)) for name, some in snapshot.pods.items()})
