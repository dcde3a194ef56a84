"""What the API server decides about a built-in object at the moment of its creation.

Statuses start empty, pods get their quality of service, services their address, jobs their selector. Facts from Kubernetes'
registry strategies (v1.34). What admission adds to pods is in `admission`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import defaults, kubetypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.resources import Resource

Object = dict[str, Any]

_KEEPS_STATUS: Final = frozenset({"nodes", "persistentvolumes"})
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation as which a field of an older version of DaemonSets is shown: how often the template has changed."""
_EVICTING: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def begin(resource: Resource, obj: Object) -> None:
    """Complete a decoded object that is about to be created, in place."""
    type_name = kubetypes.type_of(resource.group, resource.kind)
    if "status" in resource.subresources and resource.key not in _KEEPS_STATUS and type_name is not None:
        status = (kubetypes.fields(type_name) or {}).get("status")
        obj["status"] = kubetypes.zero(status.type) if status is not None else {}
    special = _SPECIAL.get(resource.key)
    if special is not None:
        special(obj)


def renew(resource: Resource, new: Object, old: Object) -> None:
    """Complete a decoded object that is about to replace another, in place."""
    if resource.key != "daemonsets.apps":
        return
    count = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, 0))
    changed = old["spec"].get("template") != new["spec"].get("template")
    _count_template(new, count + changed)


def _daemon_set(obj: Object) -> None:
    _count_template(obj, 1)


def _count_template(obj: Object, count: int) -> None:
    obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}


def quality_of_service(spec: Object) -> str:
    """Return a pod's QoS class: Guaranteed, Burstable or BestEffort."""
    some = False
    every = True
    for container in defaults.containers(spec):
        needs = container.get("resources") or {}
        limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
        for name in ("cpu", "memory"):
            some = some or name in limits or name in requests
            every = every and name in limits and requests.get(name, limits[name]) == limits[name]
    if not some:
        return "BestEffort"
    return "Guaranteed" if every else "Burstable"


def _pod(obj: Object) -> None:
    spec = obj["spec"]
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    tolerations = spec.setdefault("tolerations", [])
    for key in _EVICTING:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _covers(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _service(obj: Object) -> None:
    spec = obj["spec"]
    number = int(obj["metadata"]["uid"][:8], 16)
    if spec.get("type") != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = f"10.{96 + number % 16}.{number // 16 % 256}.{number // 4096 % 254 + 1}"
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        for place, port in enumerate(spec.get("ports") or ()):
            port.setdefault("nodePort", 30000 + (number + place) % 2768)


def _job(obj: Object) -> None:
    spec, meta = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    own = {"batch.kubernetes.io/controller-uid": meta["uid"], "batch.kubernetes.io/job-name": meta["name"],
           "controller-uid": meta["uid"], "job-name": meta["name"]}
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}})
    if isinstance(spec.get("template"), dict):
        template = spec["template"].setdefault("metadata", {})
        template["labels"] = {**(template.get("labels") or {}), **own}


def _namespace(obj: Object) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _secret(obj: Object) -> None:
    for name, text in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


_SPECIAL: Final[dict[str, Callable[[Object], None]]] = {
    "pods": _pod, "daemonsets.apps": _daemon_set, "services": _service, "jobs.batch": _job, "namespaces": _namespace,
    "secrets": _secret,
}
