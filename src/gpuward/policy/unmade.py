"""Policies that are valid and ask for what cannot be made all the same, such as a Secret that is not there.

Only who renders manifests knows; everybody else, the command line too, reads it in the policy's status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import PolicyView

DRIVER_STATE: Final = "state-driver"
FAILED_MESSAGE: Final = "Failed to reconcile "
"""How the message of a ClusterPolicy begins that names one state and why its objects cannot be made."""
NOT_FOLLOWED: Final = "ReconcileFailed"
"""The reason of a policy that cannot be followed, or not in all of its states."""
CONFLICTING: Final = "ConflictingNodeSelector"
"""The reason of an NVIDIADriver that others are in the way of on a node, or that selects its nodes in a way that cannot be."""
CONFLICTS: Final = ("multiple NVIDIADrivers ", "multiple default NVIDIADrivers ")
"""How the message of an NVIDIADriver begins that others are in the way of."""
SYNCING_MESSAGE: Final = "Error syncing state "
"""How the message of an NVIDIADriver begins whose objects cannot be made."""
_STAYS: Final = re.compile(r"(?!DaemonSet )[A-Z]\w+ \S+ cannot be deleted: ")
"""What drivers needed before and may not be deleted, as a role: no driver wants for it."""


def why_unmade(view: PolicyView) -> str:
    """Return why the drivers of a policy, or nothing of it, could be made when last tried, by its status; empty if they could."""
    status: Mapping[str, Any] = view.body.get("status") or {}
    true = (one for one in status.get("conditions") or () if one.get("status") == "True")
    found = next((one for one in true if one.get("type") == "Error" and one.get("reason") in (NOT_FOLLOWED, CONFLICTING)), None)
    message = str(found.get("message") or "") if found is not None else ""
    conflicting, more, unmade = message.partition(f"; {SYNCING_MESSAGE}")
    if conflicting.startswith(CONFLICTS):
        return unmade.partition(": ")[2] if more else ""
    if found is not None and found.get("reason") == CONFLICTING:
        return ""
    of_driver = f"{FAILED_MESSAGE}{DRIVER_STATE}:"
    if message.startswith(FAILED_MESSAGE) and not message.startswith(of_driver):
        return ""
    why = message.partition(": ")[2] if message.startswith((of_driver, SYNCING_MESSAGE)) else message
    return "" if _STAYS.match(why) else why


def is_unmade(view: PolicyView) -> bool:
    """Tell whether the status of a policy says that its drivers, or nothing of it, could be made when that was last tried."""
    return bool(why_unmade(view))


def unless_unmade(upgrades: UpgradePolicy, view: PolicyView, kind: str) -> UpgradePolicy:
    """Return the upgrade policy of a policy; it starts nothing while what people ask for cannot be made."""
    if not upgrades.admit or not is_unmade(view):
        return upgrades
    return msgspec.structs.replace(upgrades, admit=False, invalid=f"{kind} {view.name}")
