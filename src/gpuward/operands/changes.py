"""Which writes bring the objects of a cluster to what was rendered: the fewest that do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from gpuward.model.actions import Action, ApplyObject, DeleteObject
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import DaemonSetView, Ref
from gpuward.operands.driver.adoption import Adoption, adoption
from gpuward.operands.driver.withholding import Withholding, told_otherwise, withholding
from gpuward.operands.objects import Json
from gpuward.operands.state import ObjectRef, OperandState, OwnerKind, applied_hash, ref_of, with_applied_hash, with_owner

Key = tuple[str, str, str]
"""An object's kind, namespace and name."""


class WantedObject(msgspec.Struct, frozen=True):
    """Hold an object as it is written: with its owner, its hash, and what has to be there before it."""

    ref: Ref
    body: Json
    digest: str
    needs: tuple[Key, ...]
    owner: str
    """The owner's uid."""

    @property
    def key(self) -> Key:
        """Return the object's kind, namespace and name."""
        return self.body["kind"], self.ref.namespace, self.ref.name


class Prepared(msgspec.Struct, frozen=True):
    """Hold one state, ready to be compared with a cluster again and again."""

    state: str
    objects: tuple[WantedObject, ...]
    absent: tuple[ObjectRef, ...]


def prepare(states: Iterable[OperandState], owner: Ref, kind: OwnerKind = "ClusterPolicy") -> tuple[Prepared, ...]:
    """Return the states as they are written; those with an error, which change nothing, are left out."""
    return tuple(
        Prepared(state.name, tuple(_wanted(obj, owner, kind) for obj in state.objects), state.absent)
        for state in states
        if state.error is None
    )


def _wanted(obj: Json, owner: Ref, kind: OwnerKind) -> WantedObject:
    body = with_owner(obj, owner.name, owner.uid, kind)
    digest = applied_hash(body)
    ref = ref_of(obj)
    stored = with_applied_hash(body) if ref.kind == "DaemonSet" else body
    return WantedObject(Ref(ref.namespace, ref.name), stored, digest, tuple(_needs(obj)), owner.uid)


def changes(states: Iterable[Prepared], snapshot: Snapshot, empties: Set[str] = frozenset(), *,
            only_missing: bool = False) -> tuple[Action, ...]:
    """Return what to apply and to delete, in the order of the states.

    An object is left alone while it is the version that came of applying the same thing. What is there but of unknown origin,
    as after a restart, is read and replaced only if it differs. An object that is not there is not deleted. One that is on its
    way out is made again once it is gone. One that needs another which is about to be made comes in a later pass. A driver
    DaemonSet of an owner (uid) whose upgrades `empties` names waits until it replaces no driver under pods.
    With `only_missing` what is there stays as it is.
    """
    states = tuple(states)
    to_come = {obj.key for state in states for obj in state.objects if is_missing(obj.key, snapshot)}
    actions: list[Action] = []
    for state in states:
        for obj in state.objects:
            if only_missing and obj.key not in to_come:
                continue
            taken = adoption(obj.body, snapshot) if obj.key[0] == "DaemonSet" and obj.key in to_come else Adoption()
            actions += taken.actions
            if taken.pods or not to_come.isdisjoint(obj.needs):
                continue
            if (action := _apply(obj, snapshot, state.state)) is None:
                continue
            is_driver = obj.owner in empties and obj.key[0] == "DaemonSet"
            held = withholding(obj.body, snapshot, is_new=obj.key in to_come) if is_driver else Withholding()
            if obj.key[0] == "DaemonSet" and not is_driver:
                held = Withholding(told_otherwise(obj.body, snapshot))
            actions += held.actions if held.nodes else [msgspec.structs.replace(action, withholds=is_driver)]
        for ref in state.absent if not only_missing else ():
            have = snapshot.owned.get((ref.kind, ref.namespace, ref.name))
            if have is not None and have.owner_uid and not have.deleting:
                gone = Ref(ref.namespace, ref.name, have.uid)
                actions.append(DeleteObject(ref.kind, gone, why=f"{state.state} no longer needs it"))
    return tuple(actions)


