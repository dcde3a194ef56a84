"""The scale subresource of Deployments, ReplicaSets and StatefulSets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubesandbox import errors

if TYPE_CHECKING:
    from kubesandbox.catalog import Target
    from kubesandbox.store import Store

Object = dict[str, Any]


def read(store: Store, target: Target) -> Object:
    """Return an object's Scale."""
    obj = store.get(target.served.storage_key, target.namespace, target.name or "")
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    meta = {name: obj["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
            "spec": {"replicas": obj["spec"].get("replicas", 1)},
            "status": {"replicas": obj.get("status", {}).get("replicas", 0),
                       "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items()))}}


def write(store: Store, target: Target, scale: Object) -> Object:
    """Set the number of replicas; raise `errors.Conflict` when the Scale's resourceVersion is not the object's."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise errors.Invalid(f'Scale.autoscaling "{target.name}" is invalid: spec.replicas: Invalid value: {replicas}: must be '
                             "greater than or equal to 0")

    def change(obj: Object) -> None:
        obj["spec"]["replicas"] = replicas
        if scale["metadata"].get("resourceVersion"):
            obj["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"]

    store.modify(target.served.storage_key, target.namespace, target.name or "", change)
    return read(store, target)
