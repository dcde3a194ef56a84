"""What one run is: everything that is left to chance, drawn from one seed before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import msgspec

from tools.simulate.faults import KINDS
from tools.simulate.faults.kinds import VERBS
from tools.simulate.modes import MODES
from tools.simulate.policies import rollout_policy, upgrade_policy

SETTLING: Final = 90.0
"""Seconds from the start until the first fault: the stack is being installed meanwhile."""


class Ranges(msgspec.Struct, frozen=True):
    """Bound the size of runs, and where drivers come from in them."""

    nodes: tuple[int, int] = (3, 40)
    minutes: tuple[int, int] = (10, 30)
    modes: tuple[str, ...] = tuple(MODES)
    spared: tuple[str, ...] = ()
    """Rules that a run is not ended for."""
    plant: str = ""
    """The defect that is put back for these runs."""


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
    mode: str
    nodes: int
    seconds: float
    upgrade: Mapping[str, Any]
    rollout: Mapping[str, Any] | None
    workloads: tuple[str, ...]
    latency: float
    heals_policy: bool
    """Whether the end makes the policy one under which every node can be upgraded, or leaves it as it is."""
    stays_broken: bool
    """Whether drivers go on crashing on one node until the very end."""
    faults: tuple[Fault, ...]
    spared: tuple[str, ...] = ()
    plant: str = ""

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
    mode = ranges.modes[seed % len(ranges.modes)]
    return Scenario(
        seed=seed,
        mode=mode,
        nodes=nodes,
        seconds=seconds,
        upgrade=upgrade_policy(random),
        rollout=rollout_policy(random) if random.random() < 0.5 else None,
        workloads=_workloads(random),
        latency=random.choice((0.0, 0.004, 0.03)),
        heals_policy=random.random() < 0.8,
        stays_broken=random.random() < 0.2,
        faults=_in_order(_faults(Random(f"{seed}/faults"), seconds, pace, mode, seed // len(ranges.modes)),
                         _later_kinds(Random(f"{seed}/verbs"), seconds, mode, seed // len(ranges.modes))),
        spared=ranges.spared,
        plant=ranges.plant,
    )


class Variation(msgspec.Struct, frozen=True):
    """Say how a run differs from that of its seed: by where drivers come from, by faults that are added, as KIND@SECONDS, and
    whether those are all that there are.
    """

    seed: int
    mode: str = ""
    added: tuple[str, ...] = ()
    bare: bool = False

    def __str__(self) -> str:
        mode = (f" --as {self.mode}" if self.mode else "") + (" --bare" if self.bare else "")
        return f"--seed {self.seed}{mode}" + "".join(f" --add {each}" for each in self.added)

    def scenario(self, ranges: Ranges) -> Scenario:
        """Return the run."""
        run = draw(self.seed, ranges)
        added = tuple(added_fault(self.seed, each) for each in self.added)
        faults = sorted((*(() if self.bare else run.faults), *added), key=lambda fault: (fault.at, fault.kind))
        return msgspec.structs.replace(run, mode=self.mode or run.mode, faults=tuple(faults))


def added_fault(seed: int, text: str) -> Fault:
    """Return the fault that is added to the run of a seed by KIND@SECONDS."""
    kind, _, at = text.partition("@")
    return fault_of(float(at), kind, Random(f"{seed}/{text}"))


def _workloads(random: Random) -> tuple[str, ...]:
    kinds = ("inference", "batch", "training", "bare", "empty-dir", "daemonset", "holder", "two-budgets", "tolerant", "web")
    likely = {"inference": 0.8, "training": 0.4, "tolerant": 0.4, "holder": 0.4}
    return tuple(kind for kind in kinds if random.random() < likely.get(kind, 0.25))


DUE: Final = 5
"""So many kinds of faults are due in each run, in turn, so that no kind is left out of a mode for long."""
FEW_DUE: Final = 1
"""So many of those that people say of rollouts."""


def _faults(random: Random, seconds: float, pace: float, mode: str, turn: int) -> list[Fault]:
    mode_kinds, due = _kinds_of("", mode, turn, DUE)
    weights = [KINDS[kind].weight for kind in mode_kinds]
    moments = [SETTLING]
    while (at := moments[-1] + random.expovariate(1.0 / pace)) < seconds:
        moments.append(at)
    drawn = [(at, random.choices(mode_kinds, weights)[0]) for at in moments]
    drawn += [(random.uniform(SETTLING, max(SETTLING, seconds * 0.8)), kind) for kind in due]
    changes = random.randint(1, 4)
    drawn += [(random.uniform(SETTLING, max(SETTLING, seconds * 0.8)), "change-driver") for _ in range(changes)]
    return [fault_of(at, kind, random) for at, kind in drawn]


def _later_kinds(random: Random, seconds: float, mode: str, turn: int) -> list[Fault]:
    """Draw what people say of rollouts, which leaves the other draws of a seed as they were before there was that."""
    kinds, due = _kinds_of(VERBS, mode, turn, FEW_DUE)
    drawn = due + random.choices(kinds, [KINDS[kind].weight for kind in kinds], k=random.randint(0, 4))
    return [fault_of(random.uniform(SETTLING, max(SETTLING, seconds * 0.9)), kind, random) for kind in drawn]


def _kinds_of(stream: str, mode: str, turn: int, due: int) -> tuple[list[str], list[str]]:
    """Return the kinds of a stream that happen in a mode, and those of them that are due in a turn."""
    kinds = sorted(kind.name for kind in KINDS.values() if kind.stream == stream and kind.happens_in(mode))
    return kinds, [kinds[(due * turn + number) % len(kinds)] for number in range(due)]


def fault_of(at: float, kind: str, random: Random) -> Fault:
    """Return a fault of a kind at a time, drawn in everything else."""
    return Fault(round(at, 3), kind, _length(kind, random), random.random(), random.random())


def _in_order(*faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted((fault for some in faults for fault in some), key=lambda fault: (fault.at, fault.kind)))


def _length(kind: str, random: Random) -> float:
    shortest, longest = KINDS[kind].lasts
    return round(shortest + (longest - shortest) * random.random() ** 2, 1)
