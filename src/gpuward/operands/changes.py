"""Which writes bring the objects of a cluster to what was rendered: the fewest that do."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.actions import Action, ApplyObject, DeleteObject
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import OwnedView, Ref
from gpuward.operands.objects import Json
from gpuward.operands.state import OperandState, applied_hash, ref_of, with_applied_hash, with_owner


def changes(states: Iterable[OperandState], owner: Ref, snapshot: Snapshot) -> tuple[Action, ...]:
    """Return what to apply and to delete, in the order of the states. A state with an error changes nothing.

    An object is left alone while it is the version that came of applying the same thing. What is there but of unknown origin,
    as after a restart, is read and replaced only if it differs. An object that is not there is not deleted.
    """
    actions: list[Action] = []
    for state in states:
        if state.error is not None:
            continue
        actions += (action for obj in state.objects if (action := _apply(obj, owner, snapshot, state.name)) is not None)
        for ref in state.absent:
            if (have := snapshot.owned.get((ref.kind, ref.namespace, ref.name))) is not None:
                gone = Ref(ref.namespace, ref.name, have.uid)
                actions.append(DeleteObject(ref.kind, gone, why=f"{state.name} does not want it"))
    return tuple(actions)


def _apply(obj: Json, owner: Ref, snapshot: Snapshot, state: str) -> ApplyObject | None:
    body = with_owner(obj, owner.name, owner.uid)
    digest = applied_hash(body)
    if obj["kind"] == "DaemonSet":
        body = with_applied_hash(body)
    ref = ref_of(obj)
    key = (ref.kind, ref.namespace, ref.name)
    have, last = snapshot.owned.get(key), snapshot.applied.get(key)
    if have is None:
        return ApplyObject(ref.kind, Ref(ref.namespace, ref.name), body, digest, why=f"{state} wants it")
    if _is_as_applied(have, last, digest):
        return None
    target = Ref(ref.namespace, ref.name, have.uid)
    unknown = last is None or last.hash == digest
    return ApplyObject(ref.kind, target, body, digest, have.version, verify=unknown, why=f"{state} wants it otherwise")


def _is_as_applied(have: OwnedView, last: Applied | None, digest: str) -> bool:
    if have.kind == "ServiceAccount":
        return True  # others add their secrets to it, so it is made once and then left alone
    if have.kind == "DaemonSet":
        return have.applied_hash == digest and (last is None or last.generation == have.generation)
    return last is not None and last.hash == digest and last.version == have.version
