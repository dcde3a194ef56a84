"""Events in the two versions that the API server serves of the same objects: core/v1, which is stored, and events.k8s.io/v1."""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]

_NAMES: Final = (
    ("involvedObject", "regarding"), ("message", "note"), ("source", "deprecatedSource"), ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"), ("lastTimestamp", "deprecatedLastTimestamp"),
    ("reportingComponent", "reportingController"),
)
_OUT: Final = dict(_NAMES)
_IN: Final = {new: old for old, new in _NAMES}


def outward(event: Object) -> Object:
    """Return a stored event as events.k8s.io/v1 has it."""
    return {_OUT.get(name, name): value for name, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def inward(event: Object) -> Object:
    """Return an event of events.k8s.io/v1 as it is stored."""
    return {_IN.get(name, name): value for name, value in event.items()} | {"apiVersion": "v1"}
