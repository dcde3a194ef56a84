"""Waves of a rollout: which nodes go first, what has to be before the next ones follow, and what a node waits for meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from shlex import quote
from typing import ClassVar, Final, Literal

import msgspec

from gpuward.model.analysis import Check, CheckRun, Measured, WaveAnalysis
from gpuward.model.reasons import Reason
from gpuward.model.windows import Window

REST: Final = "all other nodes"
"""Stands for the name of the last wave, which nobody writes."""
MOST_GROWTH: Final = 100_000
"""A limit that is as good as none."""


class Share(msgspec.Struct, frozen=True):
    """Hold a number of nodes, or a percentage of some."""

    count: int | None = None
    percent: int | None = None

    def of(self, total: int) -> int:
        """Return how many of `total` nodes it is: percentages are rounded down, and give one node at least."""
        if self.percent is not None:
            return max(1, math.floor(self.percent * total / 100))
        return total if self.count is None else self.count


class Tolerance(msgspec.Struct, frozen=True):
    """Bound the nodes of a wave that may fail: more than the larger of the two hold later waves."""

    nodes: int = 0
    percent: int = 0

    def of(self, total: int) -> int:
        """Return how many of `total` nodes may fail; percentages are rounded down."""
        return max(self.nodes, math.floor(self.percent * total / 100))


class Wave(msgspec.Struct, frozen=True):
    """Hold which nodes a wave has, and what has to be before later ones start. Times are in seconds."""

    name: str
    selector: Mapping[str, str] = {}
    """Labels that its nodes have; all nodes without any."""
    nodes: Share | None = None
    """How many of these it takes; all of them without."""
    max_unavailable: Share | None = None
    """How many of its nodes may be out of service at once, within the limits of the rollout."""
    soak: float = 0.0
    """How long later waves wait after the last of its nodes is done."""
    approval: bool = False
    """Whether later waves wait until somebody approves."""
    tolerance: Tolerance = Tolerance()
    analysis: tuple[Check, ...] = ()
    """What has to be seen of it before later waves start."""
    windows: tuple[Window, ...] = ()
    """When its nodes may start: those that allow it stand in place of the rollout's, those that deny it beside these."""


class Growth(msgspec.Struct, frozen=True):
    """Say how many nodes may be under way at once: `start`, and `factor` times as many with every set that is done."""

    start: int = 1
    factor: int = 2

    def limit(self, done: int) -> int:
        """Return the limit after so many nodes are done."""
        size = left = self.start
        while left <= done and size < MOST_GROWTH and self.factor > 1:
            size *= self.factor
            left += size
        return size


class Word(msgspec.Struct, frozen=True):
    """Hold what a person said of a rollout: when, who, and about which drivers. It counts for no other driver."""

    at: float
    by: str
    targets: tuple[str, ...] = ()
    """Revision hashes, or where drivers come from."""
    nodes: tuple[str, ...] = ()
    """Nodes that are not waited for any more."""


def command_for(verb: str, driver: str) -> str:
    """Return the command that says something of the rollout of an NVIDIADriver; without a name, of the ClusterPolicy."""
    return f"gpuward {verb}" + (f" --driver {quote(driver)}" if driver else "")


class WavePhase(StrEnum):
    """Say how a wave stands."""

    WAITS = "Waits"
    """For an earlier one."""
    GOES = "Goes"
    FAILED = "Failed"
    EMPTY = "Empty"
    """It had begun, and has no node any more."""
    SOAKS = "Soaks"
    ANALYSIS = "Analysis"
    """Its checks are measured, or nothing is known of one."""
    ANALYSIS_FAILED = "AnalysisFailed"
    APPROVAL = "WaitsForApproval"
    ABORTED = "Aborted"
    """No node of it starts, as somebody aborted the rollout."""
    DONE = "Done"


class CheckStatus(msgspec.Struct, frozen=True):
    """Summarise a check of a wave for people; nothing is measured where it was not yet."""

    name: str
    measured: Measured | None = None


