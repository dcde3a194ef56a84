"""The rule about windows: no node starts outside those of the RolloutPolicy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from tools.simulate.known import known_settings, turns_drivers_off
from tools.simulate.policies import EVERY
from tools.simulate.waves import is_driver, is_promoted

if TYPE_CHECKING:
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

UNDER_WAY: Final = 90.0
"""Seconds that the write of an admission may take from when it was decided, with what is drawn of faults and delays."""


def nobody_starts_outside_the_windows(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node while no window is open, but for one that people ask for, that failed, or that serves nobody as it is."""
    settings = known_settings(change.writer, change.history)
    if not change.admits or any(spec is None or not _may_be_shut(spec) for spec in settings):
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
    off = any(turns_drivers_off(policy) for policy in change.history.policies(change.writer) if policy is not None)
    # No wave tries how nodes are without a driver, and none has to be first after a promotion.
    first = _is_first(change, after.target, world) and not (off or is_promoted(change, after.target))
    if any(_is_open(windows, at) for spec in settings if spec is not None for windows in _that_may_hold(spec, first)
           for at in decided):
        return None
    return f"no window was open for {UNDER_WAY:g} s, under {settings}"


def _may_be_shut(spec: Object) -> bool:
    return bool(spec.get("windows") or any(wave.get("windows") for wave in spec.get("waves") or ()))


def _that_may_hold(spec: Object, first: bool) -> list[list[Object]]:
    """Return the windows of which some hold for a node: those of the canary where it is the first to get a driver, else those of
    any wave.
    """
    waves, common = spec.get("waves") or [], spec.get("windows") or []
    if first and waves:
        return [_together(waves[0].get("windows") or [], common)]
    return [common, *(_together(wave["windows"], common) for wave in waves if wave.get("windows"))]


def _together(own: list[Object], common: list[Object]) -> list[Object]:
    """Return the windows of a wave: what allows starts there stands in place of the RolloutPolicy's, what denies them adds."""
    allowing = [one for one in own if one["kind"] == "Allow"] or [one for one in common if one["kind"] == "Allow"]
    return [*allowing, *(one for one in (*common, *own) if one["kind"] == "Deny")]


def _is_first(change: NodeChange, target: str, world: SimulatedWorld) -> bool:
    """Tell whether a node is the first that is sent to a driver, of which no node has a pod: it is one of the canary then."""
    if not target or change.after.skipped or not is_driver(target, world):
        return False
    sights = (sight for name in change.history.nodes() for sight in change.history.sights(name))
    sent = any((memory := sight.memory()) is not None and memory.target == target and sight.in_progress
               and sight.version < change.after.version for sight in sights)
    in_step = any((pod["metadata"].get("labels") or {}).get(names.REVISION_HASH) == target
                  for name in change.history.nodes() for pod in world.driver_pods(name))
    return not (sent or in_step)


def _is_open(windows: list[Object], at: float) -> bool:
    into = at % (60 * EVERY) / 60
    allowed, denied = ([int(one["duration"].removesuffix("m")) for one in windows if one["kind"] == kind]
                       for kind in ("Allow", "Deny"))
    return into < max(allowed, default=EVERY) and into >= max(denied, default=0)


__all__ = ["nobody_starts_outside_the_windows"]
