"""A tiny pure cluster for whole rollouts: what a write does at once, and what the world does later, each an explicit step.

It knows nothing of how decisions are made: pods that are asked to go are terminating until `pods_gone`, a DaemonSet makes a new
driver pod of the newest template when `pods_made` says so, and pods get ready when `pods_ready` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeletePod, EvictPod, PatchNode
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import decode_record
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.views import NodeView, PodView, Ref
from gpuward.upgrade.decide import decide
from tests import build

replace = msgspec.structs.replace


class Refused(Exception):
    """Answer a write whose precondition does not hold."""


def apply(snapshot: Snapshot, actions: Collection[Action], now: float = build.NOW) -> Snapshot:
    """Perform actions in order.

    Raises:
        Refused: a precondition of one does not hold.
    """
    for action in actions:
        snapshot = perform(snapshot, action, now)
    return snapshot


def perform(snapshot: Snapshot, action: Action, now: float = build.NOW) -> Snapshot:
    """Perform one action as an API server would at once, its graceful deletions as a mark on the pod."""
    if isinstance(action, PatchNode):
        return _with_node(snapshot, _patched(snapshot, action))
    if isinstance(action, EvictPod):
        return _evicted(snapshot, action, now)
    assert isinstance(action, DeletePod), f"the upgrade asked for {action}"
    there = snapshot.pods.get(action.node, ())
    kept = action.last_look is not None and any(pod.uid in action.last_look.module_holders and pod.ready for pod in there)
    if action.last_look and not kept and any(pod.uses_gpu and not pod.finished for pod in there):
        raise Refused(f"the last look found a GPU pod on {action.node}")
    return _deleted(snapshot, action.node, action.pod)


def _evicted(snapshot: Snapshot, action: EvictPod, now: float) -> Snapshot:
    """Evict a pod, or note that a budget refused: one that has room gets it back at once, for pods come back elsewhere."""
    pod = next((pod for pod in snapshot.pods.get(action.node, ()) if pod.ref == action.pod), None)
    over = [budget for budget in snapshot.budgets if pod is not None and not pod.evicted_freely and budget.covers(pod)]
    if pod is None or not (len(over) > 1 or any(budget.allowed < 1 and not budget.lets_go(pod) for budget in over)):
        return _deleted(snapshot, action.node, action.pod)
    before = snapshot.refusals.get(pod.uid)
    refusal = Refusal(now, before.count + 1 if before else 1, "the budget says no")
    return replace(snapshot, refusals={**snapshot.refusals, pod.uid: refusal})


def _patched(snapshot: Snapshot, action: PatchNode) -> NodeView:
    node = snapshot.nodes.get(action.node.name)
    if node is None or node.uid != action.node.uid:
        raise Refused(f"there is no {action.node}")
    _test(node.labels, action.expect_labels)
    _test(node.annotations, action.expect_annotations)
    if action.expect_unschedulable not in (None, node.unschedulable):
        raise Refused(f"{node.name} is {'' if node.unschedulable else 'not '}cordoned")
    annotations = _merged(node.annotations, action.annotations)
    text = annotations.get(names.UPGRADE_RECORD)
    return replace(
        node,
        labels=_merged(node.labels, action.labels),
        annotations=annotations,
        unschedulable=node.unschedulable if action.unschedulable is None else action.unschedulable,
        record=decode_record(text) if text is not None else None,
    )


def _test(actual: Mapping[str, str], expected: Mapping[str, str | None]) -> None:
    for key, value in expected.items():
        if actual.get(key) != value:
            raise Refused(f"{key} is {actual.get(key)!r}, not {value!r}")


def _merged(old: Mapping[str, str], new: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **new}.items() if value is not None}


def _with_node(snapshot: Snapshot, node: NodeView) -> Snapshot:
    return replace(snapshot, nodes={**snapshot.nodes, node.name: node})


def _deleted(snapshot: Snapshot, at: str, ref: Ref) -> Snapshot:
    pods = snapshot.pods.get(at, ())
    if not any(pod.ref == ref for pod in pods):
        raise Refused(f"there is no {ref} on {at}")
    return with_pods(snapshot, at, [replace(pod, deleting=True) if pod.ref == ref else pod for pod in pods])


def with_pods(snapshot: Snapshot, at: str, pods: Collection[PodView]) -> Snapshot:
    """Put other pods on a node."""
    return replace(snapshot, pods={**snapshot.pods, at: tuple(pods)})


# What the world does by itself.


def pods_gone(snapshot: Snapshot, at: str, now: float) -> Snapshot:
    """Let the terminating pods of a node end."""
    return with_pods(snapshot, at, [pod for pod in snapshot.pods.get(at, ()) if not pod.deleting])


def pods_made(snapshot: Snapshot, at: str, now: float) -> Snapshot:
    """Let the DaemonSets make the driver and the validator pod that a node lacks, the driver of the newest template.

    From a node that they do not select any more they take their pods away.
    """
    pods = list(snapshot.pods.get(at, ()))
    if not selected(snapshot, at):
        ours = {names.DRIVER_APP, names.VALIDATOR_APP}
        return with_pods(snapshot, at, [replace(pod, deleting=pod.deleting or pod.labels.get("app") in ours) for pod in pods])
    apps = {pod.labels.get("app") for pod in pods}
    newest = max(snapshot.revisions, key=lambda revision: revision.revision)
    if names.DRIVER_APP not in apps:
        digest = snapshot.daemonsets[0].config_digest
        pods.append(build.driver_pod(at, newest.hash, ready=False, created=float(int(now)), config_digest=digest))
    if names.VALIDATOR_APP not in apps:
        pods.append(build.validator(at, ready=False, created=float(int(now))))
    return with_pods(snapshot, at, pods)


def selected(snapshot: Snapshot, at: str) -> bool:
    """Tell whether the driver DaemonSet selects a node."""
    return snapshot.daemonsets[0].node_selector.items() <= snapshot.nodes[at].labels.items()


def pods_ready(snapshot: Snapshot, at: str, now: float) -> Snapshot:
    """Let a node's driver pod get ready or, if it is, its validator pod."""
    pods = list(snapshot.pods.get(at, ()))
    for app in (names.DRIVER_APP, names.VALIDATOR_APP):
        for number, pod in enumerate(pods):
            if pod.labels.get("app") == app and not pod.ready and not pod.deleting:
                if names.SAFE_LOAD in snapshot.nodes[at].annotations:
                    return snapshot
                pods[number] = replace(pod, ready=True)
                return with_pods(snapshot, at, pods)
    return snapshot


