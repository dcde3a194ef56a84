"""How objects end: graceful deletion of pods, finalizers, and the propagation policies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubesandbox.resources import Resource

Object = dict[str, Any]

FINALIZERS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
"""The finalizer that each propagation policy puts on the object, for the garbage collector to take away."""
DEFAULT_GRACE: Final = 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hold what a delete call asks for; `now` is in unix seconds, `grace_seconds` None means the pod's own."""

    now: float
    grace_seconds: int | None = None
    propagation: str | None = None


def is_complete(obj: Object) -> bool:
    """Tell whether nothing holds an object that is being deleted any longer."""
    meta = obj["metadata"]
    held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or _namespace_is_full(obj)
    return bool(meta.get("deletionTimestamp")) and not held


def mark(resource: Resource, old: Object, wanted: Wanted) -> Object:
    """Return the object as a delete call leaves it; see `is_complete` for whether it then is gone."""
    grace = _grace(resource, old, wanted.grace_seconds)
    meta = {**old["metadata"]}
    new = {**old, "metadata": meta}
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = _later(wanted.now, grace)
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
        if wanted.propagation in FINALIZERS:
            meta["finalizers"] = sorted({*(meta.get("finalizers") or ()), FINALIZERS[wanted.propagation]})
    elif wanted.grace_seconds is not None and grace < (meta.get("deletionGracePeriodSeconds") or 0):
        since = _seconds(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"]
        meta["deletionTimestamp"] = _later(since, grace)
        meta["deletionGracePeriodSeconds"] = grace
    if resource.key == "namespaces":
        new["status"] = {**old.get("status", {}), "phase": "Terminating"}
    return new


def _grace(resource: Resource, old: Object, asked: int | None) -> int:
    if resource.key != "pods":
        return 0
    spec = old.get("spec", {})
    if not spec.get("nodeName") or old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        # A negative period means "at once but not forced" to the API server.
        return asked if asked >= 0 else 1
    own: int = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return own


def _namespace_is_full(obj: Object) -> bool:
    return obj["kind"] == "Namespace" and bool(obj.get("spec", {}).get("finalizers"))


def _later(now: float, seconds: int) -> str:
    return datetime.fromtimestamp(int(now) + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
