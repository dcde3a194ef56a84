"""Our cordon on a node whose driver goes waits until nothing offers its GPUs any more: for a time, and then it is trouble."""

from __future__ import annotations

import msgspec

from gpuward.model import causes
from gpuward.model.leaving import brings_hosts_driver
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, TRANSITIONS, State
from gpuward.model.views import PodView
from gpuward.model.waits import DriverFollows, OperandPod, PluginFirst
from gpuward.upgrade.drain import fail
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Move, Step, Wait

Leaves = OperandPod | PluginFirst | DriverFollows


def offers_gpus(node: NodeFacts, released: Move, policy: UpgradePolicy, now: float) -> Step | None:
    """Return what the cordon of a node that is released waits for: without it pods would be given GPUs that no driver serves.
    An upgrade that is under way fails once the time is up, and gives its place to others; that tells nothing of the new driver.
    """
    plugin = node.device_plugin_going
    if plugin is None or not (released.uncordon and node.unschedulable):
        return None
    what, since = OperandPod(plugin.ref, Reason.DEVICE_PLUGIN_STOPPING), node.record.since
    hold = awaited(what, node, policy, since, now)
    if hold.reason is not Reason.DOES_NOT_STOP or node.state not in IN_PROGRESS or State.FAILED not in TRANSITIONS[node.state]:
        return Wait(hold, retry_at=hold.until)
    return _failed(node, plugin, hold, now)


def driver_goes(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step | None:
    """Return what the cordon of a node waits for whose new driver goes again by a change of its labels: that, and before it what
    offers its GPUs. The upgrade fails once the time is up; that tells nothing of the new driver.
    """
    if node.leaving is None:
        return None
    hold = awaited(waited_for(node, node.leaving), node, policy, node.record.changing, now)
    return Wait(hold, retry_at=hold.until) if hold.reason is not Reason.DOES_NOT_STOP else _failed(node, node.leaving, hold, now)


def waited_for(node: NodeFacts, pod: PodView) -> Leaves:
    """Say what a node waits for whose labels change: what offers its GPUs stops first, and then its driver."""
    if pod == node.device_plugin_going:
        return waits_for(pod) if node.driver_follows else OperandPod(pod.ref, Reason.DEVICE_PLUGIN_STOPPING)
    follows = node.driver_follows and brings_hosts_driver(pod, pod.namespace)
    return DriverFollows(pod.ref) if follows else OperandPod(pod.ref, Reason.DRIVER_STOPPING)


def waits_for(plugin: PodView) -> PluginFirst:
    """Return the wait for a pod that offers a node's GPUs, or would once what its init containers wait for is there."""
    begun = plugin.begun and (plugin.progress is None or not plugin.progress.init)
    return PluginFirst(plugin.ref, plugin.ready or begun)


def _failed(node: NodeFacts, pod: PodView, hold: Hold, now: float) -> Move:
    failed = fail(node, causes.still_offers(pod.name, now - hold.since), now)
    return msgspec.structs.replace(failed, failure=failed.failure and msgspec.structs.replace(failed.failure, untried=True))


def awaited(what: Leaves, node: NodeFacts, policy: UpgradePolicy, since: float, now: float) -> Hold:
    """Return the wait for a pod that has to stop before a node is uncordoned, which its time may be up for."""
    seconds = policy.rollout.deadline(State.POD_RESTART_REQUIRED)
    if _has_failed_for(what, node) or (seconds and now >= since + seconds):
        return Hold(OperandPod(what.pod, Reason.DOES_NOT_STOP), since)
    return Hold(what, since, since + seconds if seconds else None)


def _has_failed_for(what: Leaves, node: NodeFacts) -> bool:
    """Tell whether an upgrade has failed for this pod; a pause takes the label that says so."""
    failure, failed = node.record.failure, State.FAILED in (node.state, node.record.state)
    return failed and failure is not None and failure.cause.startswith(causes.its_plugin(what.pod.name))
