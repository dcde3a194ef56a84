"""Who owns the DaemonSets of NVIDIADrivers, so that the garbage collector takes none that is to stay.

This is apart from how they are rendered: whether an NVIDIADriver or the ClusterPolicy can be followed changes nothing about what
goes when the NVIDIADriver is deleted. While an NVIDIADriver is there, its DaemonSets have the ClusterPolicy that there is now for
a second owner, and say how their drivers are upgraded. Those that were left behind have no owner: they are nobody's, and outlive
the ClusterPolicy too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from gpuward import names
from gpuward.model.actions import Action, ApplyObject, DeleteObject, PatchAnnotations, SetOwner
from gpuward.model.departed import Departure, departure, is_superseded
from gpuward.model.driver import is_hosts_daemonset, is_ownerless
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.kept import kept, remember
from gpuward.policy.nvidiadrivers import PoliciesInForce

MADE_AGAIN_WITHIN: Final = 30.0
"""Seconds for which the drivers of an NVIDIADriver that was deleted stay as they are: one that is deleted and made again, as by
`kubectl delete -f` and `kubectl apply -f`, or under another name, would else have nodes emptied for nothing.
"""


class Removals(NamedTuple):
    """Hold which drivers are to go with their NVIDIADriver, by the uids of their DaemonSets."""

    noted: frozenset[str] = frozenset()
    """Those of which that may be noted, after which the first of them goes."""
    wake_at: float | None = None
    """When that is so of the next."""


def removals(snapshot: Snapshot, since: dict[str, float], now: float) -> Removals:
    """Return of which DaemonSets it may be noted that their drivers go; `since` remembers when each was seen to be one first."""
    found = {ds.uid for ds in snapshot.daemonsets if not (ds.drivers_go or ds.deleting) and is_ownerless(ds, snapshot.namespace)
             and departure(ds, snapshot) is Departure.REMOVED}
    known = {uid: min(since.get(uid, now), now) for uid in found}  # a clock may be set back
    since.clear()
    since.update(known)
    ends = {uid: at + MADE_AGAIN_WITHIN for uid, at in known.items()}
    return Removals(frozenset(uid for uid, at in ends.items() if at <= now),
                    min((at for at in ends.values() if at > now), default=None))


def with_owners(actions: Sequence[Action], snapshot: Snapshot, policies: PoliciesInForce, noted: Set[str]) -> list[Action]:
    """Return the actions of a pass with what keeps DaemonSets from the garbage collector, or lets them go: that comes first, as
    a DaemonSet that is not taken as it should be needs its owners too. It is written anew in a later pass. `noted` are those of
    which it may be noted that their drivers go.
    """
    writes = {each.lane: each for each in actions if isinstance(each, ApplyObject | DeleteObject) and each.kind == "DaemonSet"}
    changed = [change for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace
               and (change := _change(ds, snapshot, policies, writes, goes=ds.uid in noted)) is not None]
    owned = {each.lane for each in changed if isinstance(each, SetOwner)}
    return [*changed, *(each for each in actions if not (isinstance(each, ApplyObject) and each.lane in owned))]


def _change(ds: DaemonSetView, snapshot: Snapshot, policies: PoliciesInForce,
            writes: Mapping[str, Action], *, goes: bool) -> SetOwner | PatchAnnotations | None:
    if ds.deleting:
        return None
    found = _owned(ds, snapshot, policies) if ds.owner is not None else _gone(ds, snapshot, policies, goes=goes)
    if found is None or found.lane not in writes:
        return found
    if is_superseded(ds, snapshot) and isinstance(writes[found.lane], ApplyObject):
        return None  # another NVIDIADriver of the name takes it over
    # A note alone comes with what is written anyway, unless there is none yet; one of what is deleted is of no use.
    is_noted = bool(ds.upgrade_policy) or isinstance(writes[found.lane], DeleteObject)
    return found if isinstance(found, SetOwner) and (ds.policies != _uids(found) or not is_noted) else None


def _uids(change: SetOwner) -> tuple[str, ...]:
    return (change.policy.uid,) if change.policy is not None else ()


def _owned(ds: DaemonSetView, snapshot: Snapshot, policies: PoliciesInForce) -> SetOwner | None:
    """Return what has a DaemonSet outlive its NVIDIADriver, or go with it where removals are to be at once; the driver of a host
    goes under no virtual machine. Without a ClusterPolicy there is none that could own it.
    """
    each = next((one for one in (*policies.active, *policies.going) if ds.is_owned_by(one.view.uid)), None)
    view = policies.policy.view
    if each is None or ds.owner is None or view is None or view.deleting:
        return None
    at_once = policies.policy.upgrades.rollout.remove_at_once and not is_hosts_daemonset(ds, snapshot.namespace)
    said = ds.upgrade_policy if at_once or (each.problems and ds.upgrade_policy) else _upgrades(each)
    wanted = SetOwner("DaemonSet", ds.ref, ds.owner.uid, None if at_once else view.ref,
                      {} if said == ds.upgrade_policy else {names.VALID_UPGRADE_POLICY: said},
                      why="its drivers go with its NVIDIADriver, at once" if at_once else "its drivers outlive its NVIDIADriver")
    return wanted if wanted.annotations or ds.policies != _uids(wanted) else None


def _upgrades(each: ActiveDriver) -> str:
    """Return how the drivers of an NVIDIADriver go. Of one that never could be followed nobody knows whether anybody may be
    evicted for that.
    """
    unknown = bool(each.problems) and not kept(each.view.body).version
    return remember(msgspec.structs.replace(each.upgrades, auto_upgrade=False) if unknown else each.upgrades)


def _gone(ds: DaemonSetView, snapshot: Snapshot, policies: PoliciesInForce, *, goes: bool) -> SetOwner | PatchAnnotations | None:
    """Return what is noted of how the NVIDIADriver of a DaemonSet went, once that is seen; and, at once, of how it was to be
    upgraded last, where an edit just before could not be noted.
    """
    if not is_ownerless(ds, snapshot.namespace):
        return None
    match departure(ds, snapshot):
        case Departure.LEFT if ds.upgrade_policy or ds.policies:
            noted: Mapping[str, str | None] = {names.VALID_UPGRADE_POLICY: None} if ds.upgrade_policy else {}
            return SetOwner("DaemonSet", ds.ref, "", None, noted, why="its NVIDIADriver left it behind")
        case Departure.REMOVED if not ds.drivers_go:
            last = next((each for each in policies.departed if each.view.name == ds.node_selector[names.DRIVER_OWNER]), None)
            said = _upgrades(last) if last is not None and not last.problems else ds.upgrade_policy
            news = {names.VALID_UPGRADE_POLICY: said} if said != ds.upgrade_policy else {}
            told = ({names.DRIVERS_GO: "true"} if goes else {}) | news
            return PatchAnnotations("DaemonSet", ds.ref, told, why="its NVIDIADriver is gone") if told else None
        case None if ds.policies and is_superseded(ds, snapshot):
            return SetOwner("DaemonSet", ds.ref, "", None, why="another NVIDIADriver has the name of its own")
    return None
