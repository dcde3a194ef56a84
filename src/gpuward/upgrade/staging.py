"""Bring the images of the next driver onto nodes that wait for their turn: which pods to make and to delete, what to remember.

Nothing is kept but the pods themselves and what is remembered on the nodes. A pod that no waiting node wants is deleted, whoever
made it, and for whatever reason it is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, CreatePod, DeletePod, EventText, PatchNode
from gpuward.model.plan import Hold, Plan
from gpuward.model.reasons import Reason
from gpuward.model.record import AGREEMENT
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.staging import OnFailure, Prestage, PrestageMode, StagingRecord, encode_staging
from gpuward.model.states import AT_REST, State
from gpuward.model.views import NodeView, PodView, PolicyView, Ref
from gpuward.upgrade.decide import Survey
from gpuward.upgrade.fleet_gates import has_to_pull
from gpuward.upgrade.refused import brings_images_at, rests, retry_at
from gpuward.upgrade.staged import LONGEST_REST, NextImages
from gpuward.upgrade.staging_pod import staging_pod, staging_pod_name

PATIENCE: Final = 120.0
"""Seconds for which a kubelet may try again what it says goes wrong."""
DEADLINE: Final = 3600.0
"""Seconds that pulling may take."""
_IN_THE_QUEUE: Final = frozenset({
    Reason.WINDOW_SHUT, Reason.IMAGE_NOT_STAGED, Reason.STAGING_FAILED, Reason.BUDGET_BLOCKS, Reason.BUDGET_USED_UP,
    Reason.UNAVAILABLE_LIMIT, Reason.PARALLEL_LIMIT, Reason.NO_NODE_MAY_START, Reason.LEDGER_REFUSED, Reason.IDLE_AWAITED,
    Reason.WAVE_NOT_DONE, Reason.WAVE_SOAKING, Reason.ANALYSIS_RUNNING, Reason.APPROVAL_REQUIRED, Reason.WAVE_LIMIT,
    Reason.GROWTH_LIMIT, Reason.GANG_AWAITED, Reason.GANG_SPARED, Reason.DOMAIN_LIMIT, Reason.NOTICE_GIVEN,
    Reason.NOTICE_UNANSWERED})
"""What holds a node that is going to be upgraded as things are."""


class _Wanting(msgspec.Struct, frozen=True):
    """Hold a node onto which images are to be brought."""

    node: NodeView
    images: NextImages
    settings: Prestage


def with_staging(
    plan: Plan, snapshot: Snapshot, found: Iterable[Survey], now: float, undecided: Set[str] = frozenset()
) -> Plan:
    """Return a plan of all policies that also brings images onto the nodes that wait, in the order of their turns. What is done
    on `undecided` nodes goes on: nobody knows whether they want it.
    """
    found = tuple(found)
    nodes = snapshot.pods if snapshot.staging_on is None else snapshot.staging_on
    pods = [pod for node in sorted(nodes) for pod in snapshot.pods.get(node, ()) if pod.pulls is not None]
    off = all(each.policy.rollout.prestage.mode is PrestageMode.OFF for each in found)
    over = list(_over(snapshot, found))
    if off and not pods and not over:
        return plan
    wanting, later = ({}, []) if off else _wanting(plan, snapshot, found, now)
    stager = _Stager(snapshot, now, snapshot.unsettled | undecided)
    for pod in (pod for pod in pods if pod.namespace == snapshot.namespace):
        stager.look_at(pod, wanting.get(_node_of(pod)))
    for each in wanting.values():
        stager.go_on(each)
    rest = [retry_at(refusal) for _, refusal in over if refusal is not None and rests(refusal, now)]
    wakes = [at for at in (plan.wake_at, *stager.wakes, *rest, *later) if at is not None]
    counts = msgspec.structs.replace(
        plan.counts, staging=len(wanting), staged=sum(each.images.there for each in wanting.values()))
    forgotten = (_remember(node, None, "the images that were brought onto it are not waited for any more")
                 for node, refusal in over if not rests(refusal, now))
    actions = (*plan.actions, *forgotten, *stager.actions)
    return msgspec.structs.replace(plan, actions=actions, counts=counts, wake_at=min(wakes, default=None))


def _wanting(plan: Plan, snapshot: Snapshot, found: Sequence[Survey], now: float) -> tuple[dict[str, _Wanting], list[float]]:
    """Return the nodes that wait for their turn and need images for it, those that wait for nothing else first; and when more
    do, whose writes were refused.
    """
    # A driver that is switched off is not followed by what its DaemonSet, which is about to go, still says.
    waiting = [(judged, each.policy) for each in found if each.policy.auto_upgrade
               for judged in each.nodes if judged.waits and judged.path.node.next_images is not None
               and not (each.policy.off and judged.before.moving is None)]
    first: dict[str, _Wanting] = {}
    later: dict[str, _Wanting] = {}
    wakes: list[float] = []
    for judged, policy in sorted(waiting, key=lambda one: one[0].turn):
        node = judged.path.node
        status, images = plan.nodes.get(node.node.name), node.next_images
        hold = status.hold if status is not None else None
        refusal = None if hold is None else _refusal(node.refused, hold)
        if hold is None or not (hold.reason in _IN_THE_QUEUE or refusal is not None):
            continue
        if images is None or not has_to_pull(node):
            continue
        if refusal is not None and now < (at := brings_images_at(refusal, now)):
            wakes.append(at)
            continue
        wanted = _Wanting(snapshot.nodes[node.node.name], images, policy.rollout.prestage)
        (first if hold.reason is Reason.IMAGE_NOT_STAGED else later)[node.node.name] = wanted
    return first | later, wakes


def _refusal(refusal: Refusal | None, hold: Hold) -> Refusal | None:
    """Return how a node was refused that waits for others now, and may be changed again for all that is known."""
    return refusal if hold.reason is Reason.WRITE_REFUSED and hold.until is None else None


def _over(snapshot: Snapshot, found: Sequence[Survey]) -> Iterator[tuple[NodeView, Refusal | None]]:
    """Return the nodes on which nothing is to be remembered any more, with how the API server refused to change them: those that
    are done, or where nothing is to be brought. A kubelet may collect images that nothing runs.
    """
    for each in found:
        off = each.policy.rollout.prestage.mode is PrestageMode.OFF
        for judged in each.nodes:
            node, state = judged.before.node, judged.path.node.state
            if not judged.staged or node.name in snapshot.unsettled:
                continue
            if off or (each.policy.auto_upgrade and state in AT_REST and state is not State.FAILED):
                yield node, judged.before.refused


def _node_of(pod: PodView) -> str:
    return pod.node or pod.meant_for


def _remember(node: NodeView, record: StagingRecord | None, why: str, *events: EventText) -> PatchNode:
    return PatchNode(
        node.ref,
        annotations={names.STAGED: encode_staging(record) if record is not None else None},
        expect_annotations={names.STAGED: node.annotations.get(names.STAGED)},
        has_annotations=node.has_annotations,
        events=events,
        why=why,
    )


class _Stager:
    """Collect what is done about one pod after the other, and then about the nodes that have none."""

    def __init__(self, snapshot: Snapshot, now: float, undecided: Set[str]) -> None:
        self.actions: list[Action] = []
        self.wakes: list[float] = []
        self._snapshot, self._now, self._undecided = snapshot, now, undecided
        self._pulling: set[str] = set()
        self._busy: set[str] = set()
        """Nodes that have such a pod, or about which nothing is decided now."""
        self._owner: PolicyView | None = next(
            (each for each in snapshot.rollout_policies if not (each.deleting or each.gone)), None)

    def look_at(self, pod: PodView, wanted: _Wanting | None) -> None:
        """Decide what becomes of a pod."""
        name = _node_of(pod)
        if name in self._undecided:
            self._pulling.add(name)
        elif pod.deleting:
            self._await_end(pod, wanted if name not in self._busy else None)
        else:
            self._decide(pod, wanted if name not in self._busy else None)
        self._busy.add(name)

    def _await_end(self, pod: PodView, wanted: _Wanting | None) -> None:
        """Say of a pod that does not stop that it keeps the images away: nothing pulls while it is there."""
        if wanted is None or wanted.images.there:
            return
        at = max(pod.ends + PATIENCE, wanted.images.due if self._rests(wanted.images) else 0.0)
        if self._now < at:
            self.wakes.append(at)
        else:
            kept = f", kept by its finalizers {', '.join(pod.kept_by_finalizers)}" if pod.kept_by_finalizers else ""
            self._fail(wanted, f"pod {pod.namespace}/{pod.name} does not stop{kept}", self._now)

    def _decide(self, pod: PodView, wanted: _Wanting | None) -> None:
        progress = pod.pulls
        if wanted is None or progress is None or pod.labels.get(names.STAGING_IMAGES) != wanted.images.shape.digest:
            if progress is not None and not progress.there:  # it pulls until it is gone
                self._pulling.add(_node_of(pod))
            self._delete(pod, "nobody waits for the images that it has pulled")
        elif wanted.images.there or progress.there:
            self._there(pod, wanted)
        elif why := self._failed(pod, progress.trouble):
            self._fail(wanted, why, self._now)
            self._delete(pod, "it cannot have its images pulled")
        else:
            self._pulling.add(_node_of(pod))
            self.wakes += [pod.created + DEADLINE, *([pod.created + PATIENCE] if progress.trouble else [])]

    def _failed(self, pod: PodView, trouble: str) -> str:
        if pod.finished or (trouble and self._now >= pod.created + PATIENCE):
            return trouble or pod.phase
        return f"not pulled within {DEADLINE / 60:.0f} minutes" if self._now >= pod.created + DEADLINE else ""

    def _there(self, pod: PodView, wanted: _Wanting) -> None:
        if not wanted.images.there:
            record = StagingRecord(wanted.images.shape.digest, self._now)
            self.actions.append(_remember(wanted.node, record, "the images of its next driver are on it"))
        self._delete(pod, "its images are there")

    def _delete(self, pod: PodView, why: str) -> None:
        self.actions.append(DeletePod(pod.ref, _node_of(pod), why=why))

    def _fail(self, wanted: _Wanting, why: str, at: float) -> None:
        before = wanted.images.record
        record = StagingRecord(wanted.images.shape.digest, at, why, before.attempts + 1 if before is not None else 1)
        told = f"The images of its next driver cannot be brought onto it, so it is upgraded without: {why}"
        ignored = wanted.settings.on_failure is OnFailure.IGNORE
        events = (EventText(told, warning=True),) if ignored and record.attempts == 1 else ()
        self.actions.append(_remember(wanted.node, record, f"the images of its next driver are not on it: {why}", *events))

    def go_on(self, wanted: _Wanting) -> None:
        """Have images pulled onto a node that needs them, unless it has to wait."""
        node, images = wanted.node, wanted.images
        if images.there or node.name in self._busy or node.name in self._undecided or node.disk_pressure:
            return
        if (refused := self._refused(node, images)) is not None:
            self._fail(wanted, f"its pod may not be made: {refused.message}", refused.at)
        elif self._rests(images):
            self.wakes.append(images.due)
        elif self._owner is not None and len(self._pulling) < wanted.settings.parallel:
            self._pulling.add(node.name)
            namespace, digest = self._snapshot.namespace, images.shape.digest
            body = staging_pod(node.name, images, namespace, self._owner)
            ref = Ref(namespace, staging_pod_name(node.name, digest))
            self.actions.append(CreatePod("Pod", ref, node.ref, body, why="it has the images of the next driver pulled"))

    def _rests(self, images: NextImages) -> bool:
        """Tell whether it is tried again later; a failure that is yet to come keeps nothing waiting."""
        return self._now < images.due <= self._now + LONGEST_REST + AGREEMENT

    def _refused(self, node: NodeView, images: NextImages) -> Refusal | None:
        refusal = self._snapshot.unstaged.get(node.uid)
        known = images.record.at if images.record is not None and images.record.failed else 0.0
        return refusal if refusal is not None and refusal.at > known + AGREEMENT else None
