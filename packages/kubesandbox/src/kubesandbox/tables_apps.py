"""The tables of workloads: DaemonSets, Deployments, ReplicaSets, StatefulSets, Jobs.

Facts from kubectl's server-side printers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import durations
from kubesandbox.table_columns import Column, Row, columns, selector

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

_WIDE: Final = ("Containers", "Images", "Selector")


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _age(obj: Object, now: float) -> str:
    return durations.since(obj["metadata"].get("creationTimestamp"), now)


def _wide(obj: Object) -> tuple[str, str, str]:
    spec = obj["spec"]
    every = spec.get("template", {}).get("spec", {}).get("containers") or ()
    chosen = selector((spec.get("selector") or {}).get("matchLabels"))
    return ",".join(one["name"] for one in every), ",".join(one.get("image", "") for one in every), chosen


def _daemon_set(obj: Object, now: float) -> Row:
    status = obj.get("status", {})
    numbers = [status.get(name, 0) for name in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady",
                                                "updatedNumberScheduled", "numberAvailable")]
    nodes = selector(obj["spec"].get("template", {}).get("spec", {}).get("nodeSelector"))
    return _name(obj), *numbers, nodes, _age(obj, now), *_wide(obj)


def _deployment(obj: Object, now: float) -> Row:
    status = obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{obj['spec'].get('replicas', 1)}"
    return (_name(obj), ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0), _age(obj, now),
            *_wide(obj))


def _replica_set(obj: Object, now: float) -> Row:
    status = obj.get("status", {})
    return (_name(obj), obj["spec"].get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0),
            _age(obj, now), *_wide(obj))


def _stateful_set(obj: Object, now: float) -> Row:
    ready = f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 1)}"
    return _name(obj), ready, _age(obj, now), *_wide(obj)[:2]


def _job(obj: Object, now: float) -> Row:
    status, spec = obj.get("status", {}), obj["spec"]
    wanted = spec.get("completions") or (f"1 of {spec['parallelism']}" if spec.get("parallelism", 1) > 1 else 1)
    return (_name(obj), _job_status(obj), f"{status.get('succeeded', 0)}/{wanted}", _job_duration(status, now),
            _age(obj, now), *_wide(obj))


def _job_status(obj: Object) -> str:
    true = {one["type"] for one in obj.get("status", {}).get("conditions") or () if one["status"] == "True"}
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in true:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition, word in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"),
                            ("SuccessCriteriaMet", "SuccessCriteriaMet")):
        if condition in true:
            return word
    return "Running"


def _job_duration(status: Object, now: float) -> str:
    start = status.get("startTime")
    if not start:
        return ""
    end = status.get("completionTime")
    return durations.since(start, datetime.fromisoformat(end).timestamp() if end else now)


LAYOUTS: Final[dict[str, tuple[tuple[Column, ...], Callable[[Object, float], Row]]]] = {
    "daemonsets.apps": (columns("Name", "#Desired", "#Current", "#Ready", "#Up-to-date", "#Available", "Node Selector", "Age",
                                wide=_WIDE), _daemon_set),
    "deployments.apps": (columns("Name", "Ready", "#Up-to-date", "#Available", "Age", wide=_WIDE), _deployment),
    "replicasets.apps": (columns("Name", "#Desired", "#Current", "#Ready", "Age", wide=_WIDE), _replica_set),
    "statefulsets.apps": (columns("Name", "Ready", "Age", wide=_WIDE[:2]), _stateful_set),
    "jobs.batch": (columns("Name", "Status", "Completions", "Duration", "Age", wide=_WIDE), _job),
}
