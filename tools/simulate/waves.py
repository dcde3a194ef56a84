"""The rule about waves: the failures of a driver that always fails stay in the canary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuward import names
from gpuward.model.states import State
from tools.simulate.known import turns_drivers_off, word_of
from tools.simulate.policies import is_broken

if TYPE_CHECKING:
    from tools.simulate.history import History
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]


def a_driver_goes_no_further_than_the_canary_before_it_runs(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node of a later wave for a driver that no node has been brought to its end with.

    Judged where the canary is so many nodes, whichever they are, and nobody has changed that so far. A node that was sent to
    the driver before, or that people ask for, is no new one; one that is to have no driver any more, or to be skipped, or that
    another NVIDIADriver has by now, leaves the canary to another.
    """
    spec, after = change.history.only_settings(), change.after.memory()
    terms = world.watch.ledger.terms(change.node, change.before)
    if not terms or any(each != spec for each in change.history.settings_since(terms[0].nodes)):
        return None  # whoever granted the node may have known of no waves
    waves: list[Object] = (spec or {}).get("waves") or []
    if after is None or not (tried := tried_before(change, waves, world)) or _any_left(change, tried):
        return None
    if any(_has_ended(change, name, after.target) for name in change.history.nodes()) or is_promoted(change, after.target):
        return None
    return f"{', '.join(sorted(tried)[:3])} were sent to {after.target} before, and {waves[0]['nodes']} may be until one is done"


def is_promoted(change: NodeChange, target: str) -> bool:
    """Tell whether somebody has said that nodes of later waves may have a driver, whatever the first wave came to."""
    owners = change.history.owners(change.node, change.writer)
    return any(target in word_of(governor, names.PROMOTED).get("targets", ())
               for owner in {"", *owners} for governor in change.history.every(owner))


def waves_since(history: History, version: int) -> list[Object]:
    """Return the waves of the RolloutPolicy if it has had no others since a version, whatever else people changed there."""
    specs = history.settings_since(version)
    if any(map(is_broken, specs)):
        return []
    found: list[list[Object]] = [spec.get("waves") or [] for spec in specs]
    return found[0] if found and all(waves == found[0] for waves in found) else []


def tried_before(change: NodeChange, waves: Sequence[Object], world: SimulatedWorld) -> list[str]:
    """Return the nodes that were sent to a driver before one that is admitted for it, if they are as many as the first wave has;
    then this one is of a later wave. Nothing where that cannot be told.
    """
    room = waves[0].get("nodes") if waves else None
    after, before = change.after.memory(), change.before.memory()
    if not change.admits or not isinstance(room, int) or after is None or not after.target or after.forced:
        return []
    if (before is not None and before.target == after.target) or not is_driver(after.target, world):
        return []
    if any(turns_drivers_off(policy) for policy in change.history.policies(change.writer) if policy is not None):
        return []  # no wave tries how nodes are without a driver
    tried = [name for name in change.history.nodes() if name != change.node
             and change.history.owners(name, change.writer) & change.history.owners(change.node, change.writer)
             and _was_sent(change, name, after.target)]
    return tried if len(tried) >= room else []


def is_later(change: NodeChange, waves: Sequence[Object], world: SimulatedWorld) -> list[str]:
    """Return the nodes of the first wave if a node that is admitted is of a later one, and none of them is skipped; one that has
    a pod of its driver already goes no further by that.
    """
    tried, after = tried_before(change, waves, world), change.after.memory()
    if after is None or _any_left(change, tried):
        return []
    in_step = any((pod["metadata"].get("labels") or {}).get(names.REVISION_HASH) == after.target
                  for pod in world.driver_pods(change.node))
    return [] if in_step else tried


def _any_left(change: NodeChange, nodes: Sequence[str]) -> bool:
    """Tell whether any of some nodes leaves its wave to another: it is skipped, or another NVIDIADriver's by now, or about to be:
    it was done, and waits for another driver.
    """
    after = change.after.memory()
    return any((now := change.history.now(name)) is None or now.skipped or now.owner != change.after.owner
               or (now.state is State.UPGRADE_REQUIRED and after is not None and _has_ended(change, name, after.target))
               for name in nodes)


def is_driver(target: str, world: SimulatedWorld) -> bool:
    """Tell whether a target is the revision of a DaemonSet: drivers that go, and nodes that move, have words there."""
    revisions = world.sandbox.store.list("controllerrevisions.apps", names.DEFAULT_NAMESPACE)
    return any((each["metadata"].get("labels") or {}).get(names.REVISION_HASH) == target for each in revisions)


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


__all__ = ["a_driver_goes_no_further_than_the_canary_before_it_runs", "is_driver", "is_later", "tried_before", "waves_since"]
