"""Which writes bring the objects of a cluster to what was rendered: the fewest that do."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.actions import Action, ApplyObject, DeleteObject
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import OwnedView, Ref
from gpuward.operands.objects import Json
from gpuward.operands.state import OperandState, applied_hash, ref_of, with_applied_hash, with_owner

Key = tuple[str, str, str]
"""An object's kind, namespace and name."""


def changes(states: Iterable[OperandState], owner: Ref, snapshot: Snapshot) -> tuple[Action, ...]:
    """Return what to apply and to delete, in the order of the states. A state with an error changes nothing.

    An object is left alone while it is the version that came of applying the same thing. What is there but of unknown origin,
    as after a restart, is read and replaced only if it differs. An object that is not there is not deleted. One that needs
    another which is about to be made comes in a later pass.
    """
    sound = [state for state in states if state.error is None]
    to_come = {key for state in sound for obj in state.objects if _is_new(key := _key(obj), snapshot)}
    actions: list[Action] = []
    for state in sound:
        ready = [obj for obj in state.objects if to_come.isdisjoint(_needs(obj))]
        actions += (action for obj in ready if (action := _apply(obj, owner, snapshot, state.name)) is not None)
        for ref in state.absent:
            if (have := snapshot.owned.get((ref.kind, ref.namespace, ref.name))) is not None:
                gone = Ref(ref.namespace, ref.name, have.uid)
                actions.append(DeleteObject(ref.kind, gone, why=f"{state.name} does not want it"))
    return tuple(actions)


def _is_new(key: Key, snapshot: Snapshot) -> bool:
    return key not in snapshot.owned and key not in snapshot.applied


def _needs(obj: Json) -> Iterable[Key]:
    """Yield what must be there before an object is written.

    The API server refuses a binding whose role it does not find, but to administrators of the whole cluster; and a DaemonSet
    gets no pods, and waits long to try again, while their service account or runtime class is not found.
    """
    namespace = obj["metadata"].get("namespace", "")
    if role := obj.get("roleRef"):
        yield role["kind"], namespace if role["kind"] == "Role" else "", role["name"]
    elif obj["kind"] == "DaemonSet":
        pod = obj.get("spec", {}).get("template", {}).get("spec", {})
        yield "ServiceAccount", namespace, pod.get("serviceAccountName", "")
        yield "RuntimeClass", "", pod.get("runtimeClassName", "")


def _key(obj: Json) -> Key:
    ref = ref_of(obj)
    return ref.kind, ref.namespace, ref.name


def _apply(obj: Json, owner: Ref, snapshot: Snapshot, state: str) -> ApplyObject | None:
    body = with_owner(obj, owner.name, owner.uid)
    digest = applied_hash(body)
    if obj["kind"] == "DaemonSet":
        body = with_applied_hash(body)
    ref = ref_of(obj)
    key = _key(obj)
    if ref.kind in snapshot.unlisted:
        return None
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
        known = last is not None and last.generation == have.generation
        return known and have.applied_hash == digest  # whoever edits a template by hand leaves our hash on it
    return last is not None and last.hash == digest and last.version == have.version