Move = Callable[[Snapshot, str, float], Snapshot]
MOVES: tuple[Move, ...] = (pods_gone, pods_made, pods_ready)


def turn(snapshot: Snapshot, now: float, *, broken: Collection[str] = ()) -> Snapshot:
    """Let the world take every step it can on every node once; a broken node's driver crashes instead of getting ready."""
    for name in sorted(snapshot.nodes):
        for move in MOVES:
            snapshot = crashed(snapshot, name) if move is pods_ready and name in broken else move(snapshot, name, now)
    return snapshot


def crashed(snapshot: Snapshot, at: str) -> Snapshot:
    """Let a driver pod that is not ready restart more often than is tolerated."""
    pods = snapshot.pods.get(at, ())
    is_new = [pod.labels.get("app") == names.DRIVER_APP and not pod.ready for pod in pods]
    return with_pods(snapshot, at, [replace(p, restarts=11) if new else p for p, new in zip(pods, is_new, strict=True)])


RELABELLED = "-relabelled"
"""Ends the name of a driver whose template differs from that of the driver without it in labels and annotations only."""


def retarget(snapshot: Snapshot, driver: str, *, digest: str = "") -> Snapshot:
    """Let somebody change the driver of the DaemonSet; going back to an old template makes its revision the newest."""
    others = [revision for revision in snapshot.revisions if revision.hash != driver]
    number = 1 + max(revision.revision for revision in others)
    newest = build.revision(driver, number, digest=digest, pods=driver.removesuffix(RELABELLED))
    daemonsets = (replace(snapshot.daemonsets[0], config_digest=digest),)
    return replace(snapshot, revisions=(*others, newest), daemonsets=daemonsets)


