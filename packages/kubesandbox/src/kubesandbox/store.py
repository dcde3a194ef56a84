"""The sandbox's objects and the API server's rules about writing them.

A store is synchronous and deterministic: each call is one atomic step, and every accepted change gets the next version.
Stored objects are never changed in place: a write puts a new object; whoever holds an old one keeps seeing what it was.
What is particular to a type (defaults, validation) comes in as a `Schema`; the rules here are those of every type:
identity, generations, preconditions, graceful deletion, finalizers and the watch history.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from kubesandbox import admission, deletion, errors, preconditions, validation
from kubesandbox.collection import ChangeType, Collection, Event, Index, Object, Schema
from kubesandbox.resources import BUILT_IN, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Event", "Object", "Objects", "Schema", "Store", "copy", "timestamp"]

Objects = list[Object]
Resources = list[Resource]

INITIAL_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters that generated names end with; no vowels, so that no words appear."""

_encoder = msgspec.json.Encoder()
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


Events = list[Event]


def copy(obj: Object) -> Object:
    """Return a deep copy that the caller may change."""
    result: Object = _unpack(_pack(obj))
    return result


def without_kind(obj: Object) -> Object:
    """Return an object as it stands in a list, whose own kind says what its items are."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def timestamp(seconds: float) -> str:
    """Write unix seconds as Kubernetes does: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node_of(pod: Object) -> tuple[str, ...]:
    node = pod.get("spec", {}).get("nodeName")
    return (node,) if node else ()


