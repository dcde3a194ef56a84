"""People who say something of a rollout: by the commands of `gpuward`, by hand in the annotations that these write, or both."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpuward import names
from gpuward.model.states import State
from tools.simulate import modes
from tools.simulate.faults.kinds import VERBS, End, kind
from tools.simulate.policies import NVIDIA_DRIVERS, VERSIONS

if TYPE_CHECKING:
    from tools.simulate.drives import Governor
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

WORDS = (names.APPROVED, names.PROMOTED, names.ABORTED, names.RESUMED_AT, names.APPROVED_PLAN, names.PAUSED_AT)
GARBAGE = (
    "{", "yes", '{"at":"9999-12-31T23:59:59Z","by":"x","targets":[]}', '{"digest":"0","plan":"eNpLBAAAYgBi"}', "null",
    "[" * 3000)


def _option(governor: Governor, fault: Fault) -> str:
    """Return the NVIDIADriver that a command is about; mostly, and without one always, it is about all."""
    return governor.name if governor.resource == NVIDIA_DRIVERS and fault.level > 0.6 else ""


@kind("command-pause", weight=2, lasts=(20.0, 300.0), stream=VERBS)
def command_pause(world: SimulatedWorld, fault: Fault) -> End | None:
    """Turn upgrades off with `gpuward pause`, and on again with `gpuward resume`."""
    governor = world.governor(fault)
    if governor is None:
        return None
    driver = _option(governor, fault)
    world.terminal.pause(driver)
    return lambda: world.terminal.resume(driver)


@kind("command-resume", stream=VERBS)
def command_resume(world: SimulatedWorld, fault: Fault) -> None:
    """Let go on what is held."""
    if governor := world.governor(fault):
        world.terminal.resume(_option(governor, fault))


@kind("command-approve", weight=3, stream=VERBS)
def command_approve(world: SimulatedWorld, fault: Fault) -> None:
    """Approve of the wave that is done."""
    if governor := world.governor(fault):
        world.terminal.approve(_option(governor, fault))


@kind("command-promote", stream=VERBS)
def command_promote(world: SimulatedWorld, fault: Fault) -> None:
    """Let the next wave go."""
    if governor := world.governor(fault):
        world.terminal.promote(_option(governor, fault))


@kind("command-abort", weight=2, lasts=(30.0, 300.0), stream=VERBS)
def command_abort(world: SimulatedWorld, fault: Fault) -> End | None:
    """Abort the rollout that is under way, best one that has just begun, and think better of it later."""
    governor = world.governor(fault)
    if governor is None:
        return None
    driver = _option(governor, fault)
    if fault.level < 0.5:
        world.ask_for_another(governor, fault.pick)
    world.later(5.0 + 20.0 * fault.level, lambda: world.terminal.abort(driver))
    return lambda: world.terminal.resume(driver)


@kind("command-retry", weight=2, stream=VERBS)
def command_retry(world: SimulatedWorld, fault: Fault) -> None:
    """Have a node tried again, best one that failed."""
    if node := world.pick(world.nodes_in(State.FAILED) or world.gpu_nodes(), fault):
        world.terminal.retry(node)


@kind("command-skip", weight=3, lasts=(20.0, 600.0), stream=VERBS)
def command_skip(world: SimulatedWorld, fault: Fault) -> End | None:
    """Have a node left alone for a while, best one that waits or is under way."""
    node = world.pick(world.nodes_in(State.UPGRADE_REQUIRED, State.POD_DELETION_REQUIRED) or world.gpu_nodes(), fault)
    if node is None:
        return None
    world.terminal.skip(node)
    if fault.level < 0.4 and (governor := world.governor_of(node)):
        world.later(3.0, partial(_ask, world, governor, fault.pick))
    return lambda: world.label(node, names.UPGRADE_SKIP, None) if world.heals else world.terminal.skip(node, undo=True)


@kind("approve-plan", weight=4, lasts=(60.0, 400.0), stream=VERBS)
def approve_a_plan(world: SimulatedWorld, fault: Fault) -> End | None:
    """Approve of the plan for a driver version, then ask for that one or another one, or change a limit; take it back later."""
    governor = world.governor(fault)
    if governor is None:
        return None
    offered = modes.BRANCHES if world.is_precompiled(governor) else VERSIONS
    planned = "" if fault.level < 0.2 else offered[int(fault.pick * len(offered))]
    world.terminal.approve_plan(planned)
    if fault.level < 0.6:
        world.later(15.0, partial(_ask, world, governor, fault.level / 0.6))
    elif fault.level < 0.9:
        world.later(15.0, lambda: world.ask_for_version(governor, planned))
    else:
        world.later(15.0, lambda: world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(maxParallelUpgrades=4)))
    return lambda: forget_plans(world)


@kind("garbage-word", weight=2, lasts=(20.0, 200.0), stream=VERBS)
def garbage_word(world: SimulatedWorld, fault: Fault) -> End | None:
    """Write nonsense where a command notes what a person said, and take it away."""
    governor, key = world.governor(fault), WORDS[int(fault.level * len(WORDS))]
    if governor is None:
        return None
    world.annotate(governor, key, GARBAGE[int(fault.pick * len(GARBAGE))])
    return lambda: world.annotate(governor, key, None)


def _ask(world: SimulatedWorld, governor: Governor, level: float) -> None:
    world.ask_for_another(governor, level)


def forget_plans(world: SimulatedWorld) -> None:
    """Ask for no plan any more."""
    for governor in world.all_governors():
        world.annotate(governor, names.APPROVED_PLAN, None)


__all__ = ["forget_plans"]
