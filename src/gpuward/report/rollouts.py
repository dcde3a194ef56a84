"""The rollouts of drivers that the nodes of a cluster remember, put together from the history of each node.

Nothing counts rollouts. Upgrades of different nodes by the same policy to the same driver are one, as long as no node has two of
them and none begins long after the others have ended. The pools of one policy may have different digests: they are one rollout
where they ran at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.model.history import Ending, PastUpgrade, history_of, past_upgrade, with_upgrade
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import NodeView

APART: Final = 7 * 24 * 3600.0
"""Seconds without any node under way after which another upgrade to the same driver is another rollout: pauses and windows are
shorter.
"""
UNDER_WAY: Final = "under way"
CLUSTER_POLICY: Final = "ClusterPolicy"


class NodeUpgrade(msgspec.Struct, frozen=True):
    """Hold an upgrade of one node, one that is under way too."""

    node: str
    past: PastUpgrade
    under_way: str = ""
    """The state in which it is now; empty for one that is over."""

    @property
    def outcome(self) -> str:
        """Say how it ended, or that it has not."""
        return UNDER_WAY if self.under_way else str(self.past.ending)

    @property
    def was_changed(self) -> bool:
        """Tell whether it lost its driver for the one from which it was taken back."""
        return bool(self.past.back) and (self.past.spent[2] > 0 or not (self.under_way or self.past.ending is Ending.BACK))

    @property
    def gpu_seconds(self) -> float:
        """Return the seconds for which the node was out of service times its GPUs."""
        return self.past.out * self.past.gpus

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        past = self.past
        jobs, emptied, driver, validated = past.spent
        return {
            "node": self.node, "outcome": self.outcome, "state": self.under_way or None, "from": past.before or None,
            "began": format_time(past.began), "ended": None if self.under_way else format_time(past.ended),
            "seconds": {"waitingForJobs": jobs, "eviction": emptied, "driver": driver, "validation": validated},
            "secondsOutOfService": past.out, "gpus": past.gpus, "gpuSecondsOutOfService": self.gpu_seconds,
            "podsEvicted": past.evicted, "gpuSecondsOfWorkLost": past.lost, "failures": past.failures,
            "failedIn": past.failed_in or None, "takenBackFrom": past.back or None,
        }


class PastRollout(msgspec.Struct, frozen=True):
    """Hold one rollout: what the nodes remember of it, in the order in which they began."""

    name: str
    upgrades: tuple[NodeUpgrade, ...]

    @property
    def policy(self) -> str:
        """Return whose rollout it was."""
        driver = self.upgrades[0].past.policy
        return f"NVIDIADriver {driver}" if driver else CLUSTER_POLICY

    @property
    def to(self) -> str:
        """Return the version of the new driver, or the beginning of its digest."""
        return next((one.past.to or one.past.digest for one in self.upgrades if one.past.to or one.past.digest), "")

    @property
    def back(self) -> str:
        """Return the version from which it was taken back before its end; empty if it was not."""
        return next((one.past.back for one in self.upgrades if one.past.back), "")

    @property
    def changed(self) -> int:
        """Return how many of its nodes had the driver from which it was taken back, or had lost theirs for that."""
        return sum(one.was_changed or one.past.before == self.back for one in self.upgrades) if self.back else 0

    @property
    def before(self) -> dict[str, int]:
        """Return the versions that nodes had, the most frequent first."""
        found = Counter(one.past.before for one in self.upgrades if one.past.before)
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the field managers that asked for it."""
        return tuple(sorted({one.past.asked for one in self.upgrades if one.past.asked}))

    @property
    def began(self) -> float:
        return min(one.past.began for one in self.upgrades)

    @property
    def ended(self) -> float | None:
        """Return when the last node ended; None while one is under way."""
        return None if any(one.under_way for one in self.upgrades) else max(one.past.ended for one in self.upgrades)

    @property
    def failures(self) -> int:
        return sum(one.past.failures for one in self.upgrades)

    @property
    def evicted(self) -> int:
        return sum(one.past.evicted for one in self.upgrades)

    @property
    def gpu_seconds(self) -> float:
        return sum(one.gpu_seconds for one in self.upgrades)

    @property
    def lost(self) -> float:
        return sum(one.past.lost for one in self.upgrades)

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many nodes ended how, or have not."""
        found = Counter(one.outcome for one in self.upgrades)
        return {outcome: found[outcome] for outcome in (*map(str, Ending), UNDER_WAY) if found[outcome]}

    def as_json(self, *, nodes: bool) -> dict[str, Any]:
        """Return it for programs, with its nodes if they are asked for."""
        ended = self.ended
        told: dict[str, Any] = {
            "name": self.name, "policy": self.policy, "from": self.before, "to": self.to or None,
            "takenBackFrom": self.back or None, "nodesThatHadBeenChanged": self.changed if self.back else None,
            "digests": sorted({one.past.digest for one in self.upgrades if one.past.digest}), "askedBy": list(self.asked),
            "began": format_time(self.began), "ended": format_time(ended) if ended is not None else None,
            "nodes": len(self.upgrades), "outcomes": self.outcomes, "failures": self.failures, "podsEvicted": self.evicted,
            "gpuSecondsOutOfService": self.gpu_seconds, "gpuSecondsOfWorkLost": self.lost,
        }
        return told | ({"upgrades": [one.as_json() for one in self.upgrades]} if nodes else {})


def past_rollouts(nodes: Iterable[NodeView], now: float) -> list[PastRollout]:
    """Return the rollouts that nodes remember, the newest first."""
    by_target: dict[tuple[str, str, str], list[NodeUpgrade]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        for one in _upgrades_of(node, now):
            by_target.setdefault((one.past.policy, one.past.to, one.past.digest), []).append(one)
    groups = [group for found in by_target.values() for group in _apart(found)]
    return _named(sorted(_side_by_side(groups), key=lambda group: (-_began(group), _policy(group), group[0].past.to)))


def _upgrades_of(node: NodeView, now: float) -> list[NodeUpgrade]:
    """Return what a node remembers, that which is under way too; one that failed may be out of service until now."""
    past = list(history_of(node.annotations.get(names.UPGRADE_HISTORY)))
    record = node.record
    course = record.course if record is not None else None
    if record is None or course is None:
        return [NodeUpgrade(node.name, one) for one in past]
    going = record.state in IN_PROGRESS and bool(course.began)
    if past and past[0].ending is Ending.FAILED and not going:
        past[0] = msgspec.structs.replace(past[0], out=past[0].out + course.out_until(now))
    if not going:
        return [NodeUpgrade(node.name, one) for one in past]
    current, *before = with_upgrade(past, past_upgrade(course, record.driver, now, Ending.DONE))
    return [NodeUpgrade(node.name, current, str(record.state)), *(NodeUpgrade(node.name, one) for one in before)]


def _apart(found: Sequence[NodeUpgrade]) -> Iterable[list[NodeUpgrade]]:
    """Split upgrades to one driver where a node has its second, or nothing was under way for long."""
    group: list[NodeUpgrade] = []
    for one in sorted(found, key=lambda one: (one.past.began, one.node)):
        again = any(other.node == one.node for other in group)
        if group and (again or one.past.began > max(other.past.ended for other in group) + APART):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _side_by_side(groups: Iterable[list[NodeUpgrade]]) -> list[list[NodeUpgrade]]:
    """Join upgrades of different nodes by one policy to one version that went on at the same time."""
    joined: list[list[NodeUpgrade]] = []
    for group in sorted(groups, key=_began):
        same = next((other for other in joined if _belongs(other, group)), None)
        if same is None:
            joined.append(list(group))
        else:
            same.extend(group)
    return joined


def _belongs(group: Sequence[NodeUpgrade], other: Sequence[NodeUpgrade]) -> bool:
    if (_policy(group), group[0].past.to) != (_policy(other), other[0].past.to) or not group[0].past.to:
        return False
    if {one.node for one in group} & {one.node for one in other}:
        return False
    return _began(other) <= max(one.past.ended for one in group)


def _began(group: Sequence[NodeUpgrade]) -> float:
    return min(one.past.began for one in group)


def _policy(group: Sequence[NodeUpgrade]) -> str:
    return group[0].past.policy


def _named(groups: Sequence[Sequence[NodeUpgrade]]) -> list[PastRollout]:
    """Name rollouts by when they began; by their policy and driver, too, where several began in the same second."""
    times = [datetime.fromtimestamp(_began(group), UTC).strftime("%Y%m%d-%H%M%S") for group in groups]
    several = {time for time, count in Counter(times).items() if count > 1}
    return [
        PastRollout(".".join(filter(None, (time, _policy(group), group[0].past.to, group[0].past.digest))) if time in several
                    else time, tuple(sorted(group, key=lambda one: (one.past.began, one.node))))
        for time, group in zip(times, groups, strict=True)
    ]


def chosen(rollouts: Sequence[PastRollout], name: str) -> PastRollout | None:
    """Return the rollout of a name, or of the beginning of one; or the newest to a version of that name."""
    for test in (lambda one: one.name == name, lambda one: one.to == name, lambda one: one.name.startswith(name)):
        if (found := next(filter(test, rollouts), None)) is not None:
            return found
    return None
