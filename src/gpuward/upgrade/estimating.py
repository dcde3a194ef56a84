"""Estimate how long a rollout still takes: from how long its nodes took, and from how many go on at once.

Until five of its own nodes are done, the upgrades count too that the nodes remember of earlier rollouts. Where nothing is
remembered nothing is said, and where nodes are held by what has no known end, that is said.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from math import ceil
from typing import Final

import msgspec

from gpuward.model.estimate import Estimate
from gpuward.model.listing import listed
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.waves import WaveSoaking
from gpuward.model.windows import WindowShut, WindowState, moment_in
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.notice_gate import pods_told
from gpuward.upgrade.noting import STEP_OF

ENOUGH: Final = 5
"""Nodes of a rollout that are done, from which on it is judged by them alone."""
OVERDUE: Final = 2.0
"""So many times as long as any node before one may take that holds its slot: from then on nobody knows when that gets free."""
_IN_TURN: Final = frozenset({
    Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.TEMPLATE_SETTLING, Reason.NOTICE_GIVEN})
"""What a node waits for that goes on as others get done."""
_AFTER_OTHERS: Final = frozenset({
    Reason.BUDGET_USED_UP, Reason.DOMAIN_LIMIT, Reason.WAVE_LIMIT, Reason.GROWTH_LIMIT,
    Reason.GANG_AWAITED})
"""What a node waits for that goes on when those under way are done, and not beside them."""
_LEFT_OUT: Final = frozenset({Reason.SKIPPED, Reason.FAILED, Reason.UNDRAINABLE})
"""What nodes wait for that are not going to be upgraded by themselves."""
_ALONE: Final = frozenset({State.FAILED, State.UPGRADE_REQUIRED})
"""States of nodes that wait, in the queue or, where something else keeps them from it, outside."""
_OPEN_ENDED: Final = frozenset({Reason.JOBS_RUNNING, Reason.EVICTION_REFUSED, Reason.MAINTENANCE, Reason.MAINTENANCE_AWAITED,
                                Reason.WRITE_UNANSWERED})
"""What nodes under way may wait for without an end that anybody knows."""


class Samples(msgspec.Struct, frozen=True):
    """Hold how long upgrades of nodes took, in seconds, the shortest first, and whether some are of earlier rollouts."""

    seconds: tuple[float, ...]
    earlier: bool = False

    @property
    def mean(self) -> float:
        """Return how long an upgrade takes on average."""
        return sum(self.seconds) / len(self.seconds)

    def likely(self) -> float:
        """Return how long nine of ten upgrades take at most."""
        return self.seconds[ceil(0.9 * len(self.seconds)) - 1]

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
    noticed: tuple[float, ...] = ()
    """Seconds until each node begins that has been given notice, and has a slot."""
    notice: float = 0.0
    """Seconds of notice before each that waits, on average."""


def time_left(samples: Samples, remaining: Remaining) -> float | None:
    """Return the seconds until all is done: each node that waits takes the first slot that gets free, for as long as the mean.
    None where that is not known, as all that is left takes longer than any did, or every slot has been taken for `OVERDUE` times
    as long.
    """
    ends = [samples.remaining(elapsed) for elapsed in remaining.elapsed]
    if ends and all(end is None for end in ends):
        overdue = [elapsed for elapsed in remaining.elapsed if elapsed > OVERDUE * samples.seconds[-1]]
        if not (remaining.waiting or remaining.noticed) or len(overdue) >= max(remaining.slots, len(ends)):
            return None
    known = [*(end or 0.0 for end in ends), *(begins + samples.mean for begins in remaining.noticed)]
    free = sorted([*known, *[0.0] * (max(remaining.slots, 1) - len(known))])
    each = samples.mean + remaining.notice
    return max(_filled(free, remaining.waiting, each), remaining.later + each if remaining.later else 0.0)


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
    nodes: Sequence[NodeDecision], held: Mapping[str, tuple[Hold, int]], fleet: Fleet, policy: UpgradePolicy, now: float
) -> Estimate | None:
    """Return how long a policy's rollout still takes; None where none goes on. `held` are those that wait in the queue."""
    under_way = [node for node in nodes if node.standing.in_progress and node.path.node.state in IN_PROGRESS
                 and not node.standing.quarantined]
    alone = [node.path.hold for node in nodes
             if not node.waits and (node.path.node.state in _ALONE or _is_garbage(node.path.hold))]
    reasons = Counter(hold.reason for hold, _ in held.values())
    kinds = Counter[_Kind]()
    stuck = Counter[Reason]()
    for reason, count in reasons.items():
        kind = _kind(reason, fleet)
        kinds[kind] += count
        stuck[reason] += count if kind is _Kind.HELD else 0
    kinds[_Kind.IN_TURN] += sum(node.waits for node in nodes) - len(held)
    for hold in alone:
        kind = _kind_alone(hold, fleet)
        kinds[kind] += 1
        stuck[hold.reason if hold is not None else Reason.FAILED] += kind is _Kind.HELD
    away = stuck[Reason.NODE_NOT_READY]
    for node in under_way:
        if (hold := node.path.hold) is not None and (_is_open_ended(hold) or _is_kept(node, hold, now)):
            stuck[hold.reason] += 1
    waiting = kinds[_Kind.IN_TURN] + kinds[_Kind.AFTER_OTHERS] + kinds[_Kind.LATER]
    if not (under_way or waiting or stuck.total()):
        return None
    samples = samples_of(nodes)
    # A machine that is away keeps no other waiting, unless it is under way and has its place.
    without = away if samples is not None and (under_way or waiting) and stuck.total() == away else 0
    if samples is None or stuck.total() > without:
        waits = [*(hold for hold, _ in held.values()), *(hold for hold in alone if hold is not None)]
        at, ends = _known_end(waits)
        unknown = _told(+stuck) if stuck.total() and (at or samples is not None) else ""
        return Estimate(unknown=unknown, at=now, not_before=at, ends=ends, finish_by=policy.rollout.finish_by)
    if again := _fail_again(nodes, under_way):
        return Estimate(unknown=again, at=now, finish_by=policy.rollout.finish_by)
    slots = max(1, len(under_way)) if kinds[_Kind.AFTER_OTHERS] else _slots(fleet, policy)
    retries = [hold for hold in alone if hold is not None] + (
        [hold for hold, _ in held.values()] if Reason.RETRY_LATER in reasons else [])
    later = max(((hold.until or now) - now for hold in retries if hold.reason is Reason.RETRY_LATER), default=0.0)
    elapsed = tuple(_elapsed(node, now) for node in under_way)
    remaining = _with_notice(Remaining(waiting, elapsed, slots, max(0.0, later)), nodes, held, policy, now)
    found = _within_windows(samples, remaining, fleet, now)
    found = msgspec.structs.replace(found, finish_by=policy.rollout.finish_by, without=without)
    if not policy.rollout.finish_by or found.unknown:
        return found
    late = found.finish > found.finish_by and not kinds[_Kind.AFTER_OTHERS]
    return msgspec.structs.replace(found, would_do=_would_do(found, samples, remaining)) if late else found


