"""Note what happens to nodes and pods while a rollout is played."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.explain import sentence
from gpuward.model.passes import Pass
from gpuward.model.plan import Hold, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State, parse_state
from gpuward.model.views import PodView
from gpuward.model.waits import FailureBudgetSpent, NewDriverFails, OnBudget, OnPod
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.rehearse.results import HOUR, NodeRun, Phase, Run, Span, Waited, sorted_nodes
from gpuward.report.headline import headline
from gpuward.sandbox.gpus import gpus_wanted
from kubesandbox.sim.objects import controller_uid, is_ready, is_terminating, name_of, namespace_of, node_of, seconds, uid_of
from kubesandbox.store import Event

_PHASES: Final = {
    State.UPGRADE_REQUIRED: Phase.WAITING, State.CORDON_REQUIRED: Phase.EMPTYING, State.WAIT_FOR_JOBS_REQUIRED: Phase.EMPTYING,
    State.POD_DELETION_REQUIRED: Phase.EMPTYING, State.DRAIN_REQUIRED: Phase.EMPTYING, State.POD_RESTART_REQUIRED: Phase.DRIVER,
    State.VALIDATION_REQUIRED: Phase.VALIDATION, State.UNCORDON_REQUIRED: Phase.VALIDATION, State.FAILED: Phase.FAILED,
    State.DONE: Phase.DONE,
}
_SHORT: Final = 1.0
"""Seconds that are no wait."""


class _Node:
    """Keep what has happened to one node."""

    def __init__(self, name: str, gpus: int) -> None:
        self.name, self.gpus = name, gpus
        self.started: float | None = None
        self.done: float | None = None
        self.is_behind = False
        """Whether it is about to get its first driver, and that is not loaded and validated yet."""
        self.out_since: float | None = None
        self.out = 0.0
        self.evicted = 0
        self.spans: list[Span] = []
        self.phase: Phase | None = None
        self.since = 0.0
        self.waits_for: Hold | None = None
        self.held: tuple[str, str] | None = None
        self.held_since = 0.0
        self.waited: dict[tuple[str, str], float] = {}
        self.said: dict[tuple[str, str], Hold] = {}

    def enter(self, phase: Phase | None, at: float) -> None:
        """Go into another phase."""
        if phase is self.phase:
            return
        if self.phase is not None and at > self.since:
            self.spans.append(Span(self.phase, self.since, at))
        self.phase, self.since = phase, at

    def plan(self, behind: bool, up_to_date: bool, at: float) -> None:
        """Take whether it has the driver that it should have, and whether it is `behind`: it lacks that, and was without a driver
        pod that is ready since. Where it gets its first one, no label tells of that; one that waits for another driver has one,
        and nothing happens to it.
        """
        if self.started is None and self.is_behind and up_to_date:
            self.done = at
            self.enter(Phase.DONE, at)
        elif self.started is None and behind and self.phase in {None, Phase.DONE}:
            self.enter(Phase.DRIVER, at)
        self.is_behind = behind

    def hold(self, hold: Hold | None, at: float) -> None:
        """Take what the node waits for from now on."""
        if hold is self.waits_for:
            return
        self.waits_for = hold
        key = (str(hold.reason), _whom(hold)) if hold is not None else None
        if key is not None and hold is not None:
            self.said[key] = hold
        if key == self.held:
            return
        if self.held is not None:
            self.waited[self.held] = self.waited.get(self.held, 0.0) + at - self.held_since
        self.held, self.held_since = key, at

    def be_out(self, out: bool, at: float) -> None:
        """Be out of service from now on, or back in it."""
        if out and self.out_since is None:
            self.out_since = at
        elif not out and self.out_since is not None:
            self.out += at - self.out_since
            self.out_since = None


def _whom(hold: Hold) -> str:
    match hold.what:
        case OnBudget():
            return f"budget {hold.what.budget}"
        case OnPod():
            return f"pod {hold.what.pod}" if hold.reason.needs_person and hold.reason is not Reason.OPERAND_FAILING else ""
        case FailureBudgetSpent():
            return f"nodes {', '.join(hold.what.nodes)}"
        case NewDriverFails():
            return f"node {hold.what.node}"
    return ""


def _moment(node: _Node) -> float | None:
    return 0.0 if node.started is None and node.done is None else node.done


class Watching:
    """Note what a rollout does, from the moment at which it begins."""

    def __init__(self, began: float, nodes: Mapping[str, int], namespace: str) -> None:
        self.began, self._namespace = began, namespace
        self._nodes = {name: _Node(name, gpus) for name, gpus in nodes.items()}
        self.plan = Plan()
        self.snapshot: Snapshot | None = None
        self.drivers: PoliciesInForce | None = None
        self.at = began
        """The time for which the plan was made."""
        self.moved = began
        """When something last changed about any node."""
        self.most_out = 0
        self._out: set[str] = set()
        self._bare: dict[str, tuple[Sequence[PodView], bool]] = {}
        self._missing: dict[str, deque[tuple[float, float]]] = defaultdict(deque)
        """By owner, when its evicted pods went and how many GPUs they had, until others run in their place."""
        self._seen_ready: set[str] = set()
        self._hours_waiting = self._hours_undone = 0.0
        self._evicted = 0

    # What is told.

    def planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass of the upgrade."""
        if seen.decision is None:
            return
        self.plan, self.snapshot, self.drivers, self.at = seen.decision, seen.snapshot, seen.policies, seen.at
        at = seen.at - self.began
        for name, status in self.plan.nodes.items():
            if (node := self._nodes.get(name)) is None:
                continue
            if status.hold is not node.waits_for:
                held = node.held
                node.hold(status.hold, at)
                self.moved = seen.at if held != node.held else self.moved
            # Most nodes have their driver, or wait with the one that they have: nothing becomes of them.
            behind = not status.up_to_date and (node.is_behind or self._is_bare(name, seen.snapshot))
            if behind or node.is_behind:
                node.plan(behind, status.up_to_date, at)

    def _is_bare(self, name: str, snapshot: Snapshot) -> bool:
        """Tell whether a node has no driver pod that is ready; asked anew only where its pods are others than before."""
        pods = snapshot.pods.get(name, ())
        known = self._bare.get(name)
        if known is None or known[0] is not pods:
            known = self._bare[name] = (pods, not any(pod.ready and is_driver_pod(pod, snapshot.namespace) for pod in pods))
        return known[1]

    def node_changed(self, event: Event, now: float) -> None:
        """Take a change of a Node."""
        node = self._nodes.get(name_of(event.obj))
        if node is None or event.type == "DELETED":
            return
        at = now - self.began
        state = parse_state((event.obj["metadata"].get("labels") or {}).get(names.UPGRADE_STATE, ""))
        before, gets_first = node.phase, node.is_behind and node.started is None
        phase = _PHASES.get(state) if state is not None else before if gets_first else None
        if phase is not Phase.DONE or node.started is not None or not node.is_behind:
            node.enter(phase, at)
        under_way = state in IN_PROGRESS
        if under_way and node.started is None:
            node.started = at
        if phase is Phase.DONE and before is not Phase.DONE and node.started is not None:
            node.done = at
        self._be_out(node, under_way or (state is State.FAILED and bool(event.obj["spec"].get("unschedulable"))), at)
        self.moved = now if phase is not before else self.moved

    def _be_out(self, node: _Node, out: bool, at: float) -> None:
        node.be_out(out, at)
        (self._out.add if out else self._out.discard)(node.name)
        self.most_out = max(self.most_out, len(self._out))

    def pod_changed(self, event: Event, now: float) -> None:
        """Take a change of a pod: evictions of users' GPU pods, and others that run in their place."""
        pod = event.obj
        if namespace_of(pod) == self._namespace or not (gpus := gpus_wanted(pod["spec"])):
            return
        owner = controller_uid(pod)
        if event.type == "MODIFIED" and is_terminating(pod) and event.old is not None and not is_terminating(event.old):
            self._leaves(pod, owner, gpus, now)
        elif is_ready(pod) and uid_of(pod) not in self._seen_ready:
            self._seen_ready.add(uid_of(pod))
            if self._missing[owner]:
                since, missing = self._missing[owner].popleft()
                self._hours_waiting += missing * (now - since) / HOUR

    def _leaves(self, pod: Mapping[str, Any], owner: str, gpus: float, now: float) -> None:
        node = self._nodes.get(node_of(dict(pod)))
        if node is None or node.name not in self._out:
            return
        node.evicted += 1
        self._evicted += 1
        ran = now - seconds(pod["metadata"]["creationTimestamp"])
        self._hours_undone += gpus * max(0.0, ran) / HOUR
        self._missing[owner or uid_of(dict(pod))].append((now, gpus))

    # What it came to.

    def run(self, seed: int, now: float, *, at_horizon: bool, took: float) -> Run:
        """Return what has happened until now."""
        lasted = max((node.done for node in self._nodes.values() if node.done is not None), default=0.0)
        end = max(lasted, self.moved - self.began)
        nodes = sorted_nodes([self._node_run(node, end) for node in self._nodes.values() if node.name in self.plan.nodes])
        waiting = sum(gpus * (now - since) for missing in self._missing.values() for since, gpus in missing) / HOUR
        return Run(seed, end if any(node.done is None for node in nodes) else lasted, nodes, self.most_out, self._evicted,
                   self._hours_waiting + waiting, self._hours_undone, sum(map(len, self._missing.values())), at_horizon, took,
                   "" if nodes else self._why_none())

    def _why_none(self) -> str:
        if self.snapshot is None or self.drivers is None:
            return ""
        return headline(self.plan, self.snapshot, self.drivers)

    def _node_run(self, node: _Node, end: float) -> NodeRun:
        status = self.plan.nodes[node.name]
        node.hold(None, end)
        node.enter(None, end)
        node.be_out(False, end)
        is_done = status.up_to_date and status.hold is None
        waited = tuple(Waited(*key, lasted, sentence(node.said[key])) for key, lasted in node.waited.items() if lasted > _SHORT)
        return NodeRun(
            node.name, node.gpus, node.started, _moment(node) if is_done else None, node.out,
            node.evicted, tuple(node.spans), waited, str(status.hold.reason) if status.hold is not None else "",
            sentence(status.hold) if status.hold is not None else "", status.failed)


