"""Small parts that Kubernetes objects are put together from. Every call returns fresh dicts, so that a caller may change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

EXECUTABLE_BY_OWNER = 0o700
EXECUTABLE_BY_ALL = 0o755


def metadata(name: str, namespace: str = "", labels: Mapping[str, str] | None = None,
             annotations: Mapping[str, str] | None = None) -> Json:
    """Return the metadata of an object, without the keys that would be empty."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **({"labels": dict(labels)} if labels else {}),
        **({"annotations": dict(annotations)} if annotations else {}),
    }


def env(name: str, value: str) -> Json:
    """Return an environment variable with a literal value."""
    return {"name": name, "value": value}


def field_env(name: str, field_path: str) -> Json:
    """Return an environment variable that the kubelet fills from a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def node_name_env() -> Json:
    """Return NODE_NAME, filled with the name of the pod's node."""
    return field_env("NODE_NAME", "spec.nodeName")


def namespace_env(name: str = "OPERATOR_NAMESPACE") -> Json:
    """Return a variable filled with the pod's namespace, which is the operator's."""
    return field_env(name, "metadata.namespace")


def mount(name: str, path: str, *, propagation: str = "", read_only: bool = False, sub_path: str = "") -> Json:
    """Return a volume mount; `propagation` is HostToContainer or Bidirectional."""
    return {
        "name": name,
        "mountPath": path,
        **({"mountPropagation": propagation} if propagation else {}),
        **({"readOnly": True} if read_only else {}),
        **({"subPath": sub_path} if sub_path else {}),
    }


def host_path(name: str, path: str, kind: str = "") -> Json:
    """Return a volume of the host; `kind` is a hostPath type such as DirectoryOrCreate, empty for no check."""
    return {"name": name, "hostPath": {"path": path, **({"type": kind} if kind else {})}}


def config_map_volume(name: str, config_map: str, *, items: Iterable[tuple[str, str]] = (), mode: int | None = None) -> Json:
    """Return a volume of a ConfigMap; `items` are pairs of key and path, none of them meaning all keys."""
    return {"name": name, "configMap": {
        "name": config_map,
        **({"defaultMode": mode} if mode is not None else {}),
        **_items(items),
    }}


def volume_name(config_map: str) -> str:
    """Return what the volume of somebody's ConfigMap is called: as the ConfigMap, if that can be a volume's name.

    ConfigMaps may have dots and 253 characters in their names, volumes no dots and 63.
    """
    return config_map.replace(".", "-")[:63].rstrip("-")


def secret_volume(name: str, secret: str, items: Iterable[tuple[str, str]]) -> Json:
    """Return a volume of a Secret with the given pairs of key and path."""
    return {"name": name, "secret": {"secretName": secret, **_items(items)}}


def _items(items: Iterable[tuple[str, str]]) -> Json:
    listed = [{"key": key, "path": path} for key, path in items]
    return {"items": listed} if listed else {}


def empty_dir(name: str) -> Json:
    """Return a volume that lives as long as its pod."""
    return {"name": name, "emptyDir": {}}


def privileged(*, se_linux: bool = False) -> Json:
    """Return the security context of a container that works on the host; `se_linux` pins SELinux level s0."""
    return {"privileged": True, **({"seLinuxOptions": {"level": "s0"}} if se_linux else {})}


def exec_action(*command: str) -> Json:
    """Return the part of a probe or a lifecycle hook that runs a command in the container."""
    return {"exec": {"command": list(command)}}


def config_map(namespace: str, name: str, data: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Json:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, namespace, labels), "data": dict(data)}


def service(meta: Json, port: Json, *, kind: str = "", traffic_policy: str = "") -> Json:
    """Return a Service in front of the pods labelled `app: <its name>`; empty `kind` and `traffic_policy` are left to the API."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {
        **({"type": kind} if kind else {}),
        **({"internalTrafficPolicy": traffic_policy} if traffic_policy else {}),
        "selector": {"app": meta["name"]},
        "ports": [port],
    }}


def service_port(name: str, port: int) -> Json:
    """Return a TCP port of a Service that the pods serve under the same number."""
    return {"name": name, "port": port, "protocol": "TCP", "targetPort": port}


def service_monitor(namespace: str, name: str, port: str, job_label: str) -> Json:
    """Return the Prometheus operator's ServiceMonitor for `/metrics` of the Service of the same name."""
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
            "metadata": metadata(name, namespace, {"app": name}), "spec": {
                "endpoints": [{"path": "/metrics", "port": port}],
                "jobLabel": job_label,
                "namespaceSelector": {"matchNames": [namespace]},
                "selector": {"matchLabels": {"app": name}},
            }}


def find(items: Sequence[Json], name: str) -> Json:
    """Return the container or volume of that name; KeyError when there is none."""
    for item in items:
        if item["name"] == name:
            return item
    raise KeyError(name)