def relabel(snapshot: Snapshot, at: str, state: str | None) -> Snapshot:
    """Let somebody set a node's state label, or take it away."""
    return label(snapshot, at, names.UPGRADE_STATE, state)


def label(snapshot: Snapshot, at: str, key: str, value: str | None) -> Snapshot:
    """Let somebody set one of a node's labels, or take it away."""
    node = snapshot.nodes[at]
    return _with_node(snapshot, replace(node, labels=_merged(node.labels, {key: value})))


def annotate(snapshot: Snapshot, at: str, key: str, value: str | None) -> Snapshot:
    """Let somebody set one of a node's annotations, or take it away."""
    node = snapshot.nodes[at]
    annotations = _merged(node.annotations, {key: value})
    text = annotations.get(names.UPGRADE_RECORD)
    try:
        record = decode_record(text) if text is not None else None
    except ValueError:
        record = None
    return _with_node(snapshot, replace(node, annotations=annotations, record=record))


def cordon(snapshot: Snapshot, at: str, cordoned: bool = True) -> Snapshot:
    """Let somebody cordon or uncordon a node."""
    return _with_node(snapshot, replace(snapshot.nodes[at], unschedulable=cordoned))


def set_ready(snapshot: Snapshot, at: str, ready: bool) -> Snapshot:
    """Let a node's kubelet report, or stop to report, that it is ready."""
    return _with_node(snapshot, replace(snapshot.nodes[at], ready=ready))


class Rollout(NamedTuple):
    """Hold how a rollout went: the end of it, and each plan with the snapshot that it was made of."""

    end: Snapshot
    now: float
    history: tuple[tuple[Snapshot, Plan], ...]

    @property
    def plan(self) -> Plan:
        """Return the last plan."""
        return self.history[-1][1]

    @property
    def messages(self) -> list[str]:
        """Return the messages of every event, in order."""
        patches = [action for _, plan in self.history for action in plan.actions if isinstance(action, PatchNode)]
        return [event.message for patch in patches for event in patch.events]

    def entered(self, name: str) -> list[str]:
        """Return the states that a node entered, in order."""
        patches = [action for _, plan in self.history for action in plan.actions if isinstance(action, PatchNode)]
        return [str(state) for patch in patches if patch.node.name == name for state in patch.entered]


PATIENCE = 4000.0
"""Seconds in which nothing happens but evictions that budgets refuse: longer than any deadline of the tests."""


def rollout(
    snapshot: Snapshot, policy: UpgradePolicy, *, now: float = build.NOW, broken: Collection[str] = (), passes: int = 400
) -> Rollout:
    """Decide, perform and let the world turn, until neither has anything to do. A rollout that does not end fails the test.

    Where a budget never gives way and nothing limits the time to ask it, the asking is no end of the world.
    """
    history: list[tuple[Snapshot, Plan]] = []
    moved = now
    for _ in range(passes):
        plan = decide(snapshot, policy, now)
        history.append((snapshot, plan))
        after = turn(apply(snapshot, plan.actions, now), now, broken=broken)
        if after == snapshot:
            if plan.wake_at is None:
                return Rollout(snapshot, now, tuple(history))
            assert plan.wake_at > now, "the plan wakes at a time that has come already"
            now = plan.wake_at
            continue
        if replace(after, refusals=snapshot.refusals) != snapshot:
            moved = now
        elif now - moved > PATIENCE:
            return Rollout(snapshot, now, tuple(history))
        snapshot, now = after, now + 1.0
    raise AssertionError(f"no end after {passes} passes: {history[-1][1].actions}")
