"""Whether a node waits until nobody uses its GPUs, as a RolloutPolicy may want it: nobody is evicted before its time is up."""

from __future__ import annotations

import msgspec

from gpuward.model.opportunities import OpportunisticSettings
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
    # What is written is cut off at milliseconds: a hair more than what is remembered would be written again in each pass.
    later = not record.idle or node.watched_since > record.idle + 0.002
    since = (node.watched_since if record.idle else now) if later else record.idle
    idle = since if node.to_evict.empty else 0.0
    return record if idle == record.idle else msgspec.structs.replace(record, idle=idle)


def evicts_nobody(node: NodeFacts, policy: UpgradePolicy, now: float) -> bool:
    """Tell whether a node that was empty when it started, and still has its driver, is left to pods that came meanwhile."""
    settings: OpportunisticSettings | None = policy.rollout.opportunistic
    if settings is None or not node.record.waiting or not node.untouched:
        return False
    return now < node.record.waiting + settings.until and not node.to_evict.empty
