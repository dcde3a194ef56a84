"""The objects of one resource type: by key, in order, by index, and the history of their changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubesandbox.resources import Resource

Object = dict[str, Any]
"""One Kubernetes object as JSON."""
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Schema(Protocol):
    """Know the fields, the defaults and the validation of one resource type."""

    def decode(self, obj: Object, unknown: list[str]) -> Object:
        """Return a copy as the API server reads it: pruned, normalised, defaulted; add the paths of unknown fields.

        Raises `errors.BadRequest` for a value of a type that its field cannot hold.
        """

    def begin(self, obj: Object) -> None:
        """Complete, in place, a decoded object that is about to be created."""

    def renew(self, new: Object, old: Object) -> None:
        """Complete, in place, a decoded object that is about to replace another."""

    def check(self, new: Object, old: Object | None, subresource: str | None) -> None:
        """Raise `errors.Invalid` where the API server would."""


@dataclass(frozen=True, slots=True)
class Event:
    """Tell of one accepted change; `version` is the resource version that it got."""

    type: ChangeType
    resource_key: str
    obj: Object
    old: Object | None
    version: int


@dataclass(slots=True)
class Index:
    """Find keys by the terms of their objects."""

    terms: Callable[[Object], Iterable[str]]
    members: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def move(self, key: tuple[str, str], old: Object | None, new: Object | None) -> None:
        """Note that an object came, changed or went."""
        before = set(self.terms(old)) if old is not None else set()
        after = set(self.terms(new)) if new is not None else set()
        for term in before - after:
            self.members[term].discard(key)
        for term in after - before:
            self.members.setdefault(term, set()).add(key)


@dataclass(slots=True)
class Collection:
    """Hold one resource type's objects; whoever changes them says so with `remember`."""

    resource: Resource
    schema: Schema | None
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    keys: list[tuple[str, str]] = field(default_factory=list)
    history: deque[Event] = field(default_factory=deque)
    forgotten: int = 0
    """The newest version that the history no longer holds."""
    indexes: dict[str, Index] = field(default_factory=dict)

    def put(self, key: tuple[str, str], obj: Object, old: Object | None) -> None:
        """Store an object under its (namespace, name); `old` is the one that it replaces."""
        if old is None:
            insort(self.keys, key)
        self.objects[key] = obj
        for index in self.indexes.values():
            index.move(key, old, obj)

    def drop(self, key: tuple[str, str]) -> None:
        """Take an object away."""
        old = self.objects.pop(key)
        del self.keys[bisect_left(self.keys, key)]
        for index in self.indexes.values():
            index.move(key, old, None)

    def remember(self, event: Event, limit: int) -> None:
        """Append a change to the history, which keeps the newest `limit`."""
        self.history.append(event)
        if len(self.history) > limit:
            self.forgotten = self.history.popleft().version
