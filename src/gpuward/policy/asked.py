"""Who asked for a driver: the field manager that changed its settings last, as far as managedFields tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuward import names

_LIMITS: Final = frozenset({"f:upgradePolicy", "."})
"""Fields beside the driver's own: when it is upgraded, and nothing."""
_NOBODY: Final = frozenset({"", "before-first-apply", names.FIELD_MANAGER})
"""Managers that did not ask: ourselves, and the one that Kubernetes names for all who wrote before it was told who they are."""


def asked_by(body: Mapping[str, Any], *path: str) -> str:
    """Return who changed a field below the path of a custom resource last, its upgrade policy aside; empty where nobody tells.

    One who changes something else that is theirs at a later time passes for the one who asked: managers have one time for all.
    """
    metadata = body.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, Mapping) else None
    found = [entry for entry in entries or () if isinstance(entry, Mapping) and _changed(entry, path)]
    last = max(found, key=lambda entry: str(entry.get("time") or ""), default=None)
    return str(last["manager"]) if last is not None else ""


def _changed(entry: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    manager = entry.get("manager")
    if not isinstance(manager, str) or manager in _NOBODY or entry.get("subresource"):
        return False
    fields: Any = entry.get("fieldsV1")
    for key in path:
        fields = fields.get(f"f:{key}") if isinstance(fields, Mapping) else None
    return isinstance(fields, Mapping) and bool(fields.keys() - _LIMITS)
