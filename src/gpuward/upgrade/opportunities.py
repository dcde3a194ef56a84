"""Whether a node waits until nobody uses its GPUs, as a RolloutPolicy may want it: nobody is evicted before its time is up."""

from __future__ import annotations

import msgspec

from gpuward.model.opportunities import IdleAwaited, OpportunisticSettings
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import Record
from gpuward.model.states import State
from gpuward.upgrade.facts import NodeFacts


def with_idleness(node: NodeFacts, record: Record, policy: UpgradePolicy, now: float) -> Record:
    """Return the record of a node that waits with since when it does, and since when nobody has used its GPUs."""
    if node.state is not State.UPGRADE_REQUIRED:
        return record
    if policy.rollout.opportunistic is None:  # who sets it again must not be told of a time in which nobody looked
        return msgspec.structs.replace(record, idle=0.0) if record.idle else record
    since = max(record.idle, node.watched_since) if record.idle else now
    idle = since if node.to_evict.empty else 0.0
    asked = record.asked or record.since or now
    same = (asked, idle) == (record.asked, record.idle)
    return record if same else msgspec.structs.replace(record, asked=asked, idle=idle)


def idle_awaited(node: NodeFacts, policy: UpgradePolicy, now: float) -> Hold | None:
    """Return what a node waits for that would start; None where it may, or nothing has to leave it."""
    settings = policy.rollout.opportunistic
    if settings is None or node.requested or node.restart_only:
        return None
    evicts = (node.record.asked or node.record.since or now) + settings.until
    pods = (*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked))
    idle = max(node.record.idle, node.watched_since) if node.record.idle else now
    ready = evicts if pods else min(idle + settings.idle_for, evicts)
    if now >= ready:
        return None
    told = IdleAwaited(settings.idle_for, evicts, pods[0].ref if pods else None, len(pods))
    return Hold(told, node.record.since, ready)


def evicts_nobody(node: NodeFacts, policy: UpgradePolicy, now: float) -> bool:
    """Tell whether a node that was empty when it started, and still has its driver, is left to pods that came meanwhile."""
    settings: OpportunisticSettings | None = policy.rollout.opportunistic
    if settings is None or not node.record.asked or not node.untouched:
        return False
    return now < node.record.asked + settings.until and not node.to_evict.empty
