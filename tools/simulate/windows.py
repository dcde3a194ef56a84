"""The rule about windows: no node starts outside those of the RolloutPolicy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tools.simulate.known import known_settings
from tools.simulate.policies import EVERY

if TYPE_CHECKING:
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

UNDER_WAY: Final = 90.0
"""Seconds that the write of an admission may take from when it was decided, with what is drawn of faults and delays."""


def nobody_starts_outside_the_windows(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node while no window is open, but for one that people ask for, that failed, or that serves nobody as it is."""
    settings = known_settings(change.writer, change.history)
    if not change.admits or any(spec is None or not spec.get("windows") for spec in settings):
        return None
    before, after = change.before.memory(), change.after.memory()
    if after is None or after.forced or (before is not None and before.failure is not None):
        return None
    view = change.history.view(change.node, change.writer)
    if view is None or view.cordoned or not view.ready:
        return None
    if world.watch.machines.was_without(change.node, change.writer.known["pods"]):
        return None
    # The operator goes by the clock of its machine, which may have jumped.
    clocks = {world.now(), world.now() + world.offset}
    decided = [now - seconds for now in clocks for seconds in (0.0, UNDER_WAY / 3, 2 * UNDER_WAY / 3, UNDER_WAY)]
    if any(_is_open(spec["windows"], at) for spec in settings if spec is not None for at in decided):
        return None
    return f"no window was open for {UNDER_WAY:g} s, under {settings}"


def _is_open(windows: list[Object], at: float) -> bool:
    minutes = {window["kind"]: int(window["duration"].removesuffix("m")) for window in windows}
    into = at % (60 * EVERY) / 60
    return into < minutes.get("Allow", EVERY) and into >= minutes.get("Deny", 0)


__all__ = ["nobody_starts_outside_the_windows"]
