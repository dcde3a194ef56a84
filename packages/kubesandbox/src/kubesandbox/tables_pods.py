"""The table of pods: READY, and a STATUS that says what the pod is about. Facts from kubectl's server-side printer."""

from __future__ import annotations

from typing import Any, Final

from kubesandbox import durations
from kubesandbox.table_columns import Row, columns

Object = dict[str, Any]

COLUMNS: Final = columns("Name", "Ready", "Status", "Restarts", "Age",
                         wide=("IP", "Node", "Nominated Node", "Readiness Gates"))


def cells(pod: Object, now: float) -> Row:
    """Return a pod's row."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    statuses = status.get("containerStatuses") or ()
    ready = sum(bool(one.get("ready")) and "running" in one.get("state", {}) for one in statuses)
    return (
        pod["metadata"]["name"], f"{ready}/{len(spec.get('containers', ()))}", summary(pod), _restarts(status, now),
        durations.since(pod["metadata"].get("creationTimestamp"), now), status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>", status.get("nominatedNodeName") or "<none>", _gates(spec, status),
    )


def summary(pod: Object) -> str:
    """Return a pod's STATUS: its phase, or the reason that says more."""
    status = pod.get("status", {})
    reason: str = status.get("reason") or status.get("phase") or "Unknown"
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    starting = _initialising(pod)
    if starting is not None and conditions.get("Initialized", {}).get("status") != "True":
        reason = starting
    else:
        reason = _running(status, reason, conditions)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _initialising(pod: Object) -> str | None:
    every = pod.get("spec", {}).get("initContainers") or ()
    sidecars = {one["name"] for one in every if one.get("restartPolicy") == "Always"}
    for place, one in enumerate(pod.get("status", {}).get("initContainerStatuses") or ()):
        state = one.get("state", {})
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if (ended is not None and ended.get("exitCode", 0) == 0) or (one["name"] in sidecars and one.get("started")):
            continue
        if ended is not None:
            return "Init:" + _end(ended)
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{place}/{len(every)}"
    return None


def _running(status: Object, reason: str, conditions: Object) -> str:
    has_running = False
    for one in reversed(status.get("containerStatuses") or ()):
        state = one.get("state", {})
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated"):
            reason = _end(state["terminated"])
        elif one.get("ready") and "running" in state:
            has_running = True
    if reason == "Completed" and has_running:
        return "Running" if conditions.get("Ready", {}).get("status") == "True" else "NotReady"
    return reason


def _end(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _restarts(status: Object, now: float) -> str:
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    count = sum(one.get("restartCount", 0) for one in every)
    ends = [one.get("lastState", {}).get("terminated", {}).get("finishedAt") for one in every]
    latest = max(filter(None, ends), default=None)
    return f"{count} ({durations.since(latest, now)} ago)" if count and latest else str(count)


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return "<none>"
    true = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    return f"{sum(gate['conditionType'] in true for gate in gates)}/{len(gates)}"
