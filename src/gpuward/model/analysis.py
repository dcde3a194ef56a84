"""The analysis of a wave: what has to be seen of it before later waves start, and what was measured so far.

A measurement has three results. Unknown never passes and never fails: later waves wait, and people are told why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from gpuward.model.reasons import Reason

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType({
    "==": float.__eq__, "!=": float.__ne__, ">=": float.__ge__, "<=": float.__le__, ">": float.__gt__, "<": float.__lt__})
LONGEST_TOLD: Final = 300
"""Characters of what is told of a measurement: it is kept in an annotation."""


class Result(StrEnum):
    """Say how a measurement ended."""

    PASSED = "Passed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class FailWhen(msgspec.Struct, frozen=True):
    """Compare each sample with a number: one of which it is true fails the check."""

    operator: str
    value: float

    def fails(self, sample: float) -> bool:
        """Tell whether a sample fails; one that is not a number says nothing."""
        return not math.isnan(sample) and OPERATORS[self.operator](float(sample), self.value)

    def __str__(self) -> str:
        return f"{self.operator} {self.value:g}"


class NodeCondition(msgspec.Struct, frozen=True):
    """Hold a condition that no node of the wave may have."""

    type: str
    status: str = "True"

    def __str__(self) -> str:
        return f"{self.type}={self.status}"


class Promql(msgspec.Struct, frozen=True):
    """Hold a question to a Prometheus, and which answer fails."""

    server: str
    query: str
    fail_when: FailWhen
    secret: str = ""
    """The Secret in the operator's namespace with what lets us in; empty where nothing has to."""


class Check(msgspec.Struct, frozen=True):
    """Hold one check of a wave. Times are in seconds."""

    name: str
    conditions: tuple[NodeCondition, ...] = ()
    promql: Promql | None = None
    interval: float = 60.0
    lasts: float = 300.0
    """For how long it has to be good without a break."""
    failures: int = 1
    """After how many failed measurements it has failed."""

    @property
    def key(self) -> str:
        """Return what is another one whenever somebody writes another check, whatever it is called."""
        what = msgspec.json.encode(msgspec.structs.replace(self, name=""))
        return hashlib.sha256(what).hexdigest()[:16]


class CheckRun(msgspec.Struct, frozen=True):
    """Say which check is to be measured, on which nodes, for which wave."""

    driver: str
    """The NVIDIADriver whose rollout it is; empty for the ClusterPolicy's."""
    wave: str
    """Its name, for the log alone."""
    check: Check
    since: float
    """Since when the wave is as it is: a node that is done later begins anew."""
    nodes: tuple[str, ...] = ()
    """Nodes of the wave that serve: those that are out of service or under way are not judged."""

    @property
    def key(self) -> str:
        """Return by what its measurements are known."""
        return f"{self.driver}/{self.check.key}/{self.since!r}"


class Measurement(msgspec.Struct, frozen=True):
    """Hold one measurement."""

    at: float
    result: Result
    told: str = ""
    """What was measured, or why nothing is known."""


class Measured(msgspec.Struct, frozen=True):
    """Hold what was measured of a check so far. Losing it costs measurements that are made again."""

    result: Result
    told: str
    """Of the measurement with which the result began; that it passes on with other values is no news."""
    at: float
    """When it was measured last."""
    good: float = 0.0
    """Since when each measurement passed; 0 where the last one did not."""
    failures: int = 0
    """How many failed."""

    def lasted(self, check: Check) -> bool:
        """Tell whether it has been good for long enough."""
        return bool(self.good) and self.at - self.good >= check.lasts

    def failed(self, check: Check) -> bool:
        """Tell whether it has failed as often as it may."""
        return self.failures >= check.failures


def after(before: Measured | None, new: Measurement) -> Measured:
    """Return what is known after one more measurement."""
    told, good, failures = new.told[:LONGEST_TOLD], 0.0, before.failures if before is not None else 0
    if new.result is Result.PASSED:
        good = before.good if before is not None and before.good else new.at
        told = before.told if before is not None and before.good else told
    return Measured(new.result, told, new.at, good, failures + (new.result is Result.FAILED))


class Verdict(msgspec.Struct, frozen=True):
    """Hold that a check has failed for good."""

    check: str
    """The check's key."""
    at: float
    told: str
    failures: int = 1


class Analysis(msgspec.Struct, frozen=True):
    """Hold what is remembered of the analyses of a rollout, for which drivers; another driver begins anew."""

    targets: tuple[str, ...] = ()
    passed: float = 0.0
    """Up to when waves that were done have passed."""
    failed: Verdict | None = None
    last: Mapping[str, Measured] = {}
    """What was measured last, by check, as far as it was news."""


class WaveAnalysis(msgspec.Struct, frozen=True):
    """Wait until a check of an earlier wave passes."""

    reason: Literal[Reason.ANALYSIS_RUNNING, Reason.ANALYSIS_UNKNOWN, Reason.ANALYSIS_FAILED]
    wave: str
    check: str
    told: str = ""
    """What was measured last, or why nothing is known."""
    good: float = 0.0
    """Since when it passes."""
    lasts: float = 0.0
    failures: int = 0
    limit: int = 1
    zone: str = "UTC"
    driver: str = ""
    at: float = 0.0
    """When it failed."""

    @property
    def ends(self) -> float | None:
        """Return when it will have passed, if it goes on so; None where that is not in sight."""
        return self.good + self.lasts if self.good and self.reason is Reason.ANALYSIS_RUNNING else None
