"""How the drivers of an NVIDIADriver outlive it until their nodes are emptied, and how its DaemonSets go in the end."""

from __future__ import annotations

from collections.abc import Mapping

from gpuward import names
from gpuward.model.actions import Action, DeleteObject
from gpuward.model.departed import Departure, departure, is_superseded
from gpuward.model.driver import is_hosts_daemonset, is_ownerless
from gpuward.model.hosts import is_used_by_machines, nodes_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, Ref
from gpuward.operands.objects import Json
from gpuward.operands.sandboxes.going import with_pods
from gpuward.operands.state import OperandState, beside_controller


def outliving(state: OperandState, policy: Ref | None, upgrades: str) -> OperandState:
    """Return the state with DaemonSets that a ClusterPolicy owns, too, and that say how their drivers are upgraded: the garbage
    collector leaves what has an owner.
    """
    if policy is None:
        return state
    owner = beside_controller(policy)
    objects = tuple(_with(obj, owner, upgrades) if obj["kind"] == "DaemonSet" else obj for obj in state.objects)
    return OperandState(state.name, enabled=state.enabled, objects=objects, absent=state.absent, error=state.error)


def _with(obj: Json, owner: Json, upgrades: str) -> Json:
    meta = obj["metadata"]
    annotations = {**meta.get("annotations", {}), names.VALID_UPGRADE_POLICY: upgrades}
    return {**obj, "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]}}


def departing(snapshot: Snapshot, made: Mapping[str, frozenset[str]] = {}, *, at_once: bool) -> list[Action]:
    """Delete the driver DaemonSets of NVIDIADrivers that are gone, but those that another one of the name has, as it is `made`
    now: what cannot be made takes none over, and lets none go.

    Those that were left behind go without their pods, which are replaced node by node: they select their nodes by the
    NVIDIADriver's name, nobody changes them any more, and no other DaemonSet gets to these nodes. Those whose drivers are to go
    stay until no node has one; `at_once` they go with them.
    """
    return [action for ds in snapshot.daemonsets if not ds.deleting and is_ownerless(ds, snapshot.namespace)
            and not is_hosts_daemonset(ds, snapshot.namespace) and not _is_kept(ds, snapshot, made)
            for action in _departing(ds, snapshot, at_once=at_once)]


def _is_kept(ds: DaemonSetView, snapshot: Snapshot, made: Mapping[str, frozenset[str]]) -> bool:
    """Tell whether another NVIDIADriver of the name takes a DaemonSet over, or has yet to say whether it does; one that has no
    driver any more waits for nobody's word.
    """
    known = made.get(ds.node_selector[names.DRIVER_OWNER])
    return is_superseded(ds, snapshot) and (_has_drivers(ds, snapshot) if known is None else ds.name in known)


def _has_drivers(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    return bool(ds.desired) or any(pod.is_owned_by(ds.uid) for pods in snapshot.pods.values() for pod in pods)


def _departing(ds: DaemonSetView, snapshot: Snapshot, *, at_once: bool) -> list[Action]:
    end = DeleteObject("DaemonSet", ds.ref, orphan=True, if_empty=True, why="its NVIDIADriver and its drivers are gone")
    match departure(ds, snapshot):
        case Departure.UNKNOWN:
            return []
        case Departure.REMOVED if at_once:
            return [DeleteObject("DaemonSet", ds.ref, why="its NVIDIADriver is gone")]
        case Departure.REMOVED:
            return [] if _has_drivers(ds, snapshot) else [end]
        case None if not _has_drivers(ds, snapshot):
            return [end]
    return [DeleteObject("DaemonSet", ds.ref, orphan=True, why="its NVIDIADriver left it behind")]


def departing_hosts(snapshot: Snapshot, made: Mapping[str, frozenset[str]], now: float, *, placed: bool) -> list[Action]:
    """Delete the DaemonSets for hosts of vGPUs of NVIDIADrivers that are gone.

    Where nodes are `placed` their drivers go with the labels of their nodes, one by one, as virtual machines let go of them; what
    was left behind goes with the labels of other NVIDIADrivers. Elsewhere, and where another NVIDIADriver has the name in these
    labels, a DaemonSet goes with all its pods once nobody uses any of them, and nothing offers the GPUs of their hosts any more:
    `removeAtOnce` ends no virtual machine.
    """
    return [action for ds in snapshot.daemonsets if not ds.deleting and is_ownerless(ds, snapshot.namespace)
            and is_hosts_daemonset(ds, snapshot.namespace) and not _is_kept(ds, snapshot, made)
            for action in _departing_host(ds, snapshot, placed, now)]


def superseded_hosts(snapshot: Snapshot, made: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return the DaemonSets for hosts that are in the way of an NVIDIADriver which has the name of an earlier one, and takes them
    not over, by its name: no node has two drivers.
    """
    return {name: ds.name for ds in snapshot.daemonsets
            if is_hosts_daemonset(ds, snapshot.namespace) and is_superseded(ds, snapshot)
            and (name := ds.node_selector[names.DRIVER_OWNER]) in made and ds.name not in made[name]}


def _departing_host(ds: DaemonSetView, snapshot: Snapshot, placed: bool, now: float) -> list[Action]:
    how = departure(ds, snapshot)
    if is_superseded(ds, snapshot) or (how is Departure.REMOVED and not placed):
        why = "its NVIDIADriver is gone" if how is not None else "another NVIDIADriver has the name of its own"
        delete = DeleteObject("DaemonSet", ds.ref, unused=nodes_of(ds, snapshot), why=why)
        return [] if is_used_by_machines(ds, snapshot) else with_pods(delete, snapshot, now)
    if how in (Departure.LEFT, Departure.REMOVED) and not _has_drivers(ds, snapshot):
        return [DeleteObject("DaemonSet", ds.ref, orphan=True, if_empty=True, why="its NVIDIADriver and its drivers are gone")]
    return []
