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
