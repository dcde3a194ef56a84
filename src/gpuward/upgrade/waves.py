"""Which waves of a rollout are done, and what later ones wait for: it follows from the nodes and their records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward.model.analysis import Analysis, Measured, WaveAnalysis
from gpuward.model.begun_waves import BegunWaves
from gpuward.model.listing import some_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waves import (
    REST,
    Aborted,
    ApprovalRequired,
    CheckStatus,
    RolloutWaves,
    Wave,
    WaveEmpty,
    WaveFailed,
    WaveNotDone,
    WavePhase,
    WaveSoaking,
    WaveStatus,
    WaveWait,
    Word,
)
from gpuward.upgrade.analysis import NO_ANALYSIS, GateAnalysis, Seen, analysis_of, noted, seen_of
from gpuward.upgrade.begun_waves import begun_from_now, keys_of, known_to_have_begun, labels_of
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.wave_nodes import WaveNode, counted, places, without_older
from gpuward.upgrade.words import behind, is_about, rollout_aborted

NOTHING_MEASURED: Mapping[str, Measured] = {}


class WaveGate(msgspec.Struct, frozen=True):
    """Hold what a wave asks of those that want to start in later ones."""

    wave: Wave
    members: frozenset[str] = frozenset()
    waits: WaveNotDone | WaveFailed | WaveEmpty | None = None
    """What later waves wait for, whatever people said of its soak or approved of."""
    finished: float = 0.0
    """When the last of its nodes was done first: what people said since is about them all, also when one is upgraded again."""
    emptied: float = 0.0
    """When its last node was lost, which nobody knew before."""
    soaks: float | None = None
    """Until when it soaks; None where that is over."""
    analysis: GateAnalysis = NO_ANALYSIS
    done: int = 0
    total: int = 0


class Waves(msgspec.Struct, frozen=True):
    """Hold the waves of a rollout as its nodes are now."""

    places: Mapping[str, int] = {}
    gates: tuple[WaveGate, ...] = ()
    told: tuple[RolloutWaves, ...] = ()
    """The same for people; nothing where there are no waves."""
    growth: int | None = None
    """How many nodes may be under way at once by now."""
    zone: str = "UTC"
    note: Analysis | None = None
    """What is to be remembered of its analyses from now on; None where that is known already."""
    begun: BegunWaves | None = None
    """The same of the waves that have begun."""
    leaving: frozenset[str] = frozenset()
    """Nodes that go to another NVIDIADriver, and are in its waves."""


NO_WAVES = Waves()


class About(msgspec.Struct, frozen=True):
    """Tell what is about the driver that nodes are to get: which words of people, and what is known of waves that have begun."""

    approved: bool
    promoted: bool
    begun: bool


def waves_of(
    found: Iterable[WaveNode | None], facts: Iterable[NodeFacts], policy: UpgradePolicy, now: float, zone: str,
    measured: Mapping[str, Measured] = NOTHING_MEASURED,
) -> Waves:
    """Return the waves of a rollout, and how far it may have grown. Drivers that only go are in no wave."""
    rollout = policy.rollout
    no_upgrade = policy.off or policy.gone or policy.unowned or policy.absent
    if no_upgrade or not (rollout.waves or rollout.growth):
        return NO_WAVES
    facts, limit = tuple(facts), None
    late, every = behind(facts), targets_of_rollout(facts)
    nodes = without_older((node for node in found if node is not None), late)
    if rollout.growth is not None:
        limit = rollout.growth.limit(sum(bool(node.done and node.began) for node in nodes))
    if not rollout.waves:
        return Waves(growth=limit, zone=zone)
    where = places(nodes, rollout.waves)
    members: list[list[WaveNode]] = [[] for _ in range(len(rollout.waves) + 1)]
    for node in nodes:
        members[where[node.name]].append(node)
    seen, begun, keys = seen_of(policy, late, measured, now, zone), known_to_have_begun(policy, late, now), keys_of(rollout.waves)
    gates = tuple(_analysed(_gate(wave, nodes, now, begun, key, policy.driver), nodes, seen)
                  for key, wave, nodes in zip(keys, rollout.waves, members, strict=False))
    word, status = rollout_aborted(late, policy) if late else None, _told(gates, members, policy, late, zone)
    runs = tuple(run for gate in gates for run in gate.analysis.runs)
    told = RolloutWaves(policy.driver, _targets(late), status, every, zone, runs)
    note = noted([gate.analysis for gate in gates], seen, every)
    ongoing = ((key, nodes) for key, nodes, one in zip(keys, members, status, strict=False) if one.phase is not WavePhase.DONE)
    known = late or all(node.target for node in facts)
    remembered = begun_from_now(ongoing if late else (), begun, rollout.begun, every, now) if known else None
    return Waves(where, gates, (told if word is None else _ended(told, word),), limit, zone, note, remembered)


def _gate(wave: Wave, nodes: Sequence[WaveNode], now: float, begun: BegunWaves, key: str, driver: str) -> WaveGate:
    """Return how a wave stands. It is done when each node that can be is up to date, and at least one is.

    A failure that the wave tolerates, and that is not tried again, is waited for no longer; nor is a node that cannot be upgraded
    now. Without a node that is up to date nobody has seen the driver run there.
    """
    if not nodes and (since := begun.began.get(key)):
        empty, lost = WaveEmpty(wave.name, labels_of(wave), driver), begun.emptied.get(key, now)
        return WaveGate(wave, waits=empty, finished=since, emptied=lost)
    count = counted(nodes)
    done = [node for node in count if node.done]
    failed = [node.name for node in count if node.failed and not node.done]
    gate = WaveGate(wave, frozenset(node.name for node in nodes), done=len(done), total=len(count))
    limit = wave.tolerance.of(len(count))
    if len(failed) > limit:
        return _waiting(gate, WaveFailed(wave.name, len(failed), len(count), limit, some_of(failed)))
    awaited = [node.name for node in count if not (node.done or node.over or node.unable)]
    if not awaited and not done:
        awaited = [node.name for node in count]
    if awaited:
        return _waiting(gate, WaveNotDone(wave.name, len(done), len(count), some_of(awaited), len(awaited)))
    finished = _finished(count, [node.done_at for node in count])
    ends, seen = finished + wave.soak, _finished(count, [node.proven_at for node in count])
    return msgspec.structs.replace(gate, finished=seen, soaks=ends if finished and wave.soak and now < ends else None)


def _analysed(gate: WaveGate, nodes: Sequence[WaveNode], seen: Seen) -> WaveGate:
    """Return a wave whose nodes are done with how its analysis stands."""
    if gate.waits is not None:
        return gate
    found = analysis_of(gate.wave, nodes, gate.finished, seen, soaks=gate.soaks is not None)
    return msgspec.structs.replace(gate, analysis=found)


def _waiting(gate: WaveGate, waits: WaveNotDone | WaveFailed) -> WaveGate:
    return msgspec.structs.replace(gate, waits=waits)


def _finished(nodes: Sequence[WaveNode], done_at: Sequence[float]) -> float:
    """Return when the last node was done. One that joined with the driver starts no soak anew; if all did, the first counts."""
    done = [(node, at) for node, at in zip(nodes, done_at, strict=True) if node.done]
    ended = [at for node, at in done if node.began] + [node.failed_at for node in nodes if node.over]
    return max(ended, default=0.0) or min((at for _, at in done), default=0.0)


def waits_after(gate: WaveGate, policy: UpgradePolicy, zone: str, about: About) -> WaveWait | None:
    """Return what nodes of later waves wait for after one; `about` says what is about the driver that they are to get."""
    rollout, wave, approved = policy.rollout, gate.wave, about.approved
    let_go = about.promoted and rollout.promoted is not None and rollout.promoted.at >= max(gate.finished, gate.emptied)
    if gate.waits is not None and not (isinstance(gate.waits, WaveEmpty) and (let_go or not about.begun)):
        return gate.waits
    wanted = wave.approval and not (approved and _since(rollout.approved, gate))
    if not let_go:
        analysis = gate.analysis.waits
        if gate.soaks is not None and (analysis is None or analysis.reason is not Reason.ANALYSIS_FAILED):
            return WaveSoaking(wave.name, gate.soaks, zone, wanted, policy.driver)
        if analysis is not None:
            return analysis
    if not wanted:
        return None
    left = (total := len(gate.members)) - gate.total
    return ApprovalRequired(wave.name, policy.driver, not total, left, total if left else 0, gate.done if left else 0)


def _since(word: Word | None, gate: WaveGate) -> bool:
    """Tell whether a word was said when a wave was done already: who approves of one wave has not seen the next."""
    return word is not None and word.at >= gate.finished


_PHASES: Mapping[type[object], WavePhase] = {
    WaveFailed: WavePhase.FAILED, WaveEmpty: WavePhase.EMPTY, WaveSoaking: WavePhase.SOAKS,
    ApprovalRequired: WavePhase.APPROVAL, WaveNotDone: WavePhase.GOES}


def _phase(waits: WaveWait) -> WavePhase:
    if isinstance(waits, WaveAnalysis):
        return WavePhase.ANALYSIS_FAILED if waits.reason is Reason.ANALYSIS_FAILED else WavePhase.ANALYSIS
    return _PHASES[type(waits)]


_LASTING = frozenset({WavePhase.DONE, WavePhase.FAILED, WavePhase.EMPTY, WavePhase.ANALYSIS_FAILED})
"""Phases that say the same when a rollout was aborted."""


def _told(
    gates: Sequence[WaveGate], members: Sequence[Sequence[WaveNode]], policy: UpgradePolicy, late: Sequence[NodeFacts], zone: str
) -> tuple[WaveStatus, ...]:
    """Return the waves for people."""
    rollout, told = policy.rollout, list[WaveStatus]()
    about = About(is_about(rollout.approved, late), is_about(rollout.promoted, late), begun=True)
    first: WaveWait | None = None
    for gate, nodes in zip(gates, members, strict=False):
        waits = waits_after(gate, policy, zone, about) if late else gate.waits
        phase = WavePhase.DONE if waits is None else _phase(waits)
        if first is not None and phase is not WavePhase.DONE:
            phase = WavePhase.WAITS
        soaks = waits if phase is WavePhase.SOAKS and isinstance(waits, WaveSoaking) else None
        at = waits.at if isinstance(waits, WaveAnalysis) else 0.0
        told.append(_status(gate.wave.name, nodes, phase, soaks, max(gate.finished, at), gate.analysis.checks))
        first = first if first is not None else waits
    rest = members[-1]
    done = all(node.done or node.spared for node in rest)
    phase = WavePhase.DONE if done else WavePhase.GOES if first is None else WavePhase.WAITS
    return (*told, _status(REST, rest, phase))


def _ended(rollout: RolloutWaves, word: Word) -> RolloutWaves:
    """Return the waves of a rollout that was aborted: whatever they wait for, none of them goes on."""
    waves = tuple(each if each.phase in _LASTING else msgspec.structs.replace(each, phase=WavePhase.ABORTED)
                  for each in rollout.waves)
    return msgspec.structs.replace(rollout, waves=waves, aborted=Aborted(word.by, word.at, rollout.driver))


def _status(
    name: str, nodes: Sequence[WaveNode], phase: WavePhase, soaks: WaveSoaking | None = None, finished: float = 0.0,
    checks: tuple[CheckStatus, ...] = (),
) -> WaveStatus:
    count = counted(nodes)
    return WaveStatus(
        name, phase, len(count), sum(node.done for node in count),
        tuple(sorted(node.name for node in count if node.failed and not node.done)),
        tuple(sorted(node.name for node in count if not node.done)),
        soaks.ends if soaks is not None else None, soaks is not None and soaks.approval, finished, checks,
        tuple(sorted({node.name for node in nodes if not node.done} - {node.name for node in count})))


def targets_of_rollout(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """Return the drivers that nodes are to have, whether they have them or not."""
    return _targets(node for node in nodes if node.target and not node.removing)


def _targets(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    return tuple(sorted({node.target for node in nodes}))
