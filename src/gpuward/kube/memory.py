"""What our own requests teach and no watch shows: what was refused and evicted. Losing it costs some early attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from gpuward import names
from gpuward.kube.cache.cache import Cache, Change
from gpuward.kube.followed import Place
from gpuward.model.budgets import BudgetView
from gpuward.model.driver import is_driver_pod
from gpuward.model.edits import CALM
from gpuward.model.rights import WITHOUT
from gpuward.model.snapshot import Edit, Evicted, Refusal, Untaken
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import DaemonSetView, NodeView, PodView, PolicyView

KEPT: Final = 3600.0
"""Seconds for which evictions are remembered after the last one."""


class Going(NamedTuple):
    """Hold a pod that is asked to go, and the pods of its owner that are on its node then."""

    pod: PodView
    there: tuple[str, ...]
    """By uid."""


class Memory:
    """Remember refused evictions by pod, evictions by node and owner, and refused writes by node; pods and nodes by uid."""

    def __init__(self) -> None:
        self.refusals: dict[str, Refusal] = {}
        self.evicted: dict[str, dict[str, Evicted]] = {}
        """What is in it is replaced, never changed: snapshots hold it too."""
        self.refused_writes: dict[str, Refusal] = {}
        self.unstaged: dict[str, Refusal] = {}
        """By uid, nodes for which no pod may be made that has images pulled."""
        self.staging_on: frozenset[str] = frozenset()
        """Nodes with pods that only have images pulled."""
        self.withheld: dict[str, float] = {}
        self.edits: dict[str, Edit] = {}
        self.untaken: dict[str, Untaken] = {}
        self.ledger_refused: Refusal | None = None
        self.forbidden: frozenset[str] = frozenset()
        self.drivers_failed: set[str] = set()
        """Nodes whose driver pod failed, and where none has begun since."""
        self._departed: dict[str, PolicyView] = {}

    def drivers_changed(self, changes: Iterable[Change[str, PolicyView]]) -> None:
        """Remember NVIDIADrivers that go: what they said last may not be on their DaemonSets yet."""
        for _, old, new in changes:
            if new is not None:
                self._departed.pop(new.name, None)
            elif old is not None:
                self._departed[old.name] = old

    def departed(self, daemonsets: Iterable[DaemonSetView]) -> tuple[PolicyView, ...]:
        """Return the NVIDIADrivers that went and left some of these DaemonSets, and forget all others."""
        if self._departed:
            there = {ds.node_selector.get(names.DRIVER_OWNER) for ds in daemonsets}
            self._departed = {name: view for name, view in self._departed.items() if name in there}
        return tuple(self._departed.values())

    def forget(self, pods: Cache[Any, PodView], nodes: Cache[str, NodeView]) -> None:
        """Forget the refusals of pods and nodes that are gone, and the evictions from nodes that are back in service: pods that
        come there now come by right.
        """
        self.refusals = _alive(self.refusals, pods.values())
        self.refused_writes = _alive(self.refused_writes, nodes.values())
        self.unstaged = _alive(self.unstaged, nodes.values())
        if self.withheld:
            self.withheld = {view.uid: self.withheld[view.uid] for view in nodes.values() if view.uid in self.withheld}
        if any(_serves(nodes.get(node)) for node in self.evicted):
            self.evicted = {node: owners for node, owners in self.evicted.items() if not _serves(nodes.get(node))}

    def found_staging(self, node: str, pods: Iterable[PodView]) -> None:
        """Take it which pods a node has."""
        there = any(pod.pulls is not None for pod in pods)
        if there is not (node in self.staging_on):
            self.staging_on = self.staging_on | {node} if there else self.staging_on - {node}

    def followed_failed(self, pods: tuple[PodView, ...], namespace: str) -> tuple[PodView, ...]:
        """Return a node's pods, with each driver pod marked that came for one that failed."""
        drivers = {pod.uid: pod for pod in pods if pod.node in self.drivers_failed and is_driver_pod(pod, namespace)}
        if any(pod.begun and not (pod.finished or pod.deleting) for pod in drivers.values()):
            self.drivers_failed -= {pod.node for pod in drivers.values()}
            return pods
        return tuple(msgspec.structs.replace(pod, after_failed=True) if pod.uid in drivers else pod for pod in pods)

    def may_list(self, kind: str, allowed: bool) -> bool:
        """Take it whether objects of a kind that we can do without may be listed; tell whether that is news."""
        before = self.forbidden
        self.forbidden = before - {kind} if allowed or kind not in WITHOUT else before | {kind}
        return self.forbidden != before

    def refuse(self, pod: str, at: float, message: str, *, lost: bool = False) -> None:
        """Take it that a pod may not go, or that the connection broke by which it was asked to."""
        before = self.refusals.get(pod)
        lost = lost and (before is None or before.lost)
        self.refusals[pod] = msgspec.structs.replace(_once_more(before, at, message), lost=lost)

    def staged(self, node: str, at: float, refusal: str) -> None:
        """Take it how making a pod for a node ended that has images pulled: with what it was refused, if it was."""
        before = self.unstaged.pop(node, None)
        if refusal:
            self.unstaged[node] = _once_more(before, at, refusal)

    def wrote_object(self, key: str, digest: str, refusal: str, *, deletion: bool = False) -> Untaken | None:
        """Take it how writing or deleting an object ended; return what is known of its refusals, if it was refused."""
        before = self.untaken.pop(key, None)
        if not refusal:
            return None
        count = before.count + 1 if before is not None and before.hash == digest else 1
        return self.untaken.setdefault(key, Untaken(digest, refusal, count, deletion))

    def granted(self, at: float, refusal: str) -> None:
        """Take it how an entry into the ledger of admissions ended, with what it was refused if it was."""
        self.ledger_refused = _once_more(self.ledger_refused, at, refusal) if refusal else None

    def put_right(self, uid: str, at: float, by: str) -> Edit:
        """Take it that an edit of somebody else was put right; return what is known of such edits."""
        before = self.edits.get(uid, Edit())
        count = before.count + 1 if at < before.at + CALM else 1
        self.edits[uid] = Edit(at, count, by)
        return self.edits[uid]

    def found_room(self, changes: Iterable[Change[Place, BudgetView]], pods: Cache[Place, PodView]) -> None:
        """Begin the back-off of refused pods anew where their budget has more room than before."""
        roomier = [new for _, old, new in changes if new is not None and new.allowed > (old.allowed if old else 0)]
        if not roomier or not self.refusals:
            return
        covered = {pod.uid for pod in pods.values() if any(budget.covers(pod) for budget in roomier)}
        for uid in self.refusals.keys() & covered:
            self.refusals[uid] = msgspec.structs.replace(self.refusals[uid], count=1)

    def evict(self, going: Going, at: float) -> None:
        """Take it that a pod goes. One that was not there when others of its owner were asked to go has come back."""
        pod = going.pod
        if pod.owner is None:
            return
        known = {node: {owner: one for owner, one in owners.items() if at < one.at + KEPT}
                 for node, owners in self.evicted.items()}
        before = known.get(pod.node, {}).get(pod.owner.uid)
        if before is None or pod.uid not in before.there:
            now = Evicted(at, tuple(sorted({pod.uid, *going.there})), before.returns + 1 if before else 0)
            known[pod.node] = {**known.get(pod.node, {}), pod.owner.uid: now}
        self.evicted = {node: owners for node, owners in known.items() if owners}

    def wrote(self, node: str, at: float, refusal: str) -> bool:
        """Take it how a write to a node ended, with what it was refused if it was; tell whether that is news."""
        before = self.refused_writes.pop(node, None)
        if refusal:
            self.refused_writes[node] = _once_more(before, at, refusal)
        return bool(refusal) or before is not None


def _serves(node: NodeView | None) -> bool:
    return node is not None and not node.unschedulable and node.state not in IN_PROGRESS


def _alive(refusals: dict[str, Refusal], views: Iterable[PodView] | Iterable[NodeView]) -> dict[str, Refusal]:
    return {view.uid: refusals[view.uid] for view in views if view.uid in refusals} if refusals else refusals


def _once_more(before: Refusal | None, at: float, message: str) -> Refusal:
    return Refusal(at, before.count + 1 if before else 1, message)
