"""The history of a DaemonSet's template: ControllerRevisions and their hashes.

Facts from the Kubernetes DaemonSet controller: a revision is named `<daemonset>-<hash>`, the hash covers the pod
template alone (and `status.collisionCount` when two templates met in one hash), a template that comes back gets its
old revision with a new number, and pods carry the hash as label `controller-revision-hash`. Revisions belong to who selects their
labels, as pods do: those that a DaemonSet left behind are adopted by the next one, and one of the same name and template stays
what it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from kubesandbox.errors import AlreadyExists
from kubesandbox.sim.objects import (
    controller_uid,
    disown,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    owned_by,
    uid_of,
)
from kubesandbox.sim.selection import selector_matches

if TYPE_CHECKING:
    from collections.abc import Collection

    from kubesandbox.sim.objects import Object
    from kubesandbox.store import Store

REVISIONS: Final = "controllerrevisions.apps"
DAEMONSETS: Final = "daemonsets.apps"
REVISION_HASH: Final = "controller-revision-hash"
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_encoder = msgspec.json.Encoder(order="deterministic")


def template_hash(template: Object, collisions: int = 0) -> str:
    """Return a short hash of a pod template that is safe in names and labels."""
    value = _fnv1a(_encoder.encode(template) + (str(collisions).encode() if collisions else b""))
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


@lru_cache(maxsize=256)
def _fnv1a(data: bytes) -> int:
    """Return the 32-bit hash, kept since a fleet meets the same few templates again and again."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def current_revision(store: Store, daemonset: Object, pods: Collection[Object]) -> tuple[Object, int]:
    """Return the newest revision, made if need be, and the collision count that its name took; `pods` are the DaemonSet's."""
    template = daemonset["spec"]["template"]
    collisions = (daemonset.get("status") or {}).get("collisionCount") or 0
    known = _claimed(store, daemonset)
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    number = max((revision["revision"] for revision in known if revision.get("data") != data), default=0) + 1
    current = [revision for revision in known if revision.get("data") == data]
    if current:
        kept = _merge(store, current, pods)
        if kept["revision"] < number:
            kept = store.modify(REVISIONS, namespace_of(kept), name_of(kept), lambda obj: obj.update(revision=number))
        return kept, collisions
    while True:
        digest = template_hash(template, collisions)
        try:
            return _create(store, daemonset, digest, number, data), collisions
        except AlreadyExists:
            taken = store.get(REVISIONS, namespace_of(daemonset), f"{name_of(daemonset)}-{digest}")
            if taken["data"] == data:
                return taken, collisions
            collisions += 1


def revisions_of(store: Store, daemonset: Object) -> list[Object]:
    """Return a DaemonSet's revisions, oldest number first."""
    owner = uid_of(daemonset)
    found = [revision for revision in store.list(REVISIONS, namespace_of(daemonset)) if controller_uid(revision) == owner]
    return sorted(found, key=lambda revision: int(revision["revision"]))


def _claimed(store: Store, daemonset: Object) -> list[Object]:
    """Adopt the revisions that nobody owns and the selector selects, set free those that it does not; return what is left."""
    uid = uid_of(daemonset)
    for revision in store.list(REVISIONS, namespace_of(daemonset)):
        owner, fits = controller_uid(revision), selector_matches(daemonset["spec"]["selector"], labels_of(revision))
        if owner == uid and not fits:
            disown(store, REVISIONS, revision, uid)
        elif not owner and fits and not is_terminating(revision):
            _adopt(store, daemonset, revision)
    return revisions_of(store, daemonset)


def _adopt(store: Store, daemonset: Object, revision: Object) -> None:
    def change(obj: Object) -> None:
        meta = obj["metadata"]
        meta["ownerReferences"] = [*(meta.get("ownerReferences") or ()), owned_by(daemonset, store.resource(DAEMONSETS))]
        meta["labels"] = {REVISION_HASH: name_of(revision), **(meta.get("labels") or {})}
    store.modify(REVISIONS, namespace_of(revision), name_of(revision), change)


def _merge(store: Store, current: list[Object], pods: Collection[Object]) -> Object:
    """Keep the newest of the revisions that have the wanted template; pods of the others are relabelled, and those deleted."""
    kept = current[-1]
    digest = labels_of(kept)[REVISION_HASH]
    if len(current) > 1:
        for pod in list(pods):
            if labels_of(pod).get(REVISION_HASH) != digest:
                store.modify("pods", namespace_of(pod), name_of(pod),
                             lambda obj: obj["metadata"]["labels"].update({REVISION_HASH: digest}))
    for revision in current[:-1]:
        store.delete(REVISIONS, namespace_of(revision), name_of(revision))
    return kept


def trim_history(store: Store, daemonset: Object, current: str, live: Collection[str]) -> None:
    """Delete the oldest revisions beyond revisionHistoryLimit whose hash no pod carries; `current` is the newest one's name."""
    old = [revision for revision in _claimed(store, daemonset) if name_of(revision) != current]
    excess = len(old) - daemonset["spec"].get("revisionHistoryLimit", 10)
    unused = [revision for revision in old if labels_of(revision).get(REVISION_HASH) not in live]
    for revision in unused[:max(0, excess)]:
        store.delete(REVISIONS, namespace_of(revision), name_of(revision))


def _create(store: Store, daemonset: Object, digest: str, number: int, data: Object) -> Object:
    meta = daemonset["metadata"]
    return store.create(REVISIONS, {
        "metadata": {
            "name": f"{meta['name']}-{digest}", "namespace": meta["namespace"],
            "labels": {**(daemonset["spec"]["template"]["metadata"].get("labels") or {}), REVISION_HASH: digest},
            "annotations": {**(meta.get("annotations") or {})},
            "ownerReferences": [owned_by(daemonset, store.resource(DAEMONSETS))]},
        "data": data, "revision": number})