def _fail_again(nodes: Sequence[NodeDecision], under_way: Sequence[NodeDecision]) -> str:
    """Name nodes that failed more than once and are tried again, or will be: those that went through tell nothing of them."""
    later = (node for node in nodes if node.waits or (node.path.hold is not None and node.path.hold.reason is Reason.RETRY_LATER))
    facts = {node.path.node.node.name: node.path.node for node in (*under_way, *later)}
    again = sorted(name for name, one in facts.items() if one.record.failure is not None and one.record.failure.attempts > 1)
    if not again:
        return ""
    return f"{listed(again, 3)} {'has' if len(again) == 1 else 'have'} failed more than once, and may fail again"


def _with_notice(
    remaining: Remaining, nodes: Sequence[NodeDecision], held: Mapping[str, tuple[Hold, int]], policy: UpgradePolicy, now: float
) -> Remaining:
    """Return what is left to do with the notice that nodes are given before they start; nobody is taken to acknowledge it."""
    if policy.rollout.notice is None:
        return remaining
    given = {name: hold for name, (hold, _) in held.items() if hold.reason is Reason.NOTICE_GIVEN}
    told = sum(bool(pods_told(node.path.node, policy)) for node in nodes if node.waits and node.path.node.node.name not in given)
    waiting = remaining.waiting - len(given)
    return msgspec.structs.replace(
        remaining, waiting=waiting, noticed=tuple(max(0.0, (hold.until or now) - now) for hold in given.values()),
        notice=policy.rollout.notice.before * min(1.0, told / waiting) if waiting else 0.0)


def _known_end(waits: Iterable[Hold]) -> tuple[float, str]:
    """Return until when the last of these waits for its window, or for a wave to soak, and what ends then, in words."""
    last = max((hold for hold in waits if isinstance(hold.what, WindowShut | WaveSoaking) and hold.until is not None),
               key=lambda hold: hold.until or 0.0, default=None)
    if last is None or not isinstance(last.what, WindowShut | WaveSoaking) or last.until is None:
        return 0.0, ""
    what = f"wave {last.what.wave} has soaked" if isinstance(last.what, WaveSoaking) else "the window opens"
    return last.until, f"{moment_in(last.until, last.what.zone)}, when {what}"


