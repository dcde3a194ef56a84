"""What a node says of itself that is not Ready, or is short of something, and the scheduler of a driver pod without a node: the
operator reads no more of it than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuward.errors import ApiError, Unreachable
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.driver import is_driver_pod
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView

_SHORTAGES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_SHORT: Final = "; meanwhile its kubelet may evict pods, refuse new ones and fail to pull images"


async def words_of_readiness(client: Client, node: NodeView) -> tuple[str, ...]:
    """Return since when a node is not Ready or short of something, and why; nothing where it is well, or cannot be read."""
    if node.ready is True and not any(node.conditions.get(kind) == "True" for kind in _SHORTAGES):
        return ()
    try:
        body = (await client.get(resources.NODES, node.name)).object()
    except (ApiError, Unreachable):
        return ()
    conditions = (body.get("status") or {}).get("conditions") or ()
    return (*(_told(one) for one in conditions if one.get("type") == "Ready" and one.get("status") != "True"),
            *(_told(one) + _SHORT for one in conditions if one.get("type") in _SHORTAGES and one.get("status") == "True"))


def _told(condition: Mapping[str, Any]) -> str:
    why = ": ".join(filter(None, (condition.get("reason"), condition.get("message")))) or "it gives no reason"
    since = condition.get("lastTransitionTime") or "an unknown time"
    return f"its condition {condition['type']} is {condition['status']} since {since}: {why}"


async def words_of_scheduler(client: Client, snapshot: Snapshot, node: str) -> tuple[str, ...]:
    """Return why no place is found for a node's driver pod; nothing where it has one, or cannot be read."""
    pods = (pod for pod in snapshot.pods.get("", ()) if pod.meant_for == node)
    pod = next((pod for pod in pods if is_driver_pod(pod, snapshot.namespace)), None)
    if pod is None:
        return ()
    try:
        body = (await client.get(resources.PODS, pod.name, pod.namespace)).object()
    except (ApiError, Unreachable):
        return ()
    conditions = (body.get("status") or {}).get("conditions") or ()
    return tuple(f"the scheduler finds no node for driver pod {pod.name}: {one['message']}" for one in conditions
                 if one.get("type") == "PodScheduled" and one.get("status") != "True" and one.get("message"))
