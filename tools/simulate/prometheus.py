"""A Prometheus whose answers are drawn: samples that pass until something goes wrong, and a note of each answer."""

from __future__ import annotations

import asyncio
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuward.model.measuring import Answer, Sample

if TYPE_CHECKING:
    from gpuward.ports import Access
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

SERVER: Final = "http://prometheus.monitoring.svc:9090"
QUERY: Final = 'sum by (node) (errors{node=~"{{nodes}}"})'


class Mood(StrEnum):
    """Say how questions are answered."""

    PASSES = "passes"
    FAILS = "fails"
    SILENT = "no data"
    NAN = "NaN"
    WARNS = "a warning"
    DOWN = "no answer"


class Told(NamedTuple):
    """Hold one answer: when it was asked for, as samples are of that time, by which query, and how it was."""

    at: float
    query: str
    mood: Mood


class SimulatedPrometheus:
    """Implement `gpuward.ports.Prometheus`. The newest mood counts that has not ended."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._random = world.scenario.random("prometheus")
        self.moods: list[Mood] = []
        self.told: list[Told] = []

    async def ask(self, server: str, query: str, access: Access) -> Answer:
        """Return what the mood of the moment of the answer has."""
        asked = self._world.now()
        await asyncio.sleep(self._random.choice((0.01, 0.1, 1.5)))
        mood = self.moods[-1] if self.moods else Mood.PASSES
        self.told.append(Told(asked, query, mood))
        self._world.watch.met[f"answer {mood}"] += 1
        self._world.tell("", f"Prometheus answers: {mood} to {query[:80]}")
        samples = {Mood.PASSES: (0.0, 0.0), Mood.FAILS: (0.0, 1.0), Mood.NAN: (0.0, math.nan), Mood.WARNS: (0.0,)}.get(mood, ())
        if mood is Mood.DOWN:
            return Answer(None, "it cannot be reached")
        warning = "some of the store is away" if mood is Mood.WARNS else ""
        return Answer(tuple(Sample({"node": str(number)}, value) for number, value in enumerate(samples)), warning)


def check(interval: str, lasts: str, failures: int) -> Object:
    """Return a check of a wave that asks this Prometheus."""
    return {"name": "errors", "promql": {"server": SERVER, "query": QUERY, "failWhen": "> 0"}, "interval": interval, "for": lasts,
            "failures": failures}


__all__ = ["Mood", "SimulatedPrometheus", "check"]