def is_applied(wanted: WantedObject, snapshot: Snapshot) -> bool:
    """Tell whether an object is there as it is wanted."""
    have = snapshot.owned.get(wanted.key)
    return have is not None and have.applied_hash == wanted.digest


def is_to_be_written(wanted: WantedObject, snapshot: Snapshot) -> bool:
    """Tell whether an object is to be written, now or once nothing keeps it from that."""
    return _apply(wanted, snapshot, "") is not None


def is_missing(key: Key, snapshot: Snapshot) -> bool:
    """Tell whether an object is not there, or not for long. One of a kind that is not known now is where it was made last."""
    have = snapshot.owned.get(key)
    if have is None:
        return key[0] not in snapshot.unlisted or key not in snapshot.applied
    return have.deleting


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


def _apply(wanted: WantedObject, snapshot: Snapshot, state: str) -> ApplyObject | None:
    kind, ref, digest = wanted.key[0], wanted.ref, wanted.digest
    if kind in snapshot.unlisted:
        return None
    have, last = snapshot.owned.get(wanted.key), snapshot.applied.get(wanted.key)
    there = _daemon_set(wanted, snapshot) if kind == "DaemonSet" else None
    if there is not None and (there.deleting or leaves_pods(there, _node_selector(wanted.body), snapshot)):
        return None
    body = wanted.body if there is None else with_selector(wanted.body, there.selector)
    if have is None:
        return ApplyObject(kind, ref, body, digest, again=last is not None, why=f"{state} needs it")
    if have.deleting or _is_as_applied(have, last, wanted, there):
        return None
    target = Ref(ref.namespace, ref.name, have.uid)
    unknown = last is None or last.hash == digest
    return ApplyObject(kind, target, body, digest, have.version, verify=unknown, why=f"{state} needs it changed")


def _daemon_set(wanted: WantedObject, snapshot: Snapshot) -> DaemonSetView | None:
    found = (ds for ds in snapshot.daemonsets if (ds.namespace, ds.name) == (wanted.ref.namespace, wanted.ref.name))
    return next(found, None)


def leaves_pods(ds: DaemonSetView, selector: Mapping[str, str], snapshot: Snapshot) -> bool:
    """Tell whether a DaemonSet that selects other nodes would leave one on which a pod of it lives, to be labelled first. A pod
    that is not ready on a node without GPUs has loaded no driver: it came by an edit of the DaemonSet.
    """
    if ds.node_selector == selector:
        return False
    left = [node for node in snapshot.nodes.values()
            if ds.node_selector.items() <= node.labels.items() and not selector.items() <= node.labels.items()]
    return any(pod.is_owned_by(ds.uid) and not pod.deleting and not pod.finished and (node.gpu_present or pod.ready)
               for node in left for pod in snapshot.pods.get(node.name, ()))


def with_selector(body: Json, selector: Mapping[str, str]) -> Json:
    """Return a DaemonSet with the selector that it was made with, which nobody may change."""
    if not selector or body["spec"]["selector"]["matchLabels"] == selector:
        return body
    return {**body, "spec": {**body["spec"], "selector": {"matchLabels": dict(selector)}}}


def _node_selector(body: Json) -> Mapping[str, str]:
    selector: Mapping[str, str] = body["spec"]["template"]["spec"].get("nodeSelector", {})
    return selector


def _is_as_applied(have: OwnedView, last: Applied | None, wanted: WantedObject, there: DaemonSetView | None) -> bool:
    digest = wanted.digest
    if have.kind == "ServiceAccount":
        # Others add their secrets to it, so it is made once and then left alone, as one is that somebody else made. With an owner
        # that is gone, or goes, it would go too, under the pods that use it: it gets its new owner, as everything else does.
        return have.owner_uid in ("", wanted.owner)
    if have.kind == "DaemonSet":
        if last is None or have.applied_hash != digest:
            return False
        # Whoever edits a template or a label by hand leaves our hash on it.
        return last.generation == have.generation and (there is None or last.metadata_digest == there.metadata_digest)
    return last is not None and last.hash == digest and last.version == have.version