class _Kind(Enum):
    """Say how a node waits that is not under way."""

    IN_TURN = auto()
    AFTER_OTHERS = auto()
    LATER = auto()
    HELD = auto()
    LEFT_OUT = auto()


def _kind(reason: Reason, fleet: Fleet) -> _Kind:
    if reason in _IN_TURN:
        return _Kind.IN_TURN
    if reason in _AFTER_OTHERS and fleet.in_progress:
        return _Kind.AFTER_OTHERS
    if reason is Reason.RETRY_LATER:
        return _Kind.LATER
    return _Kind.LEFT_OUT if reason in _LEFT_OUT else _Kind.HELD


def _kind_alone(hold: Hold | None, fleet: Fleet) -> _Kind:
    """Say how a node waits outside the queue: one that does so for nothing, or for its turn, is not tried again by itself."""
    kind = _kind(hold.reason, fleet) if hold is not None else _Kind.IN_TURN
    return _Kind.LEFT_OUT if kind is _Kind.IN_TURN else kind


def _within_windows(samples: Samples, remaining: Remaining, fleet: Fleet, now: float) -> Estimate:
    left = time_left(samples, remaining)
    if left is None:
        return Estimate(unknown="what is under way has taken longer than any node before", at=now)
    # A node that has begun is finished after the end of its window.
    last = now + left - samples.mean
    shut = any(windows.changes is not None and last > windows.changes for windows in windows_ahead(fleet))
    if remaining.waiting and shut:
        return Estimate(unknown="it goes on after the end of this window", at=now)
    return Estimate(left, now, len(samples.seconds), samples.earlier)


def windows_ahead(fleet: Fleet) -> Iterator[WindowState]:
    """Yield the windows of nodes that are not done: those of waves that have some, and of the rollout for all others."""
    own = fleet.wave_windows
    waiting = [place for place, gate in enumerate(fleet.waves.gates) if gate.done < gate.total]
    yield from (own[place] for place in waiting if place in own)
    rest = any(each.waves[-1].done < each.waves[-1].total for each in fleet.waves.told)
    if not own or rest or any(place not in own for place in waiting):
        yield fleet.windows


def _would_do(found: Estimate, samples: Samples, remaining: Remaining) -> int:
    """Return how many nodes at once would be done when the rollout should be; 0 where no number would."""
    more = range(remaining.slots, remaining.waiting + len(remaining.noticed) + len(remaining.elapsed) + 1)

    def is_in_time(slots: int) -> bool:
        left = time_left(samples, msgspec.structs.replace(remaining, slots=slots))
        return left is not None and left <= found.finish_by - found.at

    enough = bisect_left(more, True, key=is_in_time)  # the more nodes go on at once, the earlier it is done
    return more[enough] if enough < len(more) else 0


def _is_garbage(hold: Hold | None) -> bool:
    """Tell whether a node is held as its state label has no meaning: it is in none of the states."""
    return hold is not None and hold.reason is Reason.UNKNOWN_STATE


def _is_open_ended(hold: Hold) -> bool:
    refused = hold.reason is Reason.EVICTION_REFUSED  # at its deadline it fails, or pods are deleted
    return hold.reason.needs_person or refused or (hold.reason in _OPEN_ENDED and hold.until is None)


def _is_kept(node: NodeDecision, hold: Hold, now: float) -> bool:
    """Tell whether a node waits for pods that end no sooner than somebody takes a finalizer away."""
    return hold.reason is Reason.EVICTING and any(pod.kept(now) for pod in node.before.to_evict.pods)


def _told(stuck: Counter[Reason]) -> str:
    """Say for how many nodes nobody knows when they go on, and for what reasons: those that somebody has to help first."""
    held = {reason: count for reason, count in stuck.items() if not reason.is_waited_for}
    nodes = sum((held or stuck).values())
    reasons = sorted((held or stuck).items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{count} {reason}" for reason, count in reasons) if reasons[1:] else reasons[0][0]
    one, many = ("needs somebody", "need somebody") if held else ("is waiting", "are waiting")
    return f"1 node {one} ({named})" if nodes == 1 else f"{nodes} nodes {many} ({named})"


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


def likely_seconds(samples: Samples | None) -> float:
    """Return how long nine of ten upgrades take at most; 0 where nothing is known of any."""
    return samples.likely() if samples is not None else 0.0


def samples_of(nodes: Sequence[NodeDecision]) -> Samples | None:
    """Return how long nodes took: those of this rollout that are done or, where they are few, all that are remembered."""
    own = [node.samples.own for node in nodes if node.samples.own]
    if len(own) >= ENOUGH:
        return Samples(tuple(sorted(own)))
    every = [seconds for node in nodes for seconds in node.samples.every]
    return Samples(tuple(sorted(every)), earlier=len(every) > len(own)) if every else None
