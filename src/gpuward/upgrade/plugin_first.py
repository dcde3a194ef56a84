"""What offers a node's GPUs stops before its driver goes: no cordon keeps a pod away that names the node, or tolerates cordons.
A kubelet does, once nothing offers the GPUs; a pod that has come before that is seen by the last look, and leaves as others do.

The label is paused as NVIDIA's driver manager pauses it, which would do so a moment later, and gives it back. Where none comes to
do that, the upgrade does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward import names
from gpuward.model.pauses import paused, restored
from gpuward.model.plan import Hold
from gpuward.model.states import State
from gpuward.model.waits import Evicting
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress
from gpuward.upgrade.step import Wait
from gpuward.upgrade.still_offered import waits_for

STOPS_WITHIN: Final = 45.0
"""Seconds after which it is waited for no longer, as on hosts of virtual machines."""
REFUSED_WITHIN: Final = 5.0
"""Seconds within which a kubelet says so if it refuses a pod."""
_EMPTIED: Final = frozenset({State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED, State.POD_RESTART_REQUIRED})
"""States in which the driver is about to go."""


def plugin_first(node: NodeFacts, now: float) -> Wait | None:
    """Return the wait of a node whose driver is about to go for what offers its GPUs; None once that has stopped, or its time is
    up. On a node that is not ready nothing stops. What only restarts its driver keeps that loaded by what has it open.
    """
    if not node.node.ready or (node.restart_only and node.module_holders.pods):
        return None
    stopping = node.record.stopping
    if node.offering is not None and not stopping:
        labels = {names.DEPLOY_PLUGIN: paused(node.node.labels[names.DEPLOY_PLUGIN])}
        hold = Hold(waits_for(node.offering), now)
        return Wait(hold, labels=labels, stopping=now, recordon=not node.unschedulable, retry_at=now + STOPS_WITHIN)
    going = node.device_plugin_going
    if going is None or not stopping or now >= stopping + STOPS_WITHIN:
        return None
    return Wait(Hold(waits_for(going), stopping), recordon=not node.unschedulable, retry_at=stopping + STOPS_WITHIN)


def about_to_be_refused(node: NodeFacts, now: float) -> Wait | None:
    """Return the wait for pods for which the node would fail, as long as a kubelet may refuse them yet: a moment after
    they came.
    """
    pods = [blocked.pod for blocked in node.to_evict.blocked]
    ends = [pod.created + REFUSED_WITHIN for pod in pods if pod.phase == "Pending"]
    if node.to_evict.pods or not pods or len(ends) < len(pods) or not now < max(ends) <= now + 2 * REFUSED_WITHIN:
        return None
    return Wait(Hold(Evicting(pods[0].ref, len(pods)), node.record.since), recordon=not node.unschedulable, retry_at=max(ends))


def offering_again(path: NodeProgress) -> NodeProgress:
    """Return a node's path with the label given back that was paused, where its driver does not go: the one that it has serves,
    or none comes whose driver manager would do so. It stays with our cordon, in a pause too: a deletion of the driver pod that
    had no answer may be on its way.
    """
    node, value = path.node, path.node.node.labels.get(names.DEPLOY_PLUGIN, "")
    going = node.state in _EMPTIED and node.unschedulable
    if not node.record.stopping or going:
        return path
    given = restored(value) != value
    if given and not (node.loaded or (node.driver is None and not node.selected)):
        return path
    if not (given or path.entered):
        return path
    record = msgspec.structs.replace(node.record, stopping=0.0)
    labels = {**path.labels, names.DEPLOY_PLUGIN: restored(value)} if given else path.labels
    return msgspec.structs.replace(path, node=msgspec.structs.replace(node, record=record), labels=labels, adopted=True)
