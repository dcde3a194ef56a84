"""The operator's own process: killed and started anew, doubled, and under a clock that jumps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuward import names
from tools.simulate.faults.kinds import End, kind

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld


@kind("operator-restart", weight=4)
def restart(world: SimulatedWorld, fault: Fault) -> None:
    """Kill the operator where it is and start one that knows nothing but what the API says."""
    world.kill_all()
    world.begin_operator()


@kind("operator-away", weight=1, lasts=(5.0, 240.0))
def away(world: SimulatedWorld, fault: Fault) -> End:
    """Kill the operator, and start another one only later."""
    world.kill_all()
    return world.begin_operator_if_none


@kind("two-operators", weight=3, lasts=(1.0, 15.0))
def two_operators(world: SimulatedWorld, fault: Fault) -> End:
    """Start another operator, which is elected, while the old one still believes that it leads; its writes may come late."""
    old = world.leader
    world.slow_down(old, 5.0 * fault.level)
    world.begin_operator()
    return lambda: world.kill(old)


@kind("handover", weight=2, lasts=(1.0, 60.0))
def handover(world: SimulatedWorld, fault: Fault) -> End:
    """Let another operator look on, and be elected later; the old one goes on for a while in the belief that it leads."""
    new = world.begin_standby()

    def end() -> None:
        if new.runs:
            old = world.leader
            world.slow_down(old, 5.0 * fault.pick)
            world.elect(new)
            world.later(15.0 * fault.level, lambda: world.kill(old))

    return end


@kind("relieved-at-grant", weight=4, lasts=(30.0, 400.0))
def relieved_at_grant(world: SimulatedWorld, fault: Fault) -> End:
    """Let another operator be elected in the moment in which the old one's grant is in the ledger and its patch is still to come.

    Half the time somebody asks at once that a granted node be left alone, so that the new leader would choose another one.
    """
    new = world.begin_standby()

    def elect(granted: Sequence[str] = ()) -> None:
        if not new.runs or new.leads:
            return
        old = world.leader
        world.slow_down(old, 1.0 + 5.0 * fault.pick)
        world.elect(new)
        world.later(5.0 + 15.0 * fault.level, lambda: world.kill(old))
        if granted and fault.level < 0.5:
            world.label(granted[0], names.UPGRADE_SKIP, "true")
            world.later(60.0, lambda: world.label(granted[0], names.UPGRADE_SKIP, None))

    world.watch.ledger.awaited.append(elect)
    return elect


@kind("clock-jump", weight=1)
def clock_jump(world: SimulatedWorld, fault: Fault) -> None:
    """Let the clock of the operator's machine jump by up to five minutes, either way."""
    world.offset += 600.0 * (fault.level - 0.5)
    for process in world.processes:
        process.jumped_at = world.now()
