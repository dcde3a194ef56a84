"""What one run is: everything that is left to chance, drawn from one seed before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import msgspec

from tools.simulate.faults import KINDS
from tools.simulate.policies import rollout_policy, upgrade_policy

SETTLING: Final = 90.0
"""Seconds from the start until the first fault: the stack is being installed meanwhile."""


class Ranges(msgspec.Struct, frozen=True):
    """Bound the size of runs."""

    nodes: tuple[int, int] = (3, 40)
    minutes: tuple[int, int] = (10, 30)


class Fault(msgspec.Struct, frozen=True):
    """Say what happens when. `pick` and `level` (0 to 1) choose what it hits and how hard, whatever is there then."""

    at: float
    kind: str
    seconds: float
    pick: float
    level: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.at:8.1f}  {self.kind}{lasts} (pick {self.pick:.3f}, level {self.level:.2f})"


class Scenario(msgspec.Struct, frozen=True):
    """Hold one run. Leaving out faults or nodes changes nothing about what the other faults are."""

    seed: int
    nodes: int
    seconds: float
    upgrade: Mapping[str, Any]
    rollout: Mapping[str, Any] | None
    workloads: tuple[str, ...]
    latency: float
    heals_policy: bool
    """Whether the end makes the policy one under which every node can be upgraded, or leaves it as it is."""
    faults: tuple[Fault, ...]

    def random(self, purpose: str) -> Random:
        """Return randomness for one purpose, independent of all others."""
        return Random(f"{self.seed}/{purpose}")


def draw(seed: int, ranges: Ranges | None = None) -> Scenario:
    """Return the run of a seed; most runs are small."""
    ranges = ranges or Ranges()
    random = Random(seed)
    low, high = ranges.nodes
    nodes = low + int((high - low + 1) * random.random() ** 4)
    seconds = 60.0 * random.randint(*ranges.minutes)
    pace = random.choice((3.0, 8.0, 20.0, 45.0))
    return Scenario(
        seed=seed,
        nodes=nodes,
        seconds=seconds,
        upgrade=upgrade_policy(random),
        rollout=rollout_policy(random) if random.random() < 0.5 else None,
        workloads=_workloads(random),
        latency=random.choice((0.0, 0.004, 0.03)),
        heals_policy=random.random() < 0.8,
        faults=_faults(Random(f"{seed}/faults"), seconds, pace),
    )


def _workloads(random: Random) -> tuple[str, ...]:
    kinds = ("inference", "batch", "training", "bare", "empty-dir", "daemonset", "holder", "two-budgets", "web")
    return tuple(kind for kind in kinds if random.random() < (0.8 if kind == "inference" else 0.25))


def _faults(random: Random, seconds: float, pace: float) -> tuple[Fault, ...]:
    kinds = sorted(KINDS)
    weights = [KINDS[kind].weight for kind in kinds]
    faults, at = [], SETTLING
    while at < seconds:
        kind = KINDS[random.choices(kinds, weights)[0]]
        shortest, longest = kind.lasts
        lasts = round(shortest + (longest - shortest) * random.random() ** 2, 1)
        faults.append(Fault(round(at, 3), kind.name, lasts, random.random(), random.random()))
        at += random.expovariate(1.0 / pace)
    changes = sorted(random.uniform(SETTLING, max(SETTLING, seconds * 0.8)) for _ in range(random.randint(1, 4)))
    faults += [Fault(round(at, 3), "change-driver", 0.0, random.random(), random.random()) for at in changes]
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind)))
