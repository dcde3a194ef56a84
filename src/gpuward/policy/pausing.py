"""What has upgrades off under a policy, as its custom resource says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuward import names
from gpuward.model.switches import Switches
from gpuward.model.views import PolicyView
from gpuward.policy.annotated import annotation

FIELDS: Final = {
    "ClusterPolicy": "spec.driver.upgradePolicy.autoUpgrade",
    "NVIDIADriver": "spec.upgradePolicy.autoUpgrade",
}
"""The field of each kind that turns upgrades on and off."""


def switched_off(view: PolicyView, kind: str) -> Switches:
    """Say that an object turns upgrades off, and since when if that was `gpuward pause`."""
    paused = annotation(view.body, names.PAUSED_AT) if is_our_word(view.body, FIELDS[kind]) else ""
    return Switches(f"{kind} {view.name}", paused)


def is_our_word(body: Mapping[str, Any], field: str) -> bool:
    """Tell whether we were the last to change a field, as far as managedFields tell."""
    entries = body.get("metadata", {}).get("managedFields")
    return not entries or any(entry.get("manager") == names.FIELD_MANAGER and _has(entry, field) for entry in entries)


def _has(entry: Mapping[str, Any], field: str) -> bool:
    found: Any = entry.get("fieldsV1")
    for key in field.split("."):
        found = found.get(f"f:{key}") if isinstance(found, Mapping) else None
    return found is not None
