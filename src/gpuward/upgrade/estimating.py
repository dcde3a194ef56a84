"""Estimate how long a rollout still takes: from how long its nodes took, and from how many go on at once.

Until five of its own nodes are done, the upgrades count too that the nodes remember of earlier rollouts. Where nothing is
remembered nothing is said, and where nodes are held by what has no known end, that is said.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from gpuward.model.estimate import Estimate
from gpuward.model.history import Ending, PastUpgrade
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.noting import DIGEST, STEP_OF

ENOUGH: Final = 5
"""Nodes of a rollout that are done, from which on it is judged by them alone."""
_IN_TURN: Final = frozenset({Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.TEMPLATE_SETTLING})
"""What a node waits for that goes on as others get done."""
_LEFT_OUT: Final = frozenset({Reason.SKIPPED, Reason.FAILED})
"""What nodes wait for that are not going to be upgraded by themselves."""
_OPEN_ENDED: Final = frozenset({Reason.JOBS_RUNNING, Reason.EVICTION_REFUSED, Reason.MAINTENANCE, Reason.WRITE_UNANSWERED})
"""What nodes under way may wait for without an end that anybody knows."""


class Samples(msgspec.Struct, frozen=True):
    """Hold how long upgrades of nodes took, in seconds, the shortest first, and whether some are of earlier rollouts."""

    seconds: tuple[float, ...]
    earlier: bool = False

    @property
    def mean(self) -> float:
        """Return how long an upgrade takes on average."""
        return sum(self.seconds) / len(self.seconds)

    def remaining(self, elapsed: float) -> float | None:
        """Return how much longer an upgrade takes that has taken so long; None where none has taken longer."""
        at = bisect_right(self.seconds, elapsed)
        longer = self.seconds[at:]
        return sum(longer) / len(longer) - elapsed if longer else None


class Remaining(msgspec.Struct, frozen=True):
    """Hold what a rollout has yet to do, and within which limits."""

    waiting: int = 0
    """Nodes that have yet to begin."""
    elapsed: tuple[float, ...] = ()
    """How long each node under way has taken so far, in seconds."""
    slots: int = 1
    """How many nodes may be under way at once."""
    later: float = 0.0
    """Seconds until the last node that is tried again may begin."""


def time_left(samples: Samples, remaining: Remaining) -> float | None:
    """Return the seconds until all is done: each node that waits takes the first slot that gets free, for as long as the mean.
    None where that is not known, as all that is left takes longer than any did.
    """
    ends = [samples.remaining(elapsed) for elapsed in remaining.elapsed]
    if not remaining.waiting and ends and all(end is None for end in ends):
        return None
    slots = max(remaining.slots, len(ends), 1)
    free = sorted([*(end or 0.0 for end in ends), *[0.0] * (slots - len(ends))])
    return max(_filled(free, remaining.waiting, samples.mean), remaining.later + samples.mean if remaining.later else 0.0)


def _filled(free: Sequence[float], waiting: int, mean: float) -> float:
    """Return when the last of the slots is free for good."""
    if not waiting:
        return free[-1]
    # Most of a large fleet is spread evenly: only the last rounds tell which slot is the last.
    rounds = max(0, waiting // len(free) - 1) if free[-1] <= mean else 0
    slots = [at + rounds * mean for at in free]
    heapq.heapify(slots)
    end = max(slots)
    for _ in range(waiting - rounds * len(free)):
        done = heapq.heapreplace(slots, slots[0] + mean) + mean
        end = max(end, done)
    return end


def estimate(
    nodes: Iterable[NodeDecision], held: Mapping[str, tuple[Hold, int]], started: Iterable[str], fleet: Fleet,
    policy: UpgradePolicy, now: float,
) -> Estimate | None:
    """Return how long a policy's rollout still takes; None where none goes on."""
    nodes, begin = tuple(nodes), frozenset(started)
    stuck: list[Reason] = []
    elapsed: list[float] = []
    waiting = budgeted = 0
    later = 0.0
    for node in nodes:
        name, hold = node.before.node.name, node.hold or node.path.hold
        hold = held[name][0] if name in held else hold
        if node.path.node.state in IN_PROGRESS:
            elapsed.append(_elapsed(node, now))
            stuck += [hold.reason] if hold is not None and _is_open_ended(hold) else []
        elif node.waits or node.path.node.state is State.FAILED:
            kind = _kind(node, None if name in begin else hold, fleet)
            waiting += kind in (_Kind.IN_TURN, _Kind.BUDGETED, _Kind.LATER)
            budgeted += kind is _Kind.BUDGETED
            if hold is not None and kind is _Kind.LATER:
                later = max(later, (hold.until or now) - now)
            stuck += [hold.reason] if hold is not None and kind is _Kind.HELD else []
    if not (elapsed or waiting or stuck):
        return None
    samples = samples_of(nodes)
    if samples is None:
        return Estimate(at=now)
    if stuck:
        return Estimate(unknown=f"{_count(len(stuck))} held ({min(stuck)})", at=now)
    # What a budget keeps from going on beside the others goes on after them.
    slots = max(1, len(elapsed)) if budgeted else _slots(fleet, policy)
    return _within_windows(samples, Remaining(waiting, tuple(elapsed), slots, later), fleet, now)


