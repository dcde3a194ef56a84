"""The rule about waves: the failures of a driver that always fails stay in the canary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuward import names
from gpuward.model.states import State

if TYPE_CHECKING:
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld


def a_driver_goes_no_further_than_the_canary_before_it_runs(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node of a later wave for a driver that no node has been brought to its end with.

    Judged where the canary is so many nodes, whichever they are, and nobody has changed that so far. A node that was sent to
    the driver before, or that people ask for, is no new one; one that is to have no driver any more leaves the canary to another.
    """
    room = _room(change)
    after, before = change.after.memory(), change.before.memory()
    if not change.admits or room is None or after is None or not after.target or after.forced:
        return None
    if (before is not None and before.target == after.target) or not _is_driver(after.target, world):
        return None
    tried = [name for name in change.history.nodes() if name != change.node
             and change.history.owners(name, change.writer) & change.history.owners(change.node, change.writer)
             and _was_sent(change, name, after.target)]
    if len(tried) < room or any(_has_ended(change, name, after.target) for name in change.history.nodes()):
        return None
    return f"{', '.join(sorted(tried)[:3])} were sent to {after.target} before, and {room} may be until one is done"


def _is_driver(target: str, world: SimulatedWorld) -> bool:
    """Tell whether a target is the revision of a DaemonSet: drivers that go, and nodes that move, have words there."""
    revisions = world.sandbox.store.list("controllerrevisions.apps", names.DEFAULT_NAMESPACE)
    return any((each["metadata"].get("labels") or {}).get(names.REVISION_HASH) == target for each in revisions)


def _room(change: NodeChange) -> int | None:
    """Return how many nodes the canary has, if that is one number under all settings that there were."""
    spec = change.history.only_settings()
    waves = spec.get("waves") if spec is not None else None
    room = waves[0].get("nodes") if waves else None
    return room if isinstance(room, int) else None


def _was_sent(change: NodeChange, name: str, target: str) -> bool:
    view = change.history.view(name, change.writer)
    record = view.memory() if view is not None and view.exists else None
    if view is None or not view.wanted or record is None or record.target != target:
        return False
    return any(sight.in_progress and (memory := sight.memory()) is not None and memory.target == target
               for sight in change.history.sights(name) if sight.uid == view.uid)


def _has_ended(change: NodeChange, name: str, target: str) -> bool:
    """Tell whether a node ever was done with a driver."""
    sights = change.history.sights(name)
    return any(sight.state is State.DONE and (record := sight.memory()) is not None and record.target == target
               for sight in sights)


__all__ = ["a_driver_goes_no_further_than_the_canary_before_it_runs"]
