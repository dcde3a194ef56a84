"""What the runs together have to meet: in every mode every kind of fault, and after each kind every transition and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from gpuward.model.reasons import Reason
from gpuward.model.states import TRANSITIONS
from gpuward.upgrade.fleet_gates import GATES
from tools.simulate.commands import COMMANDS
from tools.simulate.faults.kinds import KINDS, LED, Kind
from tools.simulate.modes import FAMILIES, MODES, PRECOMPILED, modes_with
from tools.simulate.prometheus import Mood

GATE_OF: Mapping[Reason, str] = {
    Reason.SKIPPED: "skipped",
    Reason.INVALID_POLICY: "invalid_policy",
    Reason.NODE_GONE: "node_gone",
    Reason.NODE_NOT_READY: "not_ready",
    Reason.WRONG_DRIVER_TYPE: "driver_type",
    Reason.DRIVER_POD_MISSING: "driver_pod_missing",
    Reason.DRIVER_UNPLACED: "driver_pod_missing",
    Reason.TWO_DRIVER_PODS: "two_driver_pods",
    Reason.TEMPLATE_SETTLING: "just_changed",
    Reason.TEMPLATE_EDITED: "template_settling",
    Reason.DRIVER_REPELLED: "driver_repelled",
    Reason.VALIDATION_OFF: "validation_off",
    Reason.IMAGE_MISSING: "image_missing",
    Reason.OPERANDS_STARTING: "operands_starting",
    Reason.HELD_DEVICES: "held_devices",
    Reason.PROTECTED_PODS: "protected_pods",
    Reason.FAILURE_BUDGET: "failure_budget",
    Reason.NEW_DRIVER_FAILS: "new_driver_fails",
    Reason.REFUSED_ELSEWHERE: "new_driver_fails",
    Reason.EVICTION_FORBIDDEN: "eviction_forbidden",
    Reason.DRIVER_KEPT: "driver_kept",
    Reason.UNDRAINABLE: "undrainable",
    Reason.IDLE_AWAITED: "idle_awaited",
    Reason.WINDOW_SHUT: "window_shut",
    Reason.GANG_SPARED: "gang_spared",
    Reason.PLAN_DIFFERS: "plan_differs",
    Reason.ABORTED: "rollout_aborted",
    Reason.MAINTENANCE_UNSEEN: "maintenance_unseen",
    Reason.WAVE_FAILED: "wave_waits",
    Reason.WAVE_EMPTY: "wave_waits",
    Reason.WAVE_NOT_DONE: "wave_waits",
    Reason.WAVE_SOAKING: "wave_waits",
    Reason.ANALYSIS_FAILED: "wave_waits",
    Reason.ANALYSIS_UNKNOWN: "wave_waits",
    Reason.ANALYSIS_RUNNING: "wave_waits",
    Reason.APPROVAL_REQUIRED: "wave_waits",
    Reason.WAVE_LIMIT: "wave_limit",
    Reason.GROWTH_LIMIT: "growth_limit",
    Reason.IMAGE_NOT_STAGED: "image_not_staged",
    Reason.STAGING_FAILED: "image_not_staged",
    Reason.BUDGET_BLOCKS: "eviction_budget",
    Reason.DOMAIN_LIMIT: "domain_limit",
    Reason.DOMAIN_BROKEN: "domain_limit",
    Reason.BUDGET_USED_UP: "eviction_budget",
    Reason.UNAVAILABLE_LIMIT: "max_unavailable",
    Reason.PARALLEL_LIMIT: "max_parallel",
}
"""Which gate holds a waiting node, by the reason that it gives."""

UNMET: Mapping[str, str] = {
    **dict.fromkeys(("reason MaintenanceUnseen", "reason MaintenanceAwaited", "gate maintenance_unseen"),
                    "there is no maintenance operator here, and none is asked"),
    "reason MigNotApplied": "no MIG manager leaves a node without its layout here",
    **dict.fromkeys(("reason EvictionForbidden", "gate eviction_forbidden"), "the operator of the runs may evict"),
    "reason WorkloadKept": "nobody asks for virtual machines by a node's label here",
    "reason Undecided": "it would be a bug",
    "reason ValidationOff": "nobody takes an operand from a node by its label",
    "gate validation_off": "nobody takes an operand from a node by its label",
    "reason ImageMissing": "the runs have no registry to ask",
    "gate image_missing": "the runs have no registry to ask",
    "reason DeletionUnseen": "the operator of the runs may list roles",
    "reason WaveEmpty": "waves of the runs take any node, and so do not run out of them",
    "reason WrongDriverType": "the runs have no NVIDIADrivers for hosts of virtual machines",
    "gate driver_type": "the runs have no NVIDIADrivers for hosts of virtual machines",
}
"""What no run is to meet, and why."""

_WITHOUT_DRIVERS: Final = sorted(MODES.keys() - modes_with())

UNMET_CELLS: tuple[tuple[str, str, str, str], ...] = (
    *(("*", "*", name, why) for name, why in UNMET.items()),
    ("clusterpolicy", "*", "reason MovePaused", "its one driver DaemonSet is for every node: none is moved to another one"),
    *((mode, "*", f"reason {reason}", "it is about NVIDIADrivers, and there is none")
      for mode in _WITHOUT_DRIVERS for reason in (Reason.NOT_SELECTED, Reason.DRIVER_REFUSED)),
    *((mode, "*", "reason KernelUnknown", "no driver is precompiled") for mode, found in MODES.items()
      if not found.precompiled and PRECOMPILED not in found.switches),
    *((mode, "*", "reason KernelUnknown", "discovery says the kernel of each node that joins") for mode, found in MODES.items()
      if found.precompiled),
)
"""Modes, groups of faults and names (patterns) that cannot meet, and why."""

SOME: Final = 600
"""With fewer runs than this transitions and reasons are asked for in some mode, with more of them in each family of modes."""
FEW: Final = 1000
"""With as many runs as this they are asked for in every mode and after every group of faults."""


class Cell(NamedTuple):
    """Name one cell of the table: in a mode, within a minute of a fault of a group, a transition or a reason."""

    mode: str
    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.mode} | {self.group} | {self.name}"


def groups() -> list[str]:
    """Return the groups of kinds of faults."""
    return sorted({kind.group for kind in KINDS.values()})


def wanted() -> list[str]:
    """Return the name of everything that can be met in some mode."""
    return [name for name in _everything() if name not in UNMET]


def _everything() -> Iterable[str]:
    yield from (f"fault {kind}" for kind in sorted(_drawn()))
    yield from (f"command {name}" for name in COMMANDS)
    yield from (f"answer {mood}" for mood in Mood)
    yield from _steps()


def _steps() -> Iterator[str]:
    yield from (f"reason {reason}" for reason in Reason)
    yield from (f"gate {gate.__name__}" for gate in GATES)
    for before, afters in TRANSITIONS.items():
        yield from (f"transition {before or 'unknown'} -> {after or 'unknown'}" for after in sorted(afters))


def _drawn() -> dict[str, Kind]:
    """Return the kinds of faults that seeds draw."""
    return {name: kind for name, kind in KINDS.items() if kind.stream != LED}


def wanted_faults() -> list[str]:
    """Return every kind of fault in every mode in which it can happen."""
    return [f"{mode} | fault {kind.name}" for mode in MODES for _, kind in sorted(_drawn().items()) if kind.happens_in(mode)]


def wanted_cells() -> list[Cell]:
    """Return every cell that can be met: a transition or a reason, in each mode, after each group of faults."""
    found = (Cell(mode, group, name) for mode in MODES for group in groups() if _has(mode, group)
             for name in _steps() if not name.startswith("gate "))
    return [cell for cell in found if why_unmet(cell) is None]


def in_mode(mode: str, name: str) -> str:
    """Return how it is counted that something was met in a mode, after whatever fault."""
    return f"{mode} | {name}"


def wanted_in_families() -> dict[str, list[str]]:
    """Return every transition and reason in each family of modes, with how it is counted in those that can meet it."""
    able: dict[str, list[str]] = {}
    for family, modes in FAMILIES.items():
        for mode, name in dict.fromkeys((cell.mode, cell.name) for cell in wanted_cells() if cell.mode in modes):
            able.setdefault(f"{family} | {name}", []).append(in_mode(mode, name))
    return able


def _has(mode: str, group: str) -> bool:
    return any(kind.group == group and kind.happens_in(mode) for kind in KINDS.values())


def why_unmet(cell: Cell) -> str | None:
    """Return why a cell cannot be met, None for one that can."""
    patterns = (why for mode, group, name, why in UNMET_CELLS
                if fnmatchcase(cell.mode, mode) and fnmatchcase(cell.group, group) and fnmatchcase(cell.name, name))
    return next(patterns, None)


def missing(met: Mapping[str, int], runs: int = 0, modes: Collection[str] = tuple(MODES)) -> list[str]:
    """Return what was never met by so many runs in some modes, and should have been. What has to be met in any mode, or in one
    of a family, is asked of runs in all of them.
    """
    lacking = [name for name in wanted_faults() if name.partition(" | ")[0] in modes and not met.get(name)]
    if len(modes) == len(MODES):
        lacking = [name for name in wanted() if not met.get(name)] + lacking
        if runs >= SOME:
            lacking += [name for name, where in wanted_in_families().items() if not any(map(met.get, where))]
    cells = (cell for cell in wanted_cells() if cell.mode in modes)
    return lacking if runs < FEW else lacking + [str(cell) for cell in cells if not met.get(str(cell))]


def together(lacking: Iterable[str]) -> list[str]:
    """Return what is missing in few lines: all groups of faults after which a mode did not meet something are in one."""
    lines: dict[str, list[str]] = {}
    for name in lacking:
        *before, what = name.split(" | ")
        mode, groups = before[:1], before[1:]
        lines.setdefault(" | ".join((*mode, what)), []).extend(groups)
    return [f"{line}, after {', '.join(groups)}" if groups else line for line, groups in lines.items()]


def table(met: Mapping[str, int], modes: Iterable[str] = tuple(MODES)) -> list[str]:
    """Return the table, a line for each of some modes: how many kinds of faults came, how many transitions and reasons were met,
    and how many of them after each group of faults.
    """
    columns = groups()
    cells = wanted_cells()
    can, did = (Counter((cell.mode, cell.group) for cell in found) for found in (cells, [
        cell for cell in cells if met.get(str(cell))]))
    kinds = Counter(name.partition(" | ")[0] for name in wanted_faults())
    seen = Counter(name.partition(" | ")[0] for name in wanted_faults() if met.get(name))
    steps = {in_mode(cell.mode, cell.name): cell.mode for cell in cells}
    can_mode, did_mode = Counter(steps.values()), Counter(mode for name, mode in steps.items() if met.get(name))
    lines = [f"{'mode':28}{'kinds':>9}{'all':>9}" + "".join(f"{group:>12}" for group in columns)]
    for mode in modes:
        shown = "".join(f"{f'{did[mode, group]}/{can[mode, group]}' if can[mode, group] else '-':>12}" for group in columns)
        both = f"{f'{seen[mode]}/{kinds[mode]}':>9}{f'{did_mode[mode]}/{can_mode[mode]}':>9}"
        lines.append(f"{mode:28}{both}{shown}")
    return lines