class _Kind(Enum):
    """Say how a node waits that is not under way."""

    IN_TURN = auto()
    BUDGETED = auto()
    LATER = auto()
    HELD = auto()
    LEFT_OUT = auto()


def _kind(node: NodeDecision, hold: Hold | None, fleet: Fleet) -> _Kind:
    if hold is None or hold.reason in _IN_TURN:
        return _Kind.IN_TURN if node.waits else _Kind.LEFT_OUT
    if hold.reason is Reason.BUDGET_USED_UP and fleet.in_progress:
        return _Kind.BUDGETED
    if hold.reason is Reason.RETRY_LATER:
        return _Kind.LATER
    return _Kind.LEFT_OUT if hold.reason in _LEFT_OUT else _Kind.HELD


def _within_windows(samples: Samples, remaining: Remaining, fleet: Fleet, now: float) -> Estimate:
    left = time_left(samples, remaining)
    if left is None:
        return Estimate(unknown="what is left has taken longer than any node before", at=now)
    # A node that has begun is finished after the end of its window.
    shut = fleet.windows.changes is not None and now + left - samples.mean > fleet.windows.changes
    if remaining.waiting and shut:
        return Estimate(unknown="it goes on after the end of this window", at=now)
    return Estimate(left, now, len(samples.seconds), samples.earlier)


def _is_open_ended(hold: Hold) -> bool:
    return hold.reason.needs_person or (hold.reason in _OPEN_ENDED and hold.until is None)


def _count(nodes: int) -> str:
    return "1 node is" if nodes == 1 else f"{nodes} nodes are"


def _elapsed(node: NodeDecision, now: float) -> float:
    """Return how long a node has been under way, without pauses."""
    record = node.path.node.record
    course, inside = record.course, max(0.0, (record.paused or now) - record.since)
    return (sum(course.spent) if course is not None else 0.0) + (inside if node.path.node.state in STEP_OF else 0.0)


def _slots(fleet: Fleet, policy: UpgradePolicy) -> int:
    """Return how many nodes may be under way at once, as long as those that are out of service for something else stay so."""
    free = policy.max_unavailable.of(fleet.total) - len(fleet.unavailable - fleet.in_progress)
    if policy.max_parallel_upgrades:
        free = min(free, policy.max_parallel_upgrades)
    return max(1, free)


def samples_of(nodes: Sequence[NodeDecision]) -> Samples | None:
    """Return how long nodes took: those of this rollout that are done or, where they are few, all that are remembered."""
    own = [node.history[0].seconds for node in nodes
           if node.history and _is_sample(node.history[0]) and _is_of_now(node, node.history[0])]
    if len(own) >= ENOUGH:
        return Samples(tuple(sorted(own)))
    every = [past.seconds for node in nodes for past in node.history if _is_sample(past)]
    return Samples(tuple(sorted(every)), earlier=len(every) > len(own)) if every else None


def _is_sample(past: PastUpgrade) -> bool:
    return past.ending is Ending.DONE and not past.failures and past.seconds > 0


def _is_of_now(node: NodeDecision, past: PastUpgrade) -> bool:
    """Tell whether the last upgrade of a node brought it the driver that it should have, and no other rollout has begun there."""
    facts = node.path.node
    same = past.digest == facts.target_digest[:DIGEST] and past.to == facts.target_version
    return same and facts.in_step and facts.state is State.DONE
