"""What one rehearsed rollout came to, and what several drawn ones say together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

HOUR = 3600.0


class Phase(StrEnum):
    """Name what a node does for a while, as a timeline shows it."""

    WAITING = "waiting"
    EMPTYING = "emptying"
    DRIVER = "driver"
    VALIDATION = "validation"
    FAILED = "failed"
    DONE = "done"


class Span(msgspec.Struct, frozen=True):
    """Hold one phase of a node, in seconds since the beginning."""

    phase: Phase
    begin: float
    end: float


class Waited(msgspec.Struct, frozen=True):
    """Say for how many seconds a node waited for one reason, and for whom."""

    reason: str
    whom: str
    """The pod with its budget, or the nodes that it waited for; empty where the reason says all."""
    seconds: float
    message: str = ""
    """What was said of it last."""


class NodeRun(msgspec.Struct, frozen=True):
    """Hold what happened to one node, in seconds since the beginning."""

    name: str
    gpus: int
    started: float | None = None
    done: float | None = None
    """When it had its driver, validated and put back into service: 0 for one that had it from the beginning, None for one that
    has not come so far. One that gets its first driver has none to be taken away, and so does not start."""
    out: float = 0.0
    """For how long it was out of service."""
    evicted: int = 0
    spans: tuple[Span, ...] = ()
    waited: tuple[Waited, ...] = ()
    reason: str = ""
    """What it waits for at the end, if it is not done."""
    message: str = ""
    failed: bool = False
    remedies: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Tell whether anything became of it, or is yet to."""
        return self.started is not None or self.done != 0.0


class Approval(msgspec.Struct, frozen=True):
    """Hold that a wave asked for an approval, and when it is assumed to be given, in seconds since the beginning."""

    wave: str
    driver: str
    """The NVIDIADriver whose rollout it is; empty for the ClusterPolicy's."""
    asked: float
    given: float


class Run(msgspec.Struct, frozen=True):
    """Hold one rehearsed rollout."""

    seed: int
    lasted: float
    """Seconds until the last node was done, or nothing moved any more."""
    nodes: tuple[NodeRun, ...]
    """In the order in which they started; then those that did not, by name."""
    most_out: int = 0
    """The most nodes that the rollout had out of service at once."""
    evicted: int = 0
    hours_waiting: float = 0.0
    """GPU-hours from evictions to the moment at which others of the same owner ran in their place."""
    hours_undone: float = 0.0
    """GPU-hours that the evicted pods had run: lost where they keep no checkpoints."""
    not_back: int = 0
    """Evicted pods in whose place nothing ran at the end."""
    at_horizon: bool = False
    """Whether it was broken off because it took too long."""
    took: float = 0.0
    """Real seconds that it was played in."""
    nothing: str = ""
    """Why no node has a driver to upgrade, where none has."""
    approvals: tuple[Approval, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        """Return the nodes in the order in which they started."""
        return tuple(node.name for node in self.nodes if node.started is not None)

    @property
    def hours_out(self) -> float:
        """Return the GPU-hours that nodes were out of service."""
        return sum(node.gpus * node.out for node in self.nodes) / HOUR

    @property
    def left(self) -> tuple[NodeRun, ...]:
        """Return the nodes that did not get their driver."""
        return tuple(node for node in self.nodes if node.done is None)

    @property
    def changes(self) -> bool:
        """Tell whether any node was touched, got its first driver, or waits to be touched."""
        return any(node.changes for node in self.nodes)


class Spread(msgspec.Struct, frozen=True):
    """Hold a median and a 90th percentile of drawn values."""

    p50: float
    p90: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the percentiles, each one of the values: the smallest that so many of them do not exceed."""
        found = sorted(values)
        return cls(*(found[max(0, math.ceil(share * len(found)) - 1)] for share in (0.5, 0.9)))


class Blocker(msgspec.Struct, frozen=True):
    """Say what kept nodes from their turn, how many, and for how long together."""

    reason: str
    whom: str
    nodes: int
    seconds: float


def blockers(run: Run) -> list[Blocker]:
    """Return who held up nodes that waited for more than their turn, the longest first."""
    seconds: Counter[tuple[str, str]] = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    for node in run.nodes:
        for one in node.waited:
            seconds[one.reason, one.whom] += one.seconds  # type: ignore[assignment]
            nodes[one.reason, one.whom] += 1
    found = [Blocker(reason, whom, nodes[reason, whom], total) for (reason, whom), total in seconds.items()]
    return sorted(found, key=lambda one: (-one.seconds, one.reason, one.whom))


class Trial(msgspec.Struct, frozen=True):
    """Hold a change that was rehearsed too, with the seed of the first run, and what became of the rollout by it."""

    do: str
    lasted: float
    before: float
    """How many seconds the first run lasted without it."""
    most_out: int
    left: int
    freed: tuple[str, ...] = ()
    """Nodes that get their driver by it, and do not without."""


class Rehearsal(msgspec.Struct, frozen=True):
    """Hold all drawn runs of one rollout."""

    runs: tuple[Run, ...]
    trials: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = ()
    """Policies that cannot be followed, and why: what was valid last is rehearsed."""
    missing: tuple[str, ...] = ()
    """Images that could not be pulled in the cluster, and so in no run."""
    guessed: bool = False
    """Whether values that the capture lacks are taken for those of the files with policies."""

    @property
    def first(self) -> Run:
        """Return the run that stands for all: the one whose length is the median."""
        return sorted(self.runs, key=lambda run: (run.lasted, run.seed))[(len(self.runs) - 1) // 2]

    @property
    def same_order(self) -> int:
        """Return how many runs took the nodes in the order of the one that stands for all."""
        return sum(run.order == self.first.order for run in self.runs)


def trial(do: str, before: Run, after: Run) -> Trial | None:
    """Return what a change is good for; None where it shortens nothing and frees no node."""
    left = {node.name for node in after.left}
    freed = tuple(sorted(node.name for node in before.left if node.name not in left))
    saved = before.lasted - after.lasted
    if not freed and (saved < max(60.0, 0.02 * before.lasted) or len(left) > len(before.left)):
        return None
    return Trial(do, after.lasted, before.lasted, after.most_out, len(left), freed)


def sorted_nodes(nodes: Sequence[NodeRun]) -> tuple[NodeRun, ...]:
    """Return nodes in the order in which they started; then those that did not."""
    return tuple(sorted(nodes, key=lambda node: (node.started is None, node.started or 0.0, node.name)))
