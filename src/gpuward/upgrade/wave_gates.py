"""The gates of admission that keep to the waves of a rollout, to its growth, and to the word of who aborted it."""

from __future__ import annotations

from gpuward.model.analysis import WaveAnalysis
from gpuward.model.approved_plan import PlanDiffers
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waves import Aborted, WaveLimit, WaveSoaking, WaveWait
from gpuward.upgrade.fleet import Candidate, Fleet, some_nodes
from gpuward.upgrade.in_use import in_the_way
from gpuward.upgrade.waves import About, Waves, waits_after
from gpuward.upgrade.words import aborted, counts_for, is_placed_anew, names_versions, runs_any


def rollout_aborted(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node, also one that failed or that somebody asked for, whose driver somebody wants to go no further. Where the
    word names no versions, one that another DaemonSet is for now waits as long as the word is about any node.
    """
    word, said = aborted(node, policy), policy.rollout.aborted
    if word is None and said is not None and fleet.aborted and is_placed_anew(node) and not names_versions(said):
        word = said
    return None if word is None else Hold(Aborted(word.by, word.at, policy.driver), node.record.since)


def plan_differs(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node, also one that somebody asks for, while the rollout is not the one that somebody approved of."""
    if not fleet.differs:
        return None
    return Hold(PlanDiffers(fleet.differs[0], len(fleet.differs)), node.record.since)


def wave_waits(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node until all waves before its own are done, have soaked and are approved of.

    Not one that has the driver already, that failed with it, or that somebody asked for by hand.
    """
    place = fleet.waves.places.get(node.node.name, len(fleet.waves.gates))
    if not place or node.node.name in fleet.waves.leaving or node.requested or (node.in_step and not in_the_way(node)):
        return None
    if not node.retargeted and (node.record.failure is not None or (node.record.forced and node.record.target)):
        return None
    waits = waits_before(place, node, fleet.waves, policy)
    return None if waits is None else held_by_wave(node, waits, fleet.now)


def waits_before(place: int, node: Candidate, waves: Waves, policy: UpgradePolicy) -> WaveWait | None:
    """Return what a node waits for in the waves before its own."""
    rollout = policy.rollout
    begun = node.moving is not None or runs_any(rollout.begun.targets, node)  # what it gets elsewhere may not be known yet
    about = About(counts_for(rollout.approved, node), counts_for(rollout.promoted, node), begun)
    found = (waits_after(gate, policy, waves.zone, about) for gate in waves.gates[:place])
    return next((each for each in found if each is not None), None)


def held_by_wave(node: Candidate, waits: WaveWait, now: float) -> Hold:
    """Return the hold of a node that waits for a wave; one that soaks, or whose checks pass so far, is over at a known time."""
    ends = waits.ends if isinstance(waits, WaveSoaking | WaveAnalysis) else None
    return Hold(waits, node.record.since, ends if ends is not None and ends > now else None)


def wave_limit(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while as many of its wave are out of service as may be; one that is out already takes nothing more away."""
    place = fleet.waves.places.get(node.node.name, len(fleet.waves.gates))
    gate = fleet.waves.gates[place] if place < len(fleet.waves.gates) else None
    if gate is None or gate.wave.max_unavailable is None or node.node.name in fleet.waves.leaving:
        return None
    out, limit = fleet.unavailable & gate.members, gate.wave.max_unavailable.of(len(gate.members))
    if len(out - {node.node.name}) < limit:
        return None
    return Hold(WaveLimit(Reason.WAVE_LIMIT, len(out), limit, some_nodes(out), len(out & fleet.announced)), node.record.since)


def growth_limit(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while as many are under way as the rollout has grown to; for one that goes elsewhere that there counts."""
    limit = fleet.waves.growth
    elsewhere = node.moving is not None and node.moving.owner not in ("", policy.driver)
    if limit is None or elsewhere or len(fleet.in_progress) < limit:
        return None
    used = fleet.in_progress
    told = WaveLimit(Reason.GROWTH_LIMIT, len(used), limit, some_nodes(used), len(used & fleet.announced))
    return Hold(told, node.record.since)
