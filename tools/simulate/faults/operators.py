"""The operator's own process: killed and started anew, doubled, and under a clock that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.simulate.faults.kinds import End, kind

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import World


@kind("operator-restart", weight=4)
def restart(world: World, fault: Fault) -> None:
    """Kill the operator where it is and start one that knows nothing but what the API says."""
    world.kill_all()
    world.begin_operator()


@kind("operator-away", weight=1, lasts=(5.0, 240.0))
def away(world: World, fault: Fault) -> End:
    """Kill the operator, and start another one only later."""
    world.kill_all()
    return world.begin_operator_if_none


@kind("two-operators", weight=3, lasts=(1.0, 15.0))
def two_operators(world: World, fault: Fault) -> End:
    """Start another operator, which is elected, while the old one still believes that it leads; its writes may come late."""
    old = world.leader
    world.slow_down(old, 5.0 * fault.level)
    world.begin_operator()
    return lambda: world.kill(old)


@kind("handover", weight=2, lasts=(1.0, 60.0))
def handover(world: World, fault: Fault) -> End:
    """Let another operator look on, and be elected later; the old one goes on for a while in the belief that it leads."""
    new = world.begin_standby()

    def end() -> None:
        if new.runs:
            old = world.leader
            world.slow_down(old, 5.0 * fault.pick)
            world.elect(new)
            world.later(15.0 * fault.level, lambda: world.kill(old))

    return end


@kind("clock-jump", weight=1)
def clock_jump(world: World, fault: Fault) -> None:
    """Let the clock of the operator's machine jump by up to five minutes, either way."""
    world.offset += 600.0 * (fault.level - 0.5)
    for process in world.processes:
        process.jumped_at = world.now()
