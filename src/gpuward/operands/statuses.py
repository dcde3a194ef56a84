"""What the decisions about custom resources share: what their states wait for, and when a status is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from gpuward.model.actions import Action, PatchStatus
from gpuward.model.driver import ANEW, going
from gpuward.model.snapshot import Snapshot, Untaken
from gpuward.model.stuck import stuck_pod
from gpuward.model.views import DaemonSetView, PodView, PolicyView, Ref
from gpuward.operands.changes import Prepared, is_applied, is_missing, is_to_be_written
from gpuward.operands.readiness import waits_for
from gpuward.operands.state import OperandState, ref_of
from gpuward.operands.status import Verdict, differs_in_phase, differs_in_words_only

WORDS_EVERY: Final = 30.0
"""Seconds between two writes of a status that differ only in how far they say that things have come."""
PHASES_EVERY: Final = 10.0
"""Seconds between two writes where a phase has begun or ended, though only its messages say so."""


class Worded:
    """Remember when each status was written last, by uid, and which of them by this process. Losing it costs a delay of words."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.written: set[str] = set()


class StatusWrite(NamedTuple):
    """Hold the write that a status needs now, and when words that are held back may be written."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None


def status_write(view: PolicyView, kind: str, verdict: Verdict, wanted: Mapping[str, Any] | None, now: float,
                 worded: Worded) -> StatusWrite:
    """Write a status, None if it is right as it is: at once where it says something else than the one that is there, or tells of
    something else; how far that has come no more often than it can be read.
    """
    # After a start less is known than whoever wrote these words knew, such as refused evictions: they stand until it is.
    last = worded.at.setdefault(view.uid, now)
    if wanted is None:
        return StatusWrite()
    current = view.body.get("status") or {}
    phase = view.uid in worded.written and differs_in_phase(wanted, current)
    again = last + (PHASES_EVERY if phase else WORDS_EVERY)
    # Earlier than the last: the clock was set back.
    if differs_in_words_only(wanted, current) and last <= now < again:
        return StatusWrite(wake_at=again)
    worded.at[view.uid] = now
    worded.written.add(view.uid)
    return StatusWrite((PatchStatus(kind, view.ref, wanted, why=verdict.reason),))


def waiting_states(states: Iterable[OperandState], snapshot: Snapshot, prepared: Iterable[Prepared] = ()) -> dict[str, str]:
    """Return what the states that are not ready wait for: the first of their objects that is missing, or of their DaemonSets that
    is not ready, or is there and not as it was `prepared`: it may not be written, or waits for nodes.
    """
    daemonsets = {ds.name: ds for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace}
    owned = cache(partial(_pods_by_owner, snapshot))
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
            if why := waits_for(daemonsets.get(name), pods, snapshot.revisions, snapshot.nodes.values()):
                waiting[state.name] = f"{name}: {why}{_stuck(daemonsets.get(name), owned)}"
    for one in prepared:
        if behind := unapplied([one], snapshot):
            waiting.setdefault(one.state, behind)
    return waiting


def _pods_by_owner(snapshot: Snapshot) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = {}
    for pods in snapshot.pods.values():
        for pod in pods:
            if pod.owner is not None:
                found.setdefault(pod.owner.uid, []).append(pod)
    return found


def _stuck(daemonset: DaemonSetView | None, owned: Callable[[], Mapping[str, Sequence[PodView]]]) -> str:
    if daemonset is None:
        return ""
    stuck = stuck_pod(owned().get(daemonset.uid, ()))
    return f" ({stuck})" if stuck is not None and stuck.in_trouble else ""


def unapplied(prepared: Iterable[Prepared], snapshot: Snapshot) -> str:
    """Say which DaemonSet is the first that is not there as it is wanted, empty if all are."""
    wanted = (obj for one in prepared for obj in one.objects if obj.key[0] == "DaemonSet")
    ref = next((obj.ref for obj in wanted if not is_applied(obj, snapshot)), None)
    if ref is None:
        return ""
    ds = next((ds for ds in snapshot.daemonsets if (ds.namespace, ds.name) == (ref.namespace, ref.name)), None)
    return f"{ref.name} {going(ds)}: {ANEW}" if ds is not None and ds.deleting else f"{ref.name} is not applied yet"


def refusal(prepared: Iterable[Prepared], snapshot: Snapshot) -> str:
    """Say which object the API server does not take as it is wanted, or does not let go, and why; empty if none. What was
    refused and is as it is wanted now, by whomever, is told no longer.
    """
    if not snapshot.untaken:  # it is asked in each pass
        return ""
    for one in prepared:
        for obj in one.objects:
            found = snapshot.untaken.get(Untaken.key(obj.key[0], obj.ref))
            if found is not None and found.hash == obj.digest and found.count >= found.SURE and is_to_be_written(obj, snapshot):
                return found.told(obj.key[0], obj.ref.name)
        for ref in one.absent:
            have = snapshot.owned.get((ref.kind, ref.namespace, ref.name))
            found = snapshot.untaken.get(Untaken.key(ref.kind, Ref(ref.namespace, ref.name)))
            if have is None or found is None or have.deleting or not (found.stays and found.count >= found.SURE):
                continue
            if found.hash == have.uid:
                return found.told(ref.kind, ref.name)
    return ""


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
