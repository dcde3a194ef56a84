"""Decide about operands on what is recorded: when it is recorded, to know whether that says enough, and when it is replayed.

Objects that are made of custom resources without their secrets have other digests than those that were made then. So a recording
says for each of the former what the digest of the latter was: what is made the same again counts as what was made then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward.model.actions import Action
from gpuward.model.passes import Outcome, Pass
from gpuward.model.snapshot import Snapshot
from gpuward.operands.changes import Prepared
from gpuward.operands.decide import OperandMemory, Reconciliation, decide
from gpuward.operands.nvidiadriver.decide import DriverMemory, Driving, decide_drivers
from gpuward.operands.status import Verdict
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.recording.frame import Done
from gpuward.recording.operands import Concern, Decided, Judged, OperandPass, Told, write_of, written
from gpuward.recording.redacted import redacted


def pass_of_policies(seen: Pass[PoliciesInForce, Reconciliation]) -> OperandPass:
    """Return what is recorded of a pass over the ClusterPolicies."""
    decided = seen.decision or Reconciliation()
    return _pass(Concern.CLUSTER_POLICY, seen, _of_policies(decided, seen.policies), decided.actions)


def pass_of_drivers(seen: Pass[PoliciesInForce, Driving]) -> OperandPass:
    """Return what is recorded of a pass over the NVIDIADrivers."""
    decided = seen.decision or Driving()
    return _pass(Concern.NVIDIA_DRIVER, seen, _of_drivers(decided), decided.actions)


def told(seen: OperandPass, images: Mapping[str, str]) -> Told:
    """Return what a recording may say of a pass, and whether the same comes out on what is recorded."""
    safe = _without_secrets(seen.snapshot)
    digests = _digests(seen, safe, images)
    if seen.error:
        return Told(digests=digests)
    try:
        again = decide_again(seen.concern, safe, images, seen.at, digests)
    except Exception:  # what is left out of a custom resource may be what something goes by
        again = None
    if again is None or again.shape != seen.decided.shape:
        return Told(seen.decided.without_texts(), digests, comparable=False)
    return Told(again, digests)


def decide_again(
    concern: Concern, snapshot: Snapshot, images: Mapping[str, str], at: float, digests: Mapping[str, str]
) -> Decided:
    """Decide on facts alone, with the digests of objects as they were to be. Raises what ends the decision."""
    policies = PolicyReader().read(snapshot)
    if concern is Concern.NVIDIA_DRIVER:
        return _of_drivers(_drivers(snapshot, policies, images, at, digests)[0])
    return _of_policies(_policies(snapshot, policies, images, at, digests)[0], policies)


def _digests(seen: OperandPass, safe: Snapshot, images: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the objects as they were to be, by those of what is made of the recorded facts, where they differ."""
    try:
        wanted, made = (_made(seen.concern, snapshot, images, seen.at) for snapshot in (seen.snapshot, safe))
    except Exception:  # as the decision itself did then
        return {}
    return {made[key]: digest for key, digest in wanted.items() if made.get(key, digest) != digest}


def _made(concern: Concern, snapshot: Snapshot, images: Mapping[str, str], at: float) -> dict[tuple[str, str, str], str]:
    """Return the digests of all objects that are made of facts."""
    policies = PolicyReader().read(snapshot)
    decided = _drivers if concern is Concern.NVIDIA_DRIVER else _policies
    _, prepared = decided(snapshot, policies, images, at, {})
    return {obj.key: obj.digest for one in prepared for obj in one.objects}


def _policies(
    snapshot: Snapshot, policies: PoliciesInForce, images: Mapping[str, str], at: float, digests: Mapping[str, str]
) -> tuple[Reconciliation, tuple[Prepared, ...]]:
    memory = OperandMemory()
    decided = decide(snapshot, policies.policy, None, images, at, memory)
    if memory.rendered is not None and digests:
        key, states, prepared = memory.rendered
        memory.rendered = (key, states, _as_then(prepared, digests))
        decided = decide(snapshot, policies.policy, None, images, at, memory)
    return decided, memory.rendered[2] if memory.rendered is not None else ()


def _drivers(
    snapshot: Snapshot, policies: PoliciesInForce, images: Mapping[str, str], at: float, digests: Mapping[str, str]
) -> tuple[Driving, tuple[Prepared, ...]]:
    memory = DriverMemory()
    decided = decide_drivers(snapshot, policies, images, at, memory)
    if memory.rendered and digests:
        memory.rendered = {
            name: (key, msgspec.structs.replace(made, prepared=_as_then(made.prepared, digests)))
            for name, (key, made) in memory.rendered.items()
        }
        decided = decide_drivers(snapshot, policies, images, at, memory)
    return decided, tuple(one for _, made in memory.rendered.values() for one in made.prepared)


def _as_then(prepared: Iterable[Prepared], digests: Mapping[str, str]) -> tuple[Prepared, ...]:
    """Return prepared objects with the digests of those that were to be made then."""
    return tuple(
        msgspec.structs.replace(one, objects=tuple(
            msgspec.structs.replace(obj, digest=digests.get(obj.digest, obj.digest)) for obj in one.objects))
        for one in prepared
    )


def _without_secrets(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(
        snapshot,
        policies=tuple(map(redacted, snapshot.policies)),
        rollout_policies=tuple(map(redacted, snapshot.rollout_policies)),
        drivers=tuple(map(redacted, snapshot.drivers)),
        departed=tuple(map(redacted, snapshot.departed)),
    )


def _pass(
    concern: Concern, seen: Pass[PoliciesInForce, Reconciliation | Driving], decided: Decided, actions: Sequence[Action]
) -> OperandPass:
    numbers = {id(action): number for number, action in enumerate(written(actions))} if seen.outcomes else {}
    return OperandPass(concern, seen.snapshot, seen.at, decided, tuple(_done(seen.outcomes, numbers)), seen.error)


def _done(outcomes: Iterable[Outcome], numbers: Mapping[int, int]) -> Iterable[Done]:
    return (Done(numbers[id(outcome.action)], outcome.error, outcome.dropped, outcome.idle)
            for outcome in outcomes if id(outcome.action) in numbers)


def _of_policies(decided: Reconciliation, policies: PoliciesInForce) -> Decided:
    view = policies.policy.view
    verdicts = {view.name: _judged(decided.verdict)} if view is not None and decided.verdict is not None else {}
    return Decided(tuple(map(write_of, written(decided.actions))), verdicts, decided.waiting)


def _of_drivers(decided: Driving) -> Decided:
    verdicts = {name: _judged(verdict) for name, verdict in decided.verdicts.items()}
    return Decided(tuple(map(write_of, written(decided.actions))), verdicts, decided.waiting)


def _judged(verdict: Verdict) -> Judged:
    return Judged(verdict.state, verdict.reason, verdict.message)
