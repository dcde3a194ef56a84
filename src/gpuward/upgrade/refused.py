"""Nodes that the API server refuses to change, for an admission webhook or a right that is lacking: others go on meanwhile.

A refused write is repeated ever later. A node that is not under way yet takes no slot until then. One that is under way keeps
its slot, says why it stands still, and meets the deadline of its state, if at least its failure may be written.
"""

from __future__ import annotations

from typing import Final

from gpuward.model.backoff import backoff, is_to_come
from gpuward.model.causes import unchangeable
from gpuward.model.denials import LedgerRefused, WriteRefused
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Refusal
from gpuward.model.states import State
from gpuward.upgrade.drain import fail
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Move

FIRST_RETRY: Final = 1.0
"""Seconds until a refused write is repeated; it doubles up to LAST_RETRY."""
LAST_RETRY: Final = 45.0
FAILS_AFTER: Final = 5.0
TOLD_FOR: Final = 600.0
"""Seconds for which a refused write is the reason of a node that something else holds, too."""


def retry_at(refusal: Refusal) -> float:
    """Return when a refused write is repeated."""
    return refusal.at + backoff(refusal.count, FIRST_RETRY, LAST_RETRY)


def rests(refusal: Refusal | None, now: float) -> bool:
    """Tell whether a refused write is not repeated yet. A refusal to come was met before the clock was set back."""
    return refusal is not None and not is_to_come(refusal.at, now) and now < retry_at(refusal)


def is_past(refusal: Refusal, now: float) -> bool:
    """Tell whether a write was refused so long ago, and not repeated since, that it says nothing of now any more."""
    return not is_to_come(refusal.at, now) and now > refusal.at + TOLD_FOR


def brings_images_at(refusal: Refusal, now: float) -> float:
    """Return when images are brought onto a node whose write was refused, though nobody knows yet whether others would be: that
    they are there may be refused as well, ever again.
    """
    return now if is_to_come(refusal.at, now) else refusal.at + backoff(refusal.count, FIRST_RETRY, TOLD_FOR)


def may_fail(refusal: Refusal, now: float) -> bool:
    """Tell whether the failure of a node may be written whose driver's label alone may be refused: that is tried all the time."""
    return is_to_come(refusal.at, now) or now >= refusal.at + FAILS_AFTER


def refused(node: NodeFacts, refusal: Refusal, now: float) -> Hold:
    """Return the hold of a node that may not be changed: it quotes the server."""
    what = WriteRefused(refusal.message, refusal.count)
    return Hold(what, node.record.since, retry_at(refusal) if rests(refusal, now) else None)


def not_entered(node: NodeFacts, refusal: Refusal | None) -> Hold | None:
    """Return the hold of a node that may start once it is in the ledger, where that cannot be written."""
    return None if refusal is None else Hold(LedgerRefused(refusal.message, refusal.count), node.record.since)


def overdue(node: NodeFacts, policy: UpgradePolicy, now: float) -> Move | None:
    """Return the failure of a node that has been in its state for longer than it may, as what came next may not be written."""
    seconds = _timeout(node.state, policy)
    if node.refused is None or not seconds or not node.is_overdue(node.record.since + seconds, now):
        return None
    return fail(node, unchangeable(node.refused.message), now)


def _timeout(state: State, policy: UpgradePolicy) -> float:
    """Return the seconds that a state may take which can fail; 0 for any other, and for ever."""
    theirs = {State.POD_DELETION_REQUIRED: policy.pod_deletion.timeout_seconds,
              State.DRAIN_REQUIRED: policy.drain.timeout_seconds}
    fails = state in theirs or state in (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED)
    return theirs.get(state) or policy.rollout.deadline(state) if fails else 0.0
