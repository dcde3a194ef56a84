"""The gate of admission that lets no node start while its GPUs are used, and from when on its time runs."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.model.opportunities import IdleAwaited
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.upgrade.fleet import Candidate, Fleet
from gpuward.upgrade.progress import NodeProgress

_STARTS: Final = (State.UPGRADE_REQUIRED, State.FAILED)


def idle_awaited(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node until nobody has used its GPUs for a while, or its time is up; not where nothing has to leave it."""
    settings, now = policy.rollout.opportunistic, fleet.now
    if settings is None or node.requested or node.restart_only:
        return None
    evicts = (node.record.waiting or now) + settings.until
    pods = (*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked))
    idle = max(node.record.idle, node.watched_since) if node.record.idle else now
    ready = evicts if pods else min(idle + settings.idle_for, evicts)
    if now >= ready:
        return None
    told = IdleAwaited(settings.idle_for, evicts, pods[0].ref if pods else None, len(pods))
    return Hold(told, node.record.since, ready)


def waits_no_longer(path: NodeProgress, policy: UpgradePolicy) -> NodeProgress:
    """Forget since when a node has waited where nodes do so no more: once they are to again, all of their time is before them."""
    if policy.rollout.opportunistic is not None or not path.node.record.waiting or path.node.state not in _STARTS:
        return path
    return _waiting_since(path, 0.0)


def begins_to_wait(path: NodeProgress, now: float) -> NodeProgress:
    """Let the time begin of a node that waits for nothing but its GPUs, or for what goes on beside that: so long as it may not
    start in any case, as an earlier wave is not done, it has all of it before it.
    """
    return _waiting_since(path, now)


def _waiting_since(path: NodeProgress, at: float) -> NodeProgress:
    record = msgspec.structs.replace(path.node.record, waiting=at)
    return msgspec.structs.replace(path, node=msgspec.structs.replace(path.node, record=record), adopted=True)
