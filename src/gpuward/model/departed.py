"""NVIDIADrivers that are gone, and whose drivers are still there.

Their driver DaemonSets have the ClusterPolicy for a second owner, so that the garbage collector leaves them. What else an
NVIDIADriver owned goes with it; but not where it was deleted with `--cascade=orphan`: by that the two are told apart. It is told
by the role of the pods' account: an account keeps whatever owner it has, so it may never have been the NVIDIADriver's. What was
left behind is noted, as anybody may tidy up the role.
"""

from __future__ import annotations

from enum import Enum, auto

from gpuward import names
from gpuward.model.driver import is_driver_daemonset
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView

_ROLES = "Role"


class Departure(Enum):
    """Say how an NVIDIADriver went whose DaemonSet is there."""

    LEFT = auto()
    """Its drivers are to run on until others replace them."""
    REMOVED = auto()
    """Its drivers are to go."""
    UNKNOWN = auto()
    """The garbage collector has yet to come by."""


def departure(ds: DaemonSetView, snapshot: Snapshot) -> Departure | None:
    """Return how the NVIDIADriver of a DaemonSet went; None where it is there, or another one has its name."""
    owner = ds.node_selector.get(names.DRIVER_OWNER, "")
    if not owner or ds.deleting or not is_driver_daemonset(ds, snapshot.namespace) or "NVIDIADriver" in snapshot.unlisted:
        return None
    there = [driver for driver in snapshot.drivers if driver.name == owner]
    if any(not driver.deleting for driver in there):
        return None
    if there or ds.owner is not None or _ROLES in snapshot.unlisted:
        return Departure.UNKNOWN
    if not ds.upgrade_policy:
        return Departure.LEFT
    role = snapshot.owned.get((_ROLES, ds.namespace, ds.account))
    if role is None or role.deleting:
        return Departure.REMOVED
    return Departure.UNKNOWN if role.owner_uid else Departure.LEFT


def removed_drivers(snapshot: Snapshot) -> dict[str, DaemonSetView]:
    """Return a DaemonSet of each NVIDIADriver that is gone and whose drivers are to go, by the NVIDIADriver's name."""
    found = (ds for ds in snapshot.daemonsets if departure(ds, snapshot) is Departure.REMOVED)
    return {ds.node_selector[names.DRIVER_OWNER]: ds for ds in sorted(found, key=lambda ds: ds.name, reverse=True)}
