"""Nodes of other policies that go to an NVIDIADriver, seen from there: they keep to the waves of the driver that they will get.

They fill these waves like its own nodes that have yet to begin, after them, and none of its own nodes waits for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import window_shut
from gpuward.upgrade.wave_gates import growth_limit, held_by_wave, waits_before, wave_limit

T = TypeVar("T")


def goes_to(node: NodeFacts) -> str:
    """Return the NVIDIADriver that a node goes to; empty where it goes to none."""
    return node.moving.owner if node.moving is not None else ""


def comers(found: Iterable[tuple[str, Iterable[T]]], facts: Callable[[T], NodeFacts]) -> dict[str, list[T]]:
    """Return the nodes that go to each NVIDIADriver from another policy; `found` are the policies, by their NVIDIADrivers, and
    the nodes of each.
    """
    every = [(driver, tuple(nodes)) for driver, nodes in found]
    coming: dict[str, list[T]] = {driver: [] for driver, _ in every if driver}
    for driver, nodes in every:
        for node in nodes:
            owner = goes_to(facts(node))
            if owner in coming and owner != driver:
                coming[owner].append(node)
    return coming


def as_there(node: NodeFacts) -> NodeFacts:
    """Return a node with the driver for its target that it will get where it goes, as far as that is known."""
    after = node.next_target
    if not after.hash:
        return node
    return msgspec.structs.replace(
        node, target=after.hash, target_digest=after.digest, target_version=after.version, target_since=after.created,
        same=after.same, moving=None)


def waves_there(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node until all waves before its own are done where it goes: not one that failed on its way, or that somebody asked
    for.
    """
    waves = fleet.waves_of_comers
    place = waves.places.get(node.node.name, len(waves.gates))
    if node.requested or (node.record.failure is not None and not node.retargeted):
        return None
    waits = waits_before(place, as_there(node), waves, policy)
    return None if waits is None else held_by_wave(node, waits, fleet.now)


def windows_there(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node outside the windows of its wave where it goes."""
    return window_shut(node, msgspec.structs.replace(fleet, waves=fleet.waves_of_comers), policy)


def wave_limit_there(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while as many of its wave are out of service as may be where it goes."""
    return wave_limit(node, msgspec.structs.replace(fleet, waves=fleet.waves_of_comers), policy)


def growth_limit_there(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while as many are under way as the rollout has grown to where it goes."""
    return growth_limit(node, msgspec.structs.replace(fleet, waves=fleet.waves_of_comers), policy)
