"""The garbage collector: what happens to objects whose owners go away.

Facts from the Kubernetes garbage collector. Background: dependents go when their last owner is gone. Foreground: the
owner waits, with finalizer `foregroundDeletion`, for the dependents that block it. Orphan: the references are taken
out, then the finalizer `orphan`. A namespaced owner in another namespace counts as absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpuward.errors import NotFound
from gpuward.sandbox.deletion import FINALIZERS
from gpuward.sandbox.sim.objects import Object, is_terminating, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from gpuward.sandbox.sim.world import World
    from gpuward.sandbox.store import Event

QUEUE: Final = "garbage"
FOREGROUND, ORPHAN = FINALIZERS["Foreground"], FINALIZERS["Orphan"]
UNOWNED: Final = ("events", "leases.coordination.k8s.io")
"""Resources that are numerous and that nothing owns or is owned by."""


class _Ref(NamedTuple):
    resource: str
    namespace: str
    name: str


class GarbageCollector:
    """Delete, or set free, the dependents of objects that go away."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._refs: dict[str, _Ref] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._changed)
        for resource in world.store.resources():
            for obj in world.store.list(resource.key):
                self._learn(resource.key, obj)

    def _changed(self, event: Event) -> None:
        if event.resource_key in UNOWNED:
            return
        if event.type == "DELETED":
            self._forget(event.obj)
            return
        self._learn(event.resource_key, event.obj, event.old)
        if is_terminating(event.obj) and event.obj["metadata"].get("finalizers"):
            self._world.queue.add(QUEUE, uid_of(event.obj))

    def _learn(self, resource: str, obj: Object, old: Object | None = None) -> None:
        uid = uid_of(obj)
        if old is None:
            self._refs[uid] = _Ref(resource, namespace_of(obj), name_of(obj))
        before, after = _owners(old) if old is not None else [], _owners(obj)
        if before == after:
            return
        for owner in before:
            self._dependents.get(owner["uid"], {}).pop(uid, None)
            self._world.queue.add(QUEUE, owner["uid"])
        for owner in after:
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        self._world.queue.add(QUEUE, uid)

    def _forget(self, obj: Object) -> None:
        uid = uid_of(obj)
        self._refs.pop(uid, None)
        for owner in _owners(obj):
            self._dependents.get(owner["uid"], {}).pop(uid, None)
            self._world.queue.add(QUEUE, owner["uid"])
        for dependent in self._dependents.get(uid, {}):
            self._world.queue.add(QUEUE, dependent)
        if not self._dependents.get(uid):
            self._dependents.pop(uid, None)

    def sync(self, uid: str) -> None:
        """Settle what one object's owners, or its own end, mean for it."""
        ref = self._refs.get(uid)
        obj = self._find(ref) if ref is not None else None
        if ref is None or obj is None or uid_of(obj) != uid:
            return
        if is_terminating(obj):
            self._end(ref, obj)
        elif _owners(obj):
            self._check_owners(ref, obj)

    def _find(self, ref: _Ref) -> Object | None:
        try:
            return self._world.store.find(ref.resource, ref.namespace, ref.name)
        except NotFound:
            return None

    def _check_owners(self, ref: _Ref, obj: Object) -> None:
        owners = _owners(obj)
        present = [owner for owner in owners if self._is_present(owner, ref.namespace)]
        if not present:
            self._world.store.delete(*ref, uid=uid_of(obj), propagation="Background")
        elif len(present) < len(owners):
            self._world.store.modify(*ref, lambda found: found["metadata"].update(ownerReferences=present))
        elif self._is_claimed_in_foreground(present):
            self._world.store.delete(*ref, uid=uid_of(obj), propagation="Foreground")

    def _is_present(self, owner: Object, namespace: str) -> bool:
        ref = self._refs.get(owner["uid"])
        return ref is not None and ref.namespace in ("", namespace)

    def _is_claimed_in_foreground(self, owners: list[Object]) -> bool:
        """Tell whether every owner is being deleted and waits for its dependents to go first."""
        found = [self._find(self._refs[owner["uid"]]) for owner in owners]
        return all(obj is not None and is_terminating(obj) and FOREGROUND in (obj["metadata"].get("finalizers") or ())
                   for obj in found)

    def _end(self, ref: _Ref, obj: Object) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        uid = uid_of(obj)
        if ORPHAN in finalizers:
            for dependent in list(self._dependents.get(uid, {})):
                self._set_free(self._refs[dependent], uid)
            self._take_finalizer(ref, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = [dependent for dependent in self._dependents.get(uid, {}) if self._blocks(dependent, uid)]
            for dependent in list(self._dependents.get(uid, {})):
                self._world.queue.add(QUEUE, dependent)
            if not blocking:
                self._take_finalizer(ref, FOREGROUND)

    def _blocks(self, dependent: str, uid: str) -> bool:
        obj = self._find(self._refs[dependent])
        return obj is not None and any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in _owners(obj))

    def _set_free(self, ref: _Ref, uid: str) -> None:
        def change(found: Object) -> None:
            left = [owner for owner in _owners(found) if owner["uid"] != uid]
            if left:
                found["metadata"]["ownerReferences"] = left
            else:
                found["metadata"].pop("ownerReferences", None)
        self._world.store.modify(*ref, change)

    def _take_finalizer(self, ref: _Ref, name: str) -> None:
        self._world.store.modify(*ref, lambda found: found["metadata"].update(
            finalizers=[kept for kept in found["metadata"].get("finalizers") or () if kept != name]))


def _owners(obj: Object) -> list[Object]:
    return obj["metadata"].get("ownerReferences") or []
