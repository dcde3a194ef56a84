"""The waves of an NVIDIADriver with the nodes in them that come from elsewhere; see `comers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.begun_waves import keys_of
from gpuward.upgrade.comers import as_there, comers, goes_to
from gpuward.upgrade.decide import Survey
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.wave_nodes import WaveNode, wave_node
from gpuward.upgrade.waves import Waves, waves_of
from gpuward.upgrade.words import aborted, counts_for

replace = msgspec.structs.replace


def coming_to_others(found: Iterable[Survey], drivers: Iterable[str]) -> Mapping[str, Sequence[NodeDecision]]:
    """Return the nodes that go to each of these NVIDIADrivers from another policy."""
    nodes = {each.policy.driver: each.nodes for each in found}
    return comers(((driver, nodes.get(driver, ())) for driver in drivers), lambda node: node.before)


def with_comers(found: Survey, coming: Mapping[str, Sequence[NodeDecision]], snapshot: Snapshot) -> Survey:
    """Return a survey, where nodes that go to an NVIDIADriver from another policy are in its waves alone."""
    if not any(coming.values()):
        return found
    found = _left(found, frozenset(coming), snapshot)
    nodes = coming.get(found.policy.driver)
    return _joined(found, nodes, snapshot) if nodes else found


def _left(found: Survey, owners: frozenset[str], snapshot: Snapshot) -> Survey:
    """Return a survey whose waves are without the nodes that go to one of these NVIDIADrivers."""
    fleet, others = found.fleet, owners - {found.policy.driver}
    leaving = frozenset(node.before.node.name for node in found.nodes if goes_to(node.before) in others)
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
    if not policy.rollout.waves and policy.rollout.growth is None:
        return replace(found, fleet=fleet)
    own = [node for node in found.nodes if goes_to(node.before) in ("", policy.driver)]
    nodes = (*(node.wave for node in own), *(_wave_node(node, policy) for node in coming))
    facts = (*(node.before for node in own), *there)
    waves = waves_of(nodes, facts, policy, fleet.now, fleet.waves.zone, snapshot.measured)
    if not policy.rollout.waves:
        return replace(found, fleet=replace(fleet, waves_of_comers=waves))
    if any(node.moving is not None for node in there):  # what it is to get there nobody knows yet: nothing is forgotten for that
        waves = replace(waves, note=None, begun=None)
    alone = _alone(found, own, waves, snapshot)
    return replace(found, fleet=replace(fleet, waves_of_comers=waves, waves=_told(alone, waves)))


def _alone(found: Survey, own: Sequence[NodeDecision], joined: Waves, snapshot: Snapshot) -> Waves:
    """Return the waves of its own nodes. What is remembered of those in which others have begun that come is not about them."""
    policy, fleet, begun = found.policy, found.fleet, found.policy.rollout.begun
    keys = zip(keys_of(policy.rollout.waves), joined.gates, strict=True)
    others = begun.began.keys() & {key for key, gate in keys if gate.members}
    if not others:
        return fleet.waves
    left = replace(begun, began={key: at for key, at in begun.began.items() if key not in others})
    policy = replace(policy, rollout=replace(policy.rollout, begun=left))
    waves = waves_of((node.wave for node in own), (node.before for node in own), policy, fleet.now, fleet.waves.zone,
                     snapshot.measured)
    return replace(waves, growth=fleet.waves.growth, leaving=fleet.waves.leaving)


def _told(alone: Waves, waves: Waves) -> Waves:
    """Return the waves of its own nodes; where these wait for nothing, people are told of those that come, for which checks are
    measured then. Which waves have begun is known of both together.
    """
    if any(each.targets for each in alone.told):
        return replace(alone, begun=waves.begun)
    return replace(alone, told=waves.told, note=waves.note, begun=waves.begun)


def _wave_node(node: NodeDecision, policy: UpgradePolicy) -> WaveNode:
    known, promoted = wave_node(node.before, node.path.node, policy, failed=node.standing.failed), policy.rollout.promoted
    passed = promoted is not None and known.name in promoted.nodes and counts_for(promoted, as_there(node.before))
    return replace(known, passed=passed, comes=True)
