"""The history of a DaemonSet's template: ControllerRevisions and their hashes.

Facts from the Kubernetes DaemonSet controller: a revision is named `<daemonset>-<hash>`, the hash covers the pod
template alone (and `status.collisionCount` when two templates met in one hash), a template that comes back gets its
old revision with a new number, and pods carry the hash as label `controller-revision-hash`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from gpuward.errors import AlreadyExists
from gpuward.names import REVISION_HASH
from gpuward.sandbox.sim.objects import controller_uid, labels_of, name_of, namespace_of, owned_by, uid_of
from gpuward.sandbox.sim.selection import selector_matches

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuward.sandbox.sim.objects import Object
    from gpuward.sandbox.store import Store

REVISIONS: Final = "controllerrevisions.apps"
DAEMONSETS: Final = "daemonsets.apps"
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


def current_revision(store: Store, daemonset: Object) -> tuple[Object, int]:
    """Return the newest revision, made if need be, and the collision count that its name took."""
    template = daemonset["spec"]["template"]
    collisions = (daemonset.get("status") or {}).get("collisionCount") or 0
    _adopt(store, daemonset)
    known = revisions_of(store, daemonset)
    newest = max((revision["revision"] for revision in known), default=0)
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    for revision in known:
        if revision["data"] == data:
            if revision["revision"] < newest:
                revision = store.modify(REVISIONS, namespace_of(revision), name_of(revision),
                                        lambda obj: obj.update(revision=newest + 1))
            return revision, collisions
    while True:
        try:
            return _create(store, daemonset, template_hash(template, collisions), newest + 1, data), collisions
        except AlreadyExists:
            collisions += 1


def revisions_of(store: Store, daemonset: Object) -> list[Object]:
    """Return a DaemonSet's revisions, oldest number first."""
    owner = uid_of(daemonset)
    found = [revision for revision in store.list(REVISIONS, namespace_of(daemonset)) if controller_uid(revision) == owner]
    return sorted(found, key=lambda revision: int(revision["revision"]))


def _adopt(store: Store, daemonset: Object) -> None:
    """Take over revisions that a DaemonSet with the same selector left behind: so its pods stay up to date under the new one."""
    owner = owned_by(daemonset, store.resource(DAEMONSETS))
    for revision in list(store.list(REVISIONS, namespace_of(daemonset))):
        if not controller_uid(revision) and selector_matches(daemonset["spec"]["selector"], labels_of(revision)):
            store.modify(REVISIONS, namespace_of(revision), name_of(revision), lambda obj: obj["metadata"].update(
                ownerReferences=[*(obj["metadata"].get("ownerReferences") or ()), owner]))


def trim_history(store: Store, daemonset: Object, live: Collection[str]) -> None:
    """Delete the oldest revisions beyond revisionHistoryLimit whose hash no pod carries."""
    limit = daemonset["spec"].get("revisionHistoryLimit", 10)
    known = revisions_of(store, daemonset)
    old = [revision for revision in known[:-1] if labels_of(revision)[REVISION_HASH] not in live]
    for revision in old[:max(0, len(old) - limit)]:
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