class Store:
    """Hold every object of a sandbox.

    Objects that are returned are the store's own: never change them, use `copy`. `now` gives the sandbox's unix
    seconds; `seed` decides uids and generated names; `history` bounds how many changes of each resource are kept
    for watches.
    """

    def __init__(self, now: Callable[[], float], seed: int = 0, history: int = 4096) -> None:
        self.now = now
        self.version = 0
        self._random = Random(seed)
        self._history = history
        self._tables: dict[str, Collection] = {}
        self._subscribers: dict[int, tuple[str | None, Callable[[Event], None]]] = {}
        self._called: dict[str, tuple[Callable[[Event], None], ...]] = {}
        """The subscribers by resource, found once for as long as these stay the same."""
        self._tickets = itertools.count()
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        self._encoded: dict[str, tuple[Object, bytes]] = {}
        for resource in BUILT_IN:
            self.register(resource, validation.BuiltIn(resource))
        self.add_index("pods", "node", _node_of)
        for name in INITIAL_NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})

    # Resource types.

    def register(self, resource: Resource, schema: Schema | None = None) -> None:
        """Add a resource type, or give one that exists a new description and schema; its objects stay."""
        table = self._tables.get(resource.key)
        if table is None:
            self._tables[resource.key] = Collection(resource, schema, forgotten=self.version)
        else:
            table.resource, table.schema = resource, schema

    def unregister(self, resource_key: str) -> None:
        """Forget a resource type; its objects must have been removed before."""
        self._tables.pop(resource_key, None)

    def resource(self, resource_key: str) -> Resource:
        """Return the description of a resource type; raise `errors.NotFound` for an unknown one."""
        return self._table(resource_key).resource

    def schema(self, resource_key: str) -> Schema:
        """Return a resource type's schema; every type that an API server serves has one."""
        schema = self._table(resource_key).schema
        if schema is None:
            raise errors.MethodNotAllowed(f"{resource_key} cannot be written through the API: it has no schema")
        return schema

    def resources(self) -> Resources:
        """Return every registered resource type, in order of registration."""
        return [table.resource for table in self._tables.values()]

    def add_index(self, resource_key: str, name: str, terms: Callable[[Object], Iterable[str]]) -> None:
        """Keep the objects of a resource findable by the terms that `terms` gives for each; see `lookup`."""
        table = self._table(resource_key)
        index = table.indexes[name] = Index(terms)
        for key, obj in table.objects.items():
            index.move(key, None, obj)

    # Reading.

    def find(self, resource_key: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None when there is none of that name."""
        return self._table(resource_key).objects.get((namespace or "", name))

    def get(self, resource_key: str, namespace: str | None, name: str) -> Object:
        """Return an object; raise `errors.NotFound` when there is none of that name."""
        found = self.find(resource_key, namespace, name)
        if found is None:
            raise preconditions.not_found(self._table(resource_key).resource, name)
        return found

    def list(self, resource_key: str, namespace: str | None = None) -> Objects:
        """Return the objects of a resource, of one namespace when given, sorted by namespace and name."""
        table = self._table(resource_key)
        keys = table.keys
        if namespace:
            keys = keys[bisect_left(keys, (namespace, "")):bisect_left(keys, (namespace + "\0", ""))]
        return [table.objects[key] for key in keys]

    def lookup(self, resource_key: str, index: str, term: str) -> Objects:
        """Return the objects that have `term` in an index, sorted; `pods` has the index `node`."""
        table = self._table(resource_key)
        return [table.objects[key] for key in sorted(table.indexes[index].members.get(term, ()))]

    def encoded(self, obj: Object) -> bytes:
        """Return the JSON of a stored object without its kind and apiVersion, kept until a newer version is asked for."""
        uid = obj["metadata"]["uid"]
        kept = self._encoded.get(uid)
        if kept is not None and kept[0] is obj:
            return kept[1]
        data = _encoder.encode(without_kind(obj))
        self._encoded[uid] = (obj, data)
        return data

    def events_since(self, resource_key: str, version: int) -> Events:
        """Return the changes after a version, oldest first; raise `errors.Gone` when they are no longer all kept."""
        table = self._table(resource_key)
        if version < table.forgotten:
            raise errors.Gone(f"too old resource version: {version} ({table.forgotten + 1})")
        recent = itertools.takewhile(lambda event: event.version > version, reversed(table.history))
        return list(recent)[::-1]

    def compacted(self, resource_key: str) -> int:
        """Return the newest version whose change is no longer kept."""
        return self._table(resource_key).forgotten

    def compact(self, version: int) -> None:
        """Forget the changes up to and including a version, as etcd's compaction makes a real API server do."""
        for table in self._tables.values():
            table.forgotten = max(table.forgotten, version)
            while table.history and table.history[0].version <= version:
                table.history.popleft()

    def subscribe(self, callback: Callable[[Event], None], resource_key: str | None = None) -> Callable[[], None]:
        """Call back after each accepted change, of one resource when given; return the function that ends this.

        Changes arrive in version order for every subscriber: what a callback itself writes is delivered when all
        have seen the change before it.
        """
        ticket = next(self._tickets)
        self._subscribers[ticket] = (resource_key, callback)
        self._called = {}

        def end() -> None:
            self._subscribers.pop(ticket, None)
            self._called = {}

        return end

    # Writing.

    def create(self, resource_key: str, obj: Object, *, dry_run: bool = False, decoded: bool = False) -> Object:
        """Store a new object and return it as stored.

        `decoded` says that `obj` has been through the schema's `decode` and is the store's to keep.

        Raises `errors.AlreadyExists`, `errors.Invalid` (no name), `errors.NotFound` (no such namespace) or
        `errors.Forbidden` (the namespace is being deleted, or admission refuses the object).
        """
        table = self._table(resource_key)
        new = obj if decoded else self._decode(table, obj)
        meta = new.setdefault("metadata", {})
        asked = meta.get("name") or meta.get("generateName") or ""
        self._name(table.resource, meta)
        preconditions.check_namespace(table.resource, meta, self.find("namespaces", None, meta.get("namespace") or ""))
        new["apiVersion"], new["kind"] = table.resource.api_version, table.resource.kind
        if not decoded:
            meta.pop("managedFields", None)
        for server_owned in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(server_owned, None)
        meta["uid"] = self._uid()
        meta["creationTimestamp"] = timestamp(self.now())
        if table.resource.counts_generation:
            meta["generation"] = 1
        if table.schema is not None:
            table.schema.begin(new)
            admission.admit(table.resource, new, asked, self)
            table.schema.check(new, None, None)
            admission.check(table.resource, new, None, self)
        # Whether the name is free is looked at last, as by a real server: what is refused for another reason is told that one.
        if _key(new) in table.objects:
            raise preconditions.already_exists(table.resource, meta["name"])
        if not dry_run:
            self._commit(table, "ADDED", new, None)
        return new

    def restore(self, resource_key: str, obj: Object, share: Callable[[Object], None] | None = None) -> Object:
        """Store an object as it was in another cluster, its identity, times, generation and status too; return it as stored.

        Nothing is checked or admitted: that cluster has done so. `share` may put parts of other objects that are restored in
        the place of equal ones. Raises `errors.AlreadyExists`.
        """
        table = self._table(resource_key)
        new = self._decode(table, obj)
        if share is not None:
            share(new)
        meta = new["metadata"]
        new["apiVersion"], new["kind"] = table.resource.api_version, table.resource.kind
        if not table.resource.namespaced:
            meta.pop("namespace", None)
        meta["uid"] = meta.get("uid") or self._uid()
        meta["creationTimestamp"] = meta.get("creationTimestamp") or timestamp(self.now())
        if _key(new) in table.objects:
            raise preconditions.already_exists(table.resource, meta["name"])
        return self._commit(table, "ADDED", new, None)

    def update(self, resource_key: str, obj: Object, *, subresource: str | None = None,
               dry_run: bool = False, decoded: bool = False) -> Object:
        """Replace an object, or only its status with `subresource="status"`; return it as stored.

        A resourceVersion or uid in `obj` is a precondition (`errors.Conflict`). A write that changes nothing moves no
        version. Taking the last finalizer from an object that is being deleted removes it.
        """
        new = obj if decoded else self._decode(self._table(resource_key), obj)
        if not decoded:
            new.get("metadata", {}).pop("managedFields", None)
        return self._replace(resource_key, new, subresource, dry_run)

    def patch_status(self, resource_key: str, namespace: str | None, name: str,
                     change: Callable[[Object], None]) -> Object:
        """Let `change` edit the status of a copy and store that; everything but the status must be left alone."""
        old = self.get(resource_key, namespace, name)
        new = {**old, "metadata": {**old["metadata"]}, "status": copy(old.get("status") or {})}
        change(new)
        return self._replace(resource_key, new, "status", False)

    def bind(self, pod: Object, node: str) -> Object:
        """Give a pod its node; nothing but this endpoint of the API can."""
        return self._replace("pods", {**pod, "spec": {**pod["spec"], "nodeName": node}}, "binding", False)

    def modify(self, resource_key: str, namespace: str | None, name: str, change: Callable[[Object], None]) -> Object:
        """Let `change` edit a copy of an object and store it; its status stays as it is."""
        new = copy(self.get(resource_key, namespace, name))
        change(new)
        return self.update(resource_key, new)

    def delete(self, resource_key: str, namespace: str | None, name: str, *,  # noqa: PLR0913 the API's DeleteOptions
               uid: str | None = None, resource_version: str | None = None, grace_seconds: int | None = None,
               propagation: str | None = None, dry_run: bool = False) -> Object:
        """Delete an object, or mark it as being deleted when finalizers or a grace period hold it.

        Returns its last state. `grace_seconds` counts for pods only; `propagation` is Foreground, Orphan or Background.
        A uid or resource version that differs raises `errors.Conflict`.
        """
        table = self._table(resource_key)
        old = self.get(resource_key, namespace, name)
        preconditions.check_deletion(table.resource, old, uid, resource_version)
        wanted = deletion.Wanted(self.now(), grace_seconds, propagation)
        new = deletion.mark(table.resource, old, wanted)
        if dry_run:
            return new
        if deletion.is_complete(new):
            return self._finish(table, old)
        return self._commit(table, "MODIFIED", new, old) if new != old else old

    def remove(self, resource_key: str, namespace: str | None, name: str) -> None:
        """Take an object away for good, as a kubelet does when a pod's grace is over; finalizers still hold it."""
        self.delete(resource_key, namespace, name, grace_seconds=0)

    # How a write becomes a version.

    def _replace(self, resource_key: str, new: Object, subresource: str | None, dry_run: bool) -> Object:
        table = self._table(resource_key)
        meta = new.setdefault("metadata", {})
        old = self.get(resource_key, meta.get("namespace"), meta.get("name", ""))
        preconditions.check_identity(table.resource, old, meta.get("uid"), meta.get("resourceVersion"))
        new = preconditions.carry_over(table.resource, old, new, subresource)
        if table.schema is not None:
            if subresource is None:
                table.schema.renew(new, old)
            table.schema.check(new, old, subresource)
            if subresource is None:
                admission.check(table.resource, new, old, self)
        preconditions.count_generation(table.resource, old, new, subresource)
        if new == old:
            return old
        if dry_run:
            return new
        if deletion.is_complete(new):
            return self._finish(table, new)
        return self._commit(table, "MODIFIED", new, old)

    def _finish(self, table: Collection, last: Object) -> Object:
        final = {**last, "metadata": {**last["metadata"]}}
        return self._commit(table, "DELETED", final, table.objects[_key(last)])

    def _commit(self, table: Collection, kind: ChangeType, new: Object, old: Object | None) -> Object:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        key = _key(new)
        if kind == "DELETED":
            table.drop(key)
        else:
            table.put(key, new, old)
        event = Event(kind, table.resource.key, new, old, self.version)
        table.remember(event, self._history)
        self._undelivered.append(event)
        self._deliver()
        return new

    def _deliver(self) -> None:
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                event = self._undelivered.popleft()
                for callback in self._called.get(event.resource_key) or self._calls(event.resource_key):
                    callback(event)
                if event.type == "DELETED":
                    self._encoded.pop(event.obj["metadata"]["uid"], None)
        finally:
            self._delivering = False

    def _calls(self, resource_key: str) -> tuple[Callable[[Event], None], ...]:
        found = tuple(callback for wanted, callback in self._subscribers.values() if wanted in (None, resource_key))
        self._called[resource_key] = found
        return found

    def _name(self, resource: Resource, meta: Object) -> None:
        if not meta.get("name"):
            prefix = meta.get("generateName")
            if not prefix:
                raise preconditions.nameless(resource)
            meta["name"] = prefix[:58] + "".join(self._random.choice(NAME_ALPHABET) for _ in range(5))
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        else:
            meta.pop("namespace", None)

    def _uid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    @staticmethod
    def _decode(table: Collection, obj: Object) -> Object:
        return copy(obj) if table.schema is None else table.schema.decode(obj, [])

    def _table(self, resource_key: str) -> Collection:
        table = self._tables.get(resource_key)
        if table is None:
            raise errors.NotFound(f"the server could not find the requested resource ({resource_key})")
        return table


def _key(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]
