"""What the operator made and is still there, and who did what to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubesandbox.store import Event

Object = dict[str, Any]
Place = tuple[str, str, str]

PEOPLE, CLUSTER = "people", "cluster"
"""Who wrote a change that no process of the operator wrote: somebody in the run, or Kubernetes and the machines."""
LEFT_OUT: Final = ("events", "leases.coordination.k8s.io")
"""Events end by themselves; the Lease is the election's, and the simulation itself writes it."""


class Made:
    """Follow the objects that a process of the operator made, and those that these own: pods, revisions."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self.ended_by: dict[str, str] = {}
        """Who deleted an object, by its uid; the first word counts."""
        self.causes: dict[str, tuple[str, ...]] = {}
        """The uids of the owners of an object that is gone."""
        self.edited: set[str] = set()
        """The uids of objects that people edited."""

    def places(self) -> Iterable[Place]:
        """Return where they are: resource, namespace and name."""
        return self._places.values()

    def changed(self, event: Event, actor: str) -> None:
        """Take a change of the store."""
        meta = event.obj["metadata"]
        uid, owners = meta["uid"], tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())
        if event.resource_key in LEFT_OUT:
            return
        if event.type == "DELETED" or meta.get("deletionTimestamp"):
            self.ended_by.setdefault(uid, actor)
            self.causes.setdefault(uid, tuple(owner["uid"] for owner in ((event.old or event.obj)["metadata"].get(
                "ownerReferences") or ())))
        if event.type == "DELETED":
            self._places.pop(uid, None)
        elif event.type == "ADDED":
            by_operator = actor not in (PEOPLE, CLUSTER) and not meta.get("generateName")
            if by_operator or any(owner in self._places for owner in owners):
                self._places[uid] = (event.resource_key, meta.get("namespace", ""), meta["name"])
        elif actor == PEOPLE:
            self.edited.add(uid)

    def culprit(self, uid: str) -> str:
        """Return who caused the end of an object: whoever deleted it or, if Kubernetes did, one of its owners."""
        actor = self.ended_by.get(uid, "")
        if actor != CLUSTER:
            return actor
        for owner in self.causes.get(uid, ()):
            if owner in self.ended_by:
                return self.culprit(owner)
        return CLUSTER


__all__ = ["CLUSTER", "PEOPLE", "Made", "Place"]
