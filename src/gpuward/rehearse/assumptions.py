"""What a rehearsal assumes: how long things take, each drawn anew whenever something takes it."""

from __future__ import annotations

import math
from random import Random
from typing import Final

import msgspec

from gpuward.sandbox.delays import GpuDelays

_P90: Final = 1.2815515655446004
"""The 90th percentile of the normal distribution, in standard deviations."""
_STEPS: Final = 4
"""Of the validator: driver, toolkit, CUDA and plugin."""


class Assumptions(msgspec.Struct, frozen=True):
    """Hold how long things take, in seconds: the median, and by which factor one in ten takes longer; approvals are not drawn."""

    driver: float = 240.0
    """From the start of the driver container until the driver is loaded."""
    validation: float = 60.0
    """From then until the validator is ready."""
    eviction: float = 30.0
    """From a pod's eviction to its end; its grace period bounds it."""
    start: float = 30.0
    """From a pod's binding to its first container."""
    job: float = 3600.0
    """For how long pods of Jobs run on that say nothing about it."""
    spread: float = 1.5
    """So many times the median, or longer, takes what is slow: one in ten."""
    approval: float = 0.0
    """From a wave's asking for an approval until somebody gives it."""

    def drawn(self, median: float, random: Random) -> float:
        """Draw how long something takes once, from a log-normal distribution."""
        if self.spread <= 1.0:
            return median
        return median * math.exp(random.gauss(0.0, math.log(self.spread) / _P90))


class DrawnDelays(GpuDelays):
    """Be the delays of a sandbox, drawn by seed."""

    def __init__(self, assumed: Assumptions, seed: int) -> None:
        self._assumed, self._random = assumed, Random(f"delays/{seed}")
        super().__init__(heartbeat_seconds=0.0, manager_seconds=2.0, discovery_seconds=5.0, toolkit_seconds=5.0,
                         pod_start_seconds=assumed.drawn(assumed.start, self._random))

    @property
    def driver_seconds(self) -> float:
        """Draw how long a driver container takes."""
        return self._assumed.drawn(self._assumed.driver, self._random)

    @driver_seconds.setter
    def driver_seconds(self, value: float) -> None:
        del value

    @property
    def validator_seconds(self) -> float:
        """Draw how long a step of the validator takes."""
        return self._assumed.drawn(self._assumed.validation / _STEPS, self._random)

    @validator_seconds.setter
    def validator_seconds(self, value: float) -> None:
        del value
