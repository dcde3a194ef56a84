"""Builders for what contract tests create; they read like the sentence that they mean."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a pod; one on a node that is not there is left alone by every kubelet."""
    found = {"containers": [{"name": "main", "image": "registry.example/app:1"}], **spec}
    if node:
        found["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": found}


def workload(kind: str, name: str, *, template: Object | None = None, **spec: Any) -> Object:
    """Return a Deployment, ReplicaSet or DaemonSet whose pods have the label `app`; `template` is added to their spec."""
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "containers": [{"name": "main", "image": "registry.example/app:1"}], **(template or {})}}, **spec}}


def budget(name: str, app: str, **spec: Any) -> Object:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}


def claim(name: str) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {
        "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}}


def owned_by(owner: Object, *, blocks: bool = False) -> list[Object]:
    """Return the owner references of an object that belongs to another."""
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
             "uid": owner["metadata"]["uid"]}
    return [{**found, "blockOwnerDeletion": True} if blocks else found]


def names(listed: Any) -> list[str]:
    """Return the names in a list, or in the body of one."""
    return [one["metadata"]["name"] for one in (listed["items"] if isinstance(listed, dict) else listed)]


def event(name: str, namespace: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Normal", "reason": "Tested",
            "message": "a test", "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
            "source": {"component": "test"}, **more}
