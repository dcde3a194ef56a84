"""Make a failing run small: fewer faults and fewer nodes, for as long as the same rule is broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from tools.simulate.scenario import Fault, Scenario
from tools.simulate.watch import Violation
from tools.simulate.world import RunResult, play

PATIENCE: Final = 120.0
"""Real seconds that shrinking may take."""


class Shrunk(msgspec.Struct, frozen=True):
    """Hold the smallest run found and how it ended."""

    scenario: Scenario
    result: RunResult
    tries: int


def shrink(
    scenario: Scenario, result: RunResult, patience: float = PATIENCE, run: Callable[[Scenario], RunResult] = play
) -> Shrunk:
    """Return a smaller run that breaks the same rule; the run itself if there is none."""
    assert result.violation is not None
    rule, until, tries = result.violation.rule, time.monotonic() + patience, 0

    def fails(candidate: Scenario) -> RunResult | None:
        nonlocal tries
        if time.monotonic() > until:
            return None
        tries += 1
        again = run(candidate)
        return again if again.violation is not None and again.violation.rule == rule else None

    scenario, result = _without_what_comes_later(scenario, result, fails)
    size = max(1, len(scenario.faults) // 2)
    while size >= 1:
        scenario, result = _without_some(scenario, result, size, fails)
        size //= 2
    for nodes in sorted({1, 2, 3, scenario.nodes // 2}):
        fewer = msgspec.structs.replace(scenario, nodes=nodes)
        if 0 < nodes < scenario.nodes and (again := fails(fewer)) is not None:
            return Shrunk(fewer, again, tries)
    return Shrunk(scenario, result, tries)


Fails = Callable[[Scenario], RunResult | None]


def _without_what_comes_later(scenario: Scenario, result: RunResult, fails: Fails) -> tuple[Scenario, RunResult]:
    violation: Violation | None = result.violation
    assert violation is not None
    if violation.at >= scenario.seconds:
        return scenario, result
    faults = tuple(fault for fault in scenario.faults if fault.at <= violation.at)
    shorter = msgspec.structs.replace(scenario, faults=faults, seconds=violation.at + 30.0)
    again = fails(shorter)
    return (shorter, again) if again is not None else (scenario, result)


def _without_some(scenario: Scenario, result: RunResult, size: int, fails: Fails) -> tuple[Scenario, RunResult]:
    """Leave out faults, so many at a time, from the last to the first."""
    faults: tuple[Fault, ...] = scenario.faults
    at = len(faults)
    while at > 0:
        first = max(0, at - size)
        fewer = msgspec.structs.replace(scenario, faults=faults[:first] + faults[at:])
        if (again := fails(fewer)) is not None:
            scenario, result, faults = fewer, again, fewer.faults
        at = first
    return scenario, result
