"""NVIDIADrivers that are gone, and whose drivers are still there.

Their driver DaemonSets have the ClusterPolicy for a second owner, so that the garbage collector leaves them. What else an
NVIDIADriver owned goes with it; but not where it was deleted with `--cascade=orphan`: by that the two are told apart. It is told
by the role of the pods' account: an account keeps whatever owner it has, so it may never have been the NVIDIADriver's. What was
found is noted on the DaemonSet, as anybody may tidy up the role, or make it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from gpuward import names
from gpuward.model.driver import is_driver_daemonset, is_hosts_daemonset, is_ownerless
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView

ROLES = "Role"


class Departure(Enum):
    """Say how an NVIDIADriver went whose DaemonSet is there."""

    LEFT = auto()
    """Its drivers are to run on until others replace them."""
    REMOVED = auto()
    """Its drivers are to go."""
    UNKNOWN = auto()
    """The garbage collector has yet to come by, or what it did cannot be seen."""
SOON: Final = "its drivers begin to go half a minute later at the earliest, unless it is made again"
"""What the drivers of an NVIDIADriver wait for that is seen to be gone with them."""


def departure(ds: DaemonSetView, snapshot: Snapshot) -> Departure | None:
    """Return how the NVIDIADriver of a DaemonSet went; None where it is there, or another one has its name."""
    owner = ds.node_selector.get(names.DRIVER_OWNER, "")
    theirs = is_driver_daemonset(ds, snapshot.namespace) or is_hosts_daemonset(ds, snapshot.namespace)
    if not (owner and theirs) or ds.deleting or "NVIDIADriver" in snapshot.unlisted:
        return None
    there = [driver for driver in snapshot.drivers if driver.name == owner]
    if any(not driver.deleting for driver in there):
        return None
    if ds.owner is not None:
        return Departure.UNKNOWN
    role = snapshot.owned.get((ROLES, ds.namespace, ds.account))
    if there:  # a finalizer may keep it long after what it owned was orphaned
        left = role is not None and not (role.owner_uid or role.deleting or ds.drivers_go)
        return Departure.LEFT if left else Departure.UNKNOWN
    if not ds.upgrade_policy:
        return Departure.LEFT
    if ds.drivers_go:
        return Departure.REMOVED
    if ROLES in snapshot.unlisted:
        return Departure.UNKNOWN
    if role is None or role.deleting:
        return Departure.REMOVED
    return Departure.UNKNOWN if role.owner_uid else Departure.LEFT


def is_superseded(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    """Tell whether a DaemonSet was an NVIDIADriver's that is gone, and whose name another one has."""
    name = ds.node_selector.get(names.DRIVER_OWNER, "")
    return is_ownerless(ds, snapshot.namespace) and any(each.name == name and not each.deleting for each in snapshot.drivers)


def removed_drivers(snapshot: Snapshot) -> dict[str, DaemonSetView]:
    """Return a DaemonSet of each NVIDIADriver that is gone and whose drivers are to go, by the NVIDIADriver's name.

    No driver goes before that is noted: a role that is made again would take back what has begun. Those of hosts are no matter of
    upgrades.
    """
    return _by_name(ds for ds in snapshot.daemonsets if ds.drivers_go and is_driver_daemonset(ds, snapshot.namespace)
                    and departure(ds, snapshot) is Departure.REMOVED)


def unseen_departures(snapshot: Snapshot) -> dict[str, str]:
    """Return the NVIDIADrivers that are gone, and of which the operator has yet to see how they went, with what that waits for:
    it may not list roles; or with `SOON`, where that is not noted yet.
    """
    there, unlisted = {driver.name for driver in snapshot.drivers}, snapshot.unlisted.get(ROLES)
    found = {}
    for ds in snapshot.daemonsets:
        if is_hosts_daemonset(ds, snapshot.namespace):
            continue
        name, how = ds.node_selector.get(names.DRIVER_OWNER, ""), departure(ds, snapshot)
        if how is Departure.REMOVED and not ds.drivers_go:
            found[name] = SOON
        elif how is Departure.UNKNOWN and unlisted is not None and ds.owner is None and name not in there:
            found[name] = ("whether its drivers go, too, the roles that it owned tell, and roles cannot be listed"
                           f"{unlisted and ': '}{unlisted}")
    return found


def unjudged_departures(snapshot: Snapshot) -> frozenset[str]:
    """Return the NVIDIADrivers that are gone, and of which the garbage collector has yet to show how they went."""
    there = {driver.name for driver in snapshot.drivers}
    found = {ds.node_selector.get(names.DRIVER_OWNER, "") for ds in snapshot.daemonsets
             if is_driver_daemonset(ds, snapshot.namespace) and departure(ds, snapshot) is Departure.UNKNOWN}
    return frozenset(found - there)


def _by_name(found: Iterable[DaemonSetView]) -> dict[str, DaemonSetView]:
    return {ds.node_selector[names.DRIVER_OWNER]: ds for ds in sorted(found, key=lambda ds: ds.name, reverse=True)}
