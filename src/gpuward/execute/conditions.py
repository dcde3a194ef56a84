"""Patch the conditions of nodes, which are others' too: a strategic merge patch of ours alone, at the version that was seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuward import errors
from gpuward.execute.world import CalledOff, World, settle_after
from gpuward.kube import resources
from gpuward.model.actions import PatchConditions
from gpuward.model.record import format_time
from gpuward.model.rights import NODE_CONDITIONS
from gpuward.model.told import TRUE, NewCondition, ToldCondition
from gpuward.model.views import Ref

_NO_RIGHT = 'cannot patch resource "nodes/status"'


async def patch_conditions(world: World, action: PatchConditions) -> None:
    """Have a node's conditions follow.

    Raises:
        CalledOff: the node is another one by now, or anything about it has changed since: it is decided anew.
    """
    cluster, name = world.cluster, action.node.name
    node = cluster.nodes.get(name)
    if node is None or node.uid != action.node.uid or node.told != action.seen or node.upgrade_label != action.state:
        raise CalledOff(f"node {name} has changed since")
    patch = conditions_patch(action.node, node.version, action.put, action.gone, action.seen, format_time(world.clock.now()))
    try:
        answer = await cluster.client.patch_merge(resources.NODES, name, patch, subresource="status", strategic=True)
    except errors.GpuwardError as error:
        if isinstance(error, errors.Forbidden) and _NO_RIGHT in str(error):
            cluster.may_list(NODE_CONDITIONS, False)
        await settle_after(error, world, resources.NODES, cluster.nodes, name)
        if isinstance(error, errors.Conflict):
            raise CalledOff(f"node {name} has changed since") from error
        raise
    cluster.nodes.apply_response(answer.body)
    if NODE_CONDITIONS in cluster.observe().forbidden:
        cluster.may_list(NODE_CONDITIONS, True)


def conditions_patch(
    node: Ref, version: str, put: Iterable[NewCondition], gone: Iterable[str], seen: Iterable[ToldCondition], now: str
) -> dict[str, Any]:
    """Return a strategic merge patch of a node's status; the time of a condition moves only when its status does."""
    true = {one.type for one in seen if one.status == TRUE}
    changes: list[dict[str, str]] = []
    for new in put:
        turned = {} if new.type in true else {"lastTransitionTime": now}
        changes.append({"type": new.type, "status": TRUE, "reason": new.reason, "message": new.message,
                        "lastHeartbeatTime": now, **turned})
    changes += [{"$patch": "delete", "type": kind} for kind in gone]
    return {"metadata": {"uid": node.uid, "resourceVersion": version}, "status": {"conditions": changes}}