class WaveStatus(msgspec.Struct, frozen=True):
    """Summarise a wave for people."""

    name: str
    phase: WavePhase
    total: int
    done: int
    failed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    """Nodes that it is waited for."""
    soaks: float | None = None
    """Until when."""
    approval: bool = False
    """Whether somebody has to approve when it has soaked."""
    finished: float = 0.0
    """When the last of its nodes was done first, or a check of it failed: what people said since is about them all."""
    checks: tuple[CheckStatus, ...] = ()
    """Its checks, while they are measured and when one has failed."""
    left: tuple[str, ...] = ()
    """Nodes that do not count, as people left them out or they were given up, and that are not done."""


class Aborted(msgspec.Struct, frozen=True):
    """Wait for another driver, as somebody aborted the rollout of this one."""

    reason: ClassVar = Reason.ABORTED
    by: str
    at: float
    driver: str = ""
    """The NVIDIADriver whose rollout it is."""


class RolloutWaves(msgspec.Struct, frozen=True):
    """Hold how the waves of one rollout stand, in their order; the last one has all other nodes."""

    driver: str
    """The NVIDIADriver whose rollout it is; empty for the ClusterPolicy's."""
    targets: tuple[str, ...]
    """The drivers that nodes are to get which are not up to date."""
    waves: tuple[WaveStatus, ...] = ()
    every: tuple[str, ...] = ()
    """The drivers that nodes are to have, up to date or not."""
    zone: str = "UTC"
    """In which people read times."""
    runs: tuple[CheckRun, ...] = ()
    """What is to be measured now."""
    aborted: Aborted | None = None
    """That somebody aborted the rollout of all these drivers."""


class WaveNotDone(msgspec.Struct, frozen=True):
    """Wait until an earlier wave is done."""

    reason: ClassVar = Reason.WAVE_NOT_DONE
    wave: str
    done: int
    total: int
    nodes: tuple[str, ...]
    """Some of those that it waits for."""
    awaited: int = 0
    """How many these are."""


class WaveFailed(msgspec.Struct, frozen=True):
    """Wait until somebody looks at an earlier wave in which too many nodes failed."""

    reason: ClassVar = Reason.WAVE_FAILED
    wave: str
    failed: int
    total: int
    limit: int
    nodes: tuple[str, ...]
    """Some of them."""


class WaveEmpty(msgspec.Struct, frozen=True):
    """Wait until an earlier wave that had begun has a node again, or somebody does without it."""

    reason: ClassVar = Reason.WAVE_EMPTY
    wave: str
    labels: str
    """Which labels its nodes have."""
    driver: str = ""
    """The NVIDIADriver whose rollout it is."""


class WaveSoaking(msgspec.Struct, frozen=True):
    """Wait until an earlier wave has run for a while."""

    reason: ClassVar = Reason.WAVE_SOAKING
    wave: str
    ends: float
    zone: str
    approval: bool = False
    """Whether somebody has yet to approve, so that nothing starts when it is over."""
    driver: str = ""
    """The NVIDIADriver whose rollout it is."""


class ApprovalRequired(msgspec.Struct, frozen=True):
    """Wait until somebody approves of what an earlier wave came to."""

    reason: ClassVar = Reason.APPROVAL_REQUIRED
    wave: str
    driver: str = ""
    """The NVIDIADriver whose rollout it is."""
    empty: bool = False
    """Whether no node is in the wave, so that nothing has been tried."""
    left: int = 0
    """Nodes of the wave that are waited for no longer, since somebody promoted the rollout."""
    total: int = 0
    """All nodes of the wave."""
    done: int = 0


class WaveLimit(msgspec.Struct, frozen=True):
    """Wait until fewer nodes are out of service or under way, as a wave or the growth of the rollout has it."""

    reason: Literal[Reason.WAVE_LIMIT, Reason.GROWTH_LIMIT]
    used: int
    limit: int
    nodes: tuple[str, ...]
    """Some of those that count."""
    noticed: int = 0
    """How many of those that count are in service yet, and have a place as they were given notice."""


WaveWait = WaveNotDone | WaveFailed | WaveEmpty | WaveSoaking | WaveAnalysis | ApprovalRequired | WaveLimit | Aborted
