"""The gate of admission that spares a gang which had to leave a node in this rollout, for a while."""

from __future__ import annotations

import msgspec

from gpuward.model.gangs import GangSpared
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.fleet import Candidate, Fleet
from gpuward.upgrade.gangs import GangUse, pods_by_gang


def most_at_once(fleet: Fleet, policy: UpgradePolicy) -> int:
    """Return how many nodes NVIDIA's limits let go at once at most."""
    unavailable = policy.max_unavailable.of(fleet.total)
    return min(unavailable, policy.max_parallel_upgrades) if policy.max_parallel_upgrades else unavailable


def with_parted(use: GangUse, fleet: Fleet, policy: UpgradePolicy) -> GangUse:
    """Return how gangs stand with those that have more nodes than NVIDIA's limits, or those of a wave, ever let go at once. Where
    a limit lets none go no part follows another.
    """
    most, limits = most_at_once(fleet, policy), [
        (gate.members, gate.wave.max_unavailable.of(len(gate.members)))
        for gate in fleet.waves.gates if gate.wave.max_unavailable is not None]
    parted = {gang for gang, size in use.sizes.items() if size > most > 0}
    parted |= {gang for gang, nodes in use.nodes.items() if any(len(nodes & members) > limit > 0 for members, limit in limits)}
    return msgspec.structs.replace(use, parted=frozenset(parted)) if parted else use


def gang_spared(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node to which a gang came after it had to leave another one, or this one, until it has ended or its time is up.

    A gang that can never leave at once goes in parts, one soon after the other: to let it work in between would cost more. Nodes
    that somebody asked for by hand, and those without a driver that is whole, start all the same.
    """
    settings = policy.rollout.gangs
    if settings is None or not fleet.gangs.left or node.requested or node.record.forced:
        return None
    found: GangSpared | None = None
    for gang, pods in pods_by_gang(node).items():
        if fleet.gangs.goes_in_parts(gang, policy.rollout.domains):
            continue
        for pod in pods:
            left = fleet.gangs.left_before(gang, pod)
            evicts = left.at + settings.until if left is not None else 0.0
            if left is not None and fleet.now < evicts and (found is None or evicts > found.evicts):
                found = GangSpared(gang, pod.ref, left.node, evicts)
    return None if found is None else Hold(found, node.record.since, found.evicts)
