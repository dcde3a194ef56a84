"""The waves of an NVIDIADriver with the nodes in them that come from elsewhere; see `comers`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.comers import as_there
from gpuward.upgrade.decide import Survey
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.wave_nodes import WaveNode, wave_node
from gpuward.upgrade.waves import Waves, waves_of
from gpuward.upgrade.words import aborted, counts_for

replace = msgspec.structs.replace


def with_comers(found: Iterable[Survey], snapshot: Snapshot) -> list[Survey]:
    """Return the surveys of all policies, where nodes that go to an NVIDIADriver from another policy are in its waves alone."""
    found = list(found)
    coming: dict[str, list[NodeDecision]] = {each.policy.driver: [] for each in found if each.policy.driver}
    for each in found:
        for node in each.nodes:
            owner = _owner(node)
            if owner in coming and owner != each.policy.driver:
                coming[owner].append(node)
    if not any(coming.values()):
        return found
    left = [_left(each, frozenset(coming), snapshot) for each in found]
    return [_joined(each, nodes, snapshot) if (nodes := coming.get(each.policy.driver)) else each for each in left]


def _owner(node: NodeDecision) -> str:
    return node.before.moving.owner if node.before.moving is not None else ""


def _left(found: Survey, owners: frozenset[str], snapshot: Snapshot) -> Survey:
    """Return a survey whose waves are without the nodes that go to one of these NVIDIADrivers."""
    fleet, others = found.fleet, owners - {found.policy.driver}
    leaving = frozenset(node.before.node.name for node in found.nodes if _owner(node) in others)
    if not leaving or not found.policy.rollout.waves:
        return found
    stay = [node for node in found.nodes if node.before.node.name not in leaving]
    waves = waves_of((node.wave for node in stay), (node.before for node in stay), found.policy, fleet.now, fleet.waves.zone,
                     snapshot.measured)
    return replace(found, fleet=replace(fleet, waves=replace(waves, growth=fleet.waves.growth, leaving=leaving)))


def _joined(found: Survey, coming: Sequence[NodeDecision], snapshot: Snapshot) -> Survey:
    policy, fleet = found.policy, found.fleet
    there = [as_there(node.before) for node in coming]
    if policy.rollout.aborted is not None:
        fleet = replace(fleet, aborted=fleet.aborted or any(aborted(node, policy) is not None for node in there))
    if not policy.rollout.waves:
        return replace(found, fleet=fleet)
    own = [node for node in found.nodes if _owner(node) in ("", policy.driver)]
    nodes = (*(node.wave for node in own), *(_wave_node(node, policy) for node in coming))
    facts = (*(node.before for node in own), *there)
    waves = waves_of(nodes, facts, policy, fleet.now, fleet.waves.zone, snapshot.measured)
    return replace(found, fleet=replace(fleet, waves_of_comers=waves, waves=_told(fleet, waves)))


def _told(fleet: Fleet, waves: Waves) -> Waves:
    """Return the waves of its own nodes; where these wait for nothing, people are told of those that come, for which checks are
    measured then.
    """
    if any(each.targets for each in fleet.waves.told):
        return fleet.waves
    return replace(fleet.waves, told=waves.told, note=waves.note, begun=waves.begun)


def _wave_node(node: NodeDecision, policy: UpgradePolicy) -> WaveNode:
    known, promoted = wave_node(node.before, node.path.node, policy, failed=node.standing.failed), policy.rollout.promoted
    passed = promoted is not None and known.name in promoted.nodes and counts_for(promoted, as_there(node.before))
    return replace(known, passed=passed, comes=True)


