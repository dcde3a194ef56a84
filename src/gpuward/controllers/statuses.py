"""What the controllers of custom resources share: what their states wait for, and how a status is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuward.model.actions import Action, PatchStatus
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.operands.changes import is_missing
from gpuward.operands.readiness import waits_for
from gpuward.operands.rollout import Rollout
from gpuward.operands.state import OperandState, ref_of
from gpuward.operands.status import Verdict, differs_in_words_only, status_of

WORDS_EVERY: Final = 30.0
"""Seconds between two writes of a status that differ only in their messages."""


class StatusWriter:
    """Write a status at once where it says something else, and its words alone no more often than they can be read."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._worded: dict[str, float] = {}
        self.wake_at: float | None = None
        """When words that were held back may be written."""
        self.rollout: Rollout | None = None
        """How the driver upgrade stands; while that is not known the condition of it stays as it is."""

    def write(self, view: PolicyView, verdict: Verdict, namespace: str, now: float) -> list[Action]:
        """Return the write that the object's status needs; an empty `namespace` is not written."""
        # After a start less is known than whoever wrote these words knew, such as refused evictions: they stand until it is.
        worded = self._worded.setdefault(view.uid, now)
        current = view.body.get("status") or {}
        status = status_of(verdict, current, namespace, now, self.rollout)
        if status is None:
            return []
        again = worded + WORDS_EVERY
        if differs_in_words_only(status, current) and worded <= now < again:  # earlier than the last: the clock was set back
            self.wake_at = again if self.wake_at is None else min(again, self.wake_at)
            return []
        self._worded[view.uid] = now
        return [PatchStatus(self._kind, view.ref, status, why=verdict.reason)]


def waiting_states(states: Iterable[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what the states that are not ready wait for: the first of their objects that is missing, or of their DaemonSets that
    is not ready.
    """
    daemonsets = {ds.name: ds for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace}
    waiting: dict[str, str] = {}
    for state in states:
        if missing := missing_objects([state], snapshot):
            waiting[state.name] = f"{missing[0]} is missing"
        for obj in state.objects:
            if obj["kind"] != "DaemonSet" or state.name in waiting:
                continue
            name = obj["metadata"]["name"]
            # Not a list: most DaemonSets need no look at their pods.
            pods = (pod for pods in snapshot.pods.values() for pod in pods if pod.namespace == snapshot.namespace)
            if why := waits_for(daemonsets.get(name), pods, snapshot.revisions):
                waiting[state.name] = f"{name}: {why}"
    return waiting


def missing_objects(states: Iterable[OperandState], snapshot: Snapshot) -> list[str]:
    """Return the objects, DaemonSets aside, that states want and that are not there: without some of them no pod can start."""
    found = (obj for state in states for obj in state.objects if obj["kind"] != "DaemonSet")
    return [str(ref) for ref in map(ref_of, found) if is_missing((ref.kind, ref.namespace, ref.name), snapshot)]


def lacking(states: Iterable[OperandState], snapshot: Snapshot) -> list[str]:
    """Return what is missing of states that have been made before: while one is being made, something always is."""
    there = {ds.name for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace}
    made = [state for state in states if any(obj["kind"] == "DaemonSet" and obj["metadata"]["name"] in there
                                             for obj in state.objects)]
    return missing_objects(made, snapshot)
