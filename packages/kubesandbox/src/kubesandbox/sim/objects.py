"""Small readings of Kubernetes objects that every controller of the simulation needs."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kubesandbox.store import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubesandbox.resources import Resource
    from kubesandbox.store import Store

Object = dict[str, Any]

FINISHED: Final = ("Succeeded", "Failed")
KUBELET_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions of a node that its kubelet reports; others' it leaves as they are."""


@lru_cache(maxsize=4096)
def _stamp(second: int) -> str:
    return timestamp(second)


def stamp(instant: float) -> str:
    """Write unix seconds as Kubernetes does; most of the instants in a status are equal, so they are kept."""
    return _stamp(int(instant))


def name_of(obj: Object) -> str:
    """Return metadata.name."""
    name: str = obj["metadata"]["name"]
    return name


def namespace_of(obj: Object) -> str:
    """Return metadata.namespace, empty for a cluster-scoped object."""
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def uid_of(obj: Object) -> str:
    """Return metadata.uid."""
    uid: str = obj["metadata"]["uid"]
    return uid


def labels_of(obj: Object) -> dict[str, str]:
    """Return the labels; not to be changed."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> dict[str, str]:
    """Return the annotations; not to be changed."""
    return obj["metadata"].get("annotations") or {}


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference of the controller, if there is one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def controller_uid(obj: Object) -> str:
    """Return the controller's uid, or an empty string."""
    owner = controller_of(obj)
    return owner["uid"] if owner else ""


def owned_by(owner: Object, resource: Resource) -> Object:
    """Return the reference that makes `owner` the controller of another object."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name_of(owner), "uid": uid_of(owner),
            "controller": True, "blockOwnerDeletion": True}


def disown(store: Store, resource_key: str, obj: Object, owner: str) -> None:
    """Take the references to an owner, by its uid, out of an object."""
    def change(found: Object) -> None:
        left = [one for one in found["metadata"].get("ownerReferences") or () if one["uid"] != owner]
        found["metadata"].pop("ownerReferences", None)
        if left:
            found["metadata"]["ownerReferences"] = left
    store.modify(resource_key, namespace_of(obj), name_of(obj), change)


def is_terminating(obj: Object) -> bool:
    """Tell whether the object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def node_of(pod: Object) -> str:
    """Return the node that a pod is bound to, or an empty string."""
    node: str = pod["spec"].get("nodeName") or ""
    return node


def phase_of(pod: Object) -> str:
    """Return the phase; a pod that no kubelet has seen is Pending."""
    phase: str = (pod.get("status") or {}).get("phase") or "Pending"
    return phase


def is_finished(pod: Object) -> bool:
    """Tell whether the pod's containers have ended for good."""
    return phase_of(pod) in FINISHED


def is_active(pod: Object) -> bool:
    """Tell whether the pod still counts for its controller: neither finished nor on its way out."""
    return not is_terminating(pod) and not is_finished(pod)


def condition(obj: Object, kind: str) -> Object | None:
    """Return a condition by its type."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            result: Object = found
            return result
    return None


def is_true(obj: Object, kind: str) -> bool:
    """Tell whether a condition says True."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def is_ready(obj: Object) -> bool:
    """Tell whether a pod or a node says that it is ready."""
    return is_true(obj, "Ready")


def available_at(pod: Object, min_ready_seconds: float) -> float:
    """Return from when on a ready pod counts as available (unix seconds); infinity while it is not ready."""
    found = condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return float("inf")
    return seconds(found["lastTransitionTime"]) + min_ready_seconds if min_ready_seconds else 0.0


def seconds(text: str) -> float:
    """Read an RFC 3339 timestamp as unix seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).timestamp()


def with_condition(conditions: Iterable[Object], wanted: Object, now: float) -> list[Object]:
    """Return the conditions with `wanted` put in; its time moves only when its status does."""
    result = []
    wanted = {**wanted, "lastTransitionTime": stamp(now)}
    for found in conditions:
        if found["type"] != wanted["type"]:
            result.append(found)
        elif found["status"] == wanted["status"]:
            wanted["lastTransitionTime"] = found.get("lastTransitionTime") or wanted["lastTransitionTime"]
    return [*result, wanted]


def share(value: int | str, total: int, *, round_up: bool) -> int:
    """Return an int-or-percent of a total, as budgets and rolling updates write it."""
    if isinstance(value, int):
        return value
    number = int(value.removesuffix("%"))
    if not value.endswith("%"):
        return number
    return -(-total * number // 100) if round_up else total * number // 100
