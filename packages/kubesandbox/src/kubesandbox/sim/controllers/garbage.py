"""The garbage collector: what happens to objects whose owners go away.

Facts from the Kubernetes garbage collector (v1.36). An owner is looked up by kind and name and is another one if its uid is
another. Background: dependents go when their last owner is gone. Foreground: the owner waits, with finalizer
`foregroundDeletion`, for the dependents that block it; who has an owner beside that one lives on without it. Orphan: the
references are taken out, then the finalizer `orphan`. A namespaced owner in another namespace counts as absent; nothing is done
about an owner of an unknown kind, or a namespaced owner of a cluster-scoped object. Each step takes its time (`garbage_seconds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kubesandbox.deletion import FINALIZERS
from kubesandbox.errors import NotFound
from kubesandbox.sim.objects import Object, disown, is_terminating, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

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
        self._kinds: dict[tuple[str, str], str] = {}
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
            self._soon(uid_of(event.obj))

    def _learn(self, resource: str, obj: Object, old: Object | None = None) -> None:
        uid = uid_of(obj)
        if old is None:
            self._refs[uid] = _Ref(resource, namespace_of(obj), name_of(obj))
        before, after = _owners(old) if old is not None else [], _owners(obj)
        if before == after:
            return
        for owner in before:
            self._dependents.get(owner["uid"], {}).pop(uid, None)
            self._soon(owner["uid"])
        for owner in after:
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        self._soon(uid)

    def _forget(self, obj: Object) -> None:
        uid = uid_of(obj)
        self._refs.pop(uid, None)
        for owner in _owners(obj):
            self._dependents.get(owner["uid"], {}).pop(uid, None)
            self._soon(owner["uid"])
        for dependent in self._dependents.get(uid, {}):
            self._soon(dependent)
        if not self._dependents.get(uid):
            self._dependents.pop(uid, None)

    def _soon(self, uid: str) -> None:
        self._world.queue.add_at(QUEUE, uid, self._world.now() + self._world.delays.garbage_seconds)

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
        solid, others, waited_for = [], 0, False
        for owner in _owners(obj):
            key = self._resource_of(owner)
            namespaced = key is not None and self._world.store.resource(key).namespaced
            if key is None or (namespaced and not ref.namespace):
                return
            found = self._world.store.find(key, ref.namespace if namespaced else "", owner["name"])
            if found is not None and uid_of(found) == owner["uid"] and not _deletes_dependents(found):
                solid.append(owner)
                continue
            others += 1
            waited_for = waited_for or (found is not None and uid_of(found) == owner["uid"])
        if solid and others:
            self._world.store.modify(*ref, lambda found: found["metadata"].update(ownerReferences=solid))
        elif not solid:
            foreground = waited_for and bool(self._dependents.get(uid_of(obj)))
            self._world.store.delete(*ref, uid=uid_of(obj), propagation=self._policy(obj, foreground=foreground))

    def _policy(self, obj: Object, *, foreground: bool) -> str:
        finalizers = obj["metadata"].get("finalizers") or ()
        if foreground or FOREGROUND in finalizers:
            return "Foreground"
        return "Orphan" if ORPHAN in finalizers else "Background"

    def _resource_of(self, owner: Object) -> str | None:
        """Return the resource of an owner's kind; its version does not matter, since one is stored for all."""
        group, kind = owner["apiVersion"].rpartition("/")[0], owner["kind"]
        known = self._kinds.get((group, kind))
        if known is None:
            self._kinds = {(resource.group, resource.kind): resource.key for resource in self._world.store.resources()}
            known = self._kinds.get((group, kind))
        try:
            return known and self._world.store.resource(known).key
        except NotFound:
            return None

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
                self._soon(dependent)
            if not blocking:
                self._take_finalizer(ref, FOREGROUND)

    def _blocks(self, dependent: str, uid: str) -> bool:
        obj = self._find(self._refs[dependent])
        return obj is not None and any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in _owners(obj))

    def _set_free(self, ref: _Ref, uid: str) -> None:
        obj = self._find(ref)
        if obj is not None:
            disown(self._world.store, ref.resource, obj, uid)

    def _take_finalizer(self, ref: _Ref, name: str) -> None:
        self._world.store.modify(*ref, lambda found: found["metadata"].update(
            finalizers=[kept for kept in found["metadata"].get("finalizers") or () if kept != name]))


def _deletes_dependents(owner: Object) -> bool:
    return is_terminating(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())


def _owners(obj: Object) -> list[Object]:
    return obj["metadata"].get("ownerReferences") or []
