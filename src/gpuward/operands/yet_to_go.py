"""Driver DaemonSets that are to go: until they are gone their pods, and nodes that are up to date with them, say nothing of what
people ask for.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.actions import Action, DeleteObject, ReleasePod
from gpuward.model.driver import driver_daemonsets, going, is_ownerless
from gpuward.model.snapshot import Snapshot, Untaken
from gpuward.model.views import DaemonSetView


def refused_to_go(actions: Iterable[Action], snapshot: Snapshot) -> str:
    """Say which DaemonSet with drivers the API server does not let go, and why, of those that actions delete and those of
    NVIDIADrivers that are gone; empty if none.
    """
    wanted = {uid for action in actions if (uid := _leaving(action))}
    for ds in driver_daemonsets(snapshot):
        found = snapshot.untaken.get(Untaken.key("DaemonSet", ds.ref))
        known = found is not None and found.stays and found.hash == ds.uid and found.count >= found.SURE
        leaves = ds.uid in wanted or is_ownerless(ds, snapshot.namespace)
        if found is not None and known and leaves and not ds.deleting and _has_pods(ds, snapshot):
            return found.told("DaemonSet", ds.name)
    return ""


def yet_to_go(actions: Iterable[Action], snapshot: Snapshot) -> str:
    """Say which DaemonSet with drivers is about to go; empty if none."""
    whys = {uid: action.why for action in actions if isinstance(action, DeleteObject | ReleasePod) and (uid := _leaving(action))}
    found = next((ds for ds in driver_daemonsets(snapshot) if ds.uid in whys and _has_pods(ds, snapshot)), None)
    return f"DaemonSet {found.name} is yet to be deleted: {whys[found.uid]}" if found is not None else ""


def unsettled(snapshot: Snapshot) -> str:
    """Say which driver DaemonSet its controller has not taken up as it is, or is on its way out and has its pods still."""
    for ds in driver_daemonsets(snapshot):
        if ds.deleting and _has_pods(ds, snapshot):
            return f"DaemonSet {ds.name} {going(ds)}"
        if not (ds.settled or ds.deleting):
            return f"DaemonSet {ds.name} is not taken up by its controller yet"
    return ""


def kept(snapshot: Snapshot) -> str:
    """Name the first driver DaemonSet that somebody's finalizers keep."""
    return next((f"DaemonSet {ds.name} {going(ds)}" for ds in driver_daemonsets(snapshot) if ds.kept_by_finalizers), "")


def _leaving(action: Action) -> str:
    if isinstance(action, ReleasePod):
        return action.owner_uid
    return action.ref.uid if isinstance(action, DeleteObject) and action.kind == "DaemonSet" else ""


def _has_pods(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    return any(pod.is_owned_by(ds.uid) for pods in snapshot.pods.values() for pod in pods)
