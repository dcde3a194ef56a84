"""Views of one resource's objects: what the watch showed, corrected by what our own writes were answered.

Three things reach a cache, in any order: lists, watch events, and answers to our own requests. The rules:

- A watch delivers a resource's changes in the order of their versions. So an answer that is not newer than the last
  event is already in the cache; a newer one enters at once and leaves a floor: events below the floor are late.
- A deletion that was answered as final buries the uid: whatever else is heard of that uid is late.
- An eviction is answered by a Status without a version. An overlay changes the view until the watch shows the effect.
- After a conflict or a lost answer we do not know the object. It is in doubt until an event moves it on or a GET
  settles it.
- A list is the whole truth as of its version. Only what we learnt after it began may be newer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from gpuward.kube.cache.index import Index
from gpuward.kube.cache.projection import K, Projection, Seen, V, project, read_head
from gpuward.kube.cache.versions import newer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView


_BURIED_LIMIT: Final = 4096


class Change(NamedTuple, Generic[K, V]):
    """Tell a listener of one key: None means absent.

    Old and new are the same view when a doubt was settled, or when the object has become unreadable.
    """

    key: K
    old: V | None
    new: V | None


class _Floor(NamedTuple):
    version: str
    turn: int


class _Overlay(NamedTuple, Generic[V]):
    uid: str
    change: Callable[[V], V]
    until: Callable[[V], bool]
    turn: int


class Cache(Generic[K, V]):
    """Keep the views of one resource.

    Belongs to one event loop; every call is synchronous and leaves the cache whole. Listeners are called after each
    change with all that it changed, and must not change the cache themselves.
    """

    def __init__(
        self,
        projection: Projection[K, V],
        indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None,
    ) -> None:
        """Take the projection and, by name, the functions that say under which values an index lists a view."""
        self.projection = projection
        self.synced = asyncio.Event()
        """Set once the first list is in."""
        self.version = ""
        """The resource version up to which lists and watch have shown everything."""
        self.unreadable: dict[K, str] = {}
        """Objects whose last state could not be projected, and why; the cache keeps the view before it, if any."""
        self._views: dict[K, V] = {}
        self._indexes = {name: Index[K, V](of) for name, of in (indexes or {}).items()}
        self._floors: dict[K, _Floor] = {}
        self._buried: dict[str, int] = {}
        self._overlays: dict[K, _Overlay[V]] = {}
        self._uncertain: dict[K, int] = {}
        self._turn = 0
        self._listeners: dict[int, Callable[[list[Change[K, V]]], None]] = {}
        self._changes: list[Change[K, V]] = []

    # Reading.

    def get(self, key: K) -> V | None:
        """Return a view, or None."""
        return self._views.get(key)

    def __getitem__(self, key: K) -> V:
        return self._views[key]

    def __contains__(self, key: object) -> bool:
        return key in self._views

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[K]:
        return iter(self._views)

    def values(self) -> ValuesView[V]:
        """Return all views, in no particular order."""
        return self._views.values()

    def items(self) -> ItemsView[K, V]:
        """Return all keys and views, in no particular order."""
        return self._views.items()

    def copy(self) -> dict[K, V]:
        """Return all views by their keys, as they are now."""
        return self._views.copy()

    def by(self, index: str, value: Hashable) -> tuple[V, ...]:
        """Return the views that an index lists under a value, in no particular order."""
        return tuple(self._views[key] for key in self._indexes[index].keys(value))

    @property
    def uncertain(self) -> frozenset[K]:
        """Return the keys in doubt: nothing should be decided from their views."""
        return frozenset(self._uncertain)

    def uncertain_since(self, key: K) -> int | None:
        """Return a mark of the key's doubt, another one for each time that it arose, or None without a doubt."""
        return self._uncertain.get(key)

    def subscribe(self, listener: Callable[[list[Change[K, V]]], None]) -> Callable[[], None]:
        """Call `listener` with the changes after each of them; return the function that ends it."""
        ticket = self._tick()
        self._listeners[ticket] = listener

        def end() -> None:
            self._listeners.pop(ticket, None)

        return end

    # From the reflector.

    def listing(self) -> Listing[K, V]:
        """Begin to replace everything: to be called before the first page is asked for."""
        return Listing(self)

    def event(self, kind: str, raw: bytes) -> str:
        """Take a watch event: ADDED, MODIFIED or DELETED, and the object's JSON. Return its resource version."""
        seen = project(self.projection, raw)
        self.version = seen.identity.version or self.version
        if seen.identity.uid not in self._buried:
            self._follow(kind, seen)
        elif kind == "DELETED":
            del self._buried[seen.identity.uid]
        return seen.identity.version

    def _follow(self, kind: str, seen: Seen[V]) -> None:
        key = self._key(seen)
        floor = self._floors.get(key)
        if floor is not None:
            if floor.version != seen.identity.version and not newer(seen.identity.version, floor.version):
                return
            del self._floors[key]
        if kind == "DELETED":
            self._forget(key)
            self._put(key, None)
        else:
            self._show(key, seen)
        self._settle(key)
        self._tell()

    def bookmark(self, version: str) -> None:
        """Take a bookmark: the watch has shown everything up to this version."""
        self.version = version
        for key in [key for key, floor in self._floors.items() if newer(floor.version, version) is False]:
            del self._floors[key]

    # From our own requests.

    def apply_response(self, raw: bytes) -> None:
        """Take the object in the answer to a write of ours, if it is news.

        The projection must drop what the reflector's selectors would not have selected.
        """
        seen = project(self.projection, raw)
        key = self._key(seen)
        if seen.identity.uid in self._buried:
            return
        floor = self._floors.get(key)
        news = newer(seen.identity.version, self._latest(floor))
        if news is None:
            self.mark_uncertain(key)
        elif news:
            self._floors[key] = _Floor(seen.identity.version, self._tick())
            self._show(key, seen)
            self._settle(key)
            self._tell()

    def settle(self, key: K, raw: bytes | None, mark: int | None = None) -> None:
        """Take the answer to a GET that settles a doubt; None means that the object does not exist.

        The GET must have been sent after the doubt arose. `mark` is what `uncertain_since` returned before it was sent: if
        another doubt has arisen since, the answer is too old and changes nothing.
        """
        if mark is not None and self._uncertain.get(key) != mark:
            return
        if raw is None:
            view = self._views.get(key)
            if view is not None:
                self._tombstone(key, self.projection.identity(view).uid)
            self._forget(key)
        else:
            seen = project(self.projection, raw)
            if newer(seen.identity.version, self._latest(self._floors.get(key))) is not False:
                self._floors[key] = _Floor(seen.identity.version, self._tick())
                self._show(key, seen)
        self._settle(key)
        self._tell()

    def deleted(self, key: K, uid: str, answer: bytes) -> None:
        """Take the answer to a deletion of ours: the object while it terminates, otherwise it is gone."""
        head = read_head(answer)
        if head.kind != "Status" and head.metadata.uid == uid and head.terminating:
            self.apply_response(answer)
        else:
            self.gone(key, uid)

    def gone(self, key: K, uid: str) -> None:
        """Take it that this life of an object is over: a deletion of ours was final, or was answered with 404."""
        self._tombstone(key, uid)
        self._settle(key)
        self._tell()

    def overlay(self, key: K, uid: str, change: Callable[[V], V], until: Callable[[V], bool]) -> None:
        """Show an object changed until the watch shows a state for which `until` holds, its end, or another uid.

        For effects of ours whose answer has no object, such as an eviction.
        """
        view = self._views.get(key)
        if view is None or self.projection.identity(view).uid != uid or until(view):
            return
        self._overlays[key] = _Overlay(uid, change, until, self._tick())
        self._put(key, view)
        self._tell()

    def mark_uncertain(self, key: K) -> None:
        """Hold an object after a conflict or a lost answer: it may have changed in a way that we have not seen."""
        self._uncertain[key] = self._tick()

    # Inside.

    def _key(self, seen: Seen[V]) -> K:
        return self.projection.keys.make(seen.identity.namespace, seen.identity.name)

    def _tick(self) -> int:
        self._turn += 1
        return self._turn

    def _latest(self, floor: _Floor | None) -> str:
        return floor.version if floor is not None and newer(floor.version, self.version) else self.version

    def _tombstone(self, key: K, uid: str) -> None:
        self._buried[uid] = self._tick()
        if len(self._buried) > _BURIED_LIMIT:  # where the watch was quicker than the answer nothing more will come
            del self._buried[next(iter(self._buried))]
        view = self._views.get(key)
        if view is not None and self.projection.identity(view).uid == uid:
            self._forget(key)
            self._put(key, None)

    def _forget(self, key: K) -> None:
        self._floors.pop(key, None)
        self._overlays.pop(key, None)
        self.unreadable.pop(key, None)

    def _settle(self, key: K) -> None:
        """End a doubt, and let listeners know even where the view did not change: a hold has ended."""
        if self._uncertain.pop(key, None) is not None and not any(change.key == key for change in self._changes):
            view = self._views.get(key)
            self._changes.append(Change(key, view, view))

    def _show(self, key: K, seen: Seen[V]) -> None:
        if seen.error:
            if self.unreadable.get(key) != seen.error:
                view = self._views.get(key)
                self.unreadable[key] = seen.error
                self._changes.append(Change(key, view, view))
            return
        self.unreadable.pop(key, None)
        self._put(key, seen.view)

    def _put(self, key: K, view: V | None) -> None:
        overlay = self._overlays.get(key)
        if overlay is not None:
            if view is not None and self.projection.identity(view).uid == overlay.uid and not overlay.until(view):
                view = overlay.change(view)
            else:
                del self._overlays[key]
        old = self._views.get(key)
        if view is None:
            self._views.pop(key, None)
        else:
            self._views[key] = view
        for index in self._indexes.values():
            index.move(key, old, view)
        if old is None and view is None:
            return
        if old is None or view is None or not self.projection.same(old, view):
            self._changes.append(Change(key, old, view))

    def _tell(self) -> None:
        changes, self._changes = self._changes, []
        if changes:
            for listener in list(self._listeners.values()):
                listener(changes)

    def _commit(self, listed: dict[K, Seen[V]], version: str, turn: int) -> None:
        self._buried = {uid: buried for uid, buried in self._buried.items() if buried > turn}
        for key in [key for key, overlay in self._overlays.items() if overlay.turn < turn]:
            del self._overlays[key]
        for key in [key for key, floor in self._floors.items() if not _outlasts(floor, version, turn)]:
            del self._floors[key]
        for key in [key for key in (*self._views, *self.unreadable) if key not in listed and key not in self._floors]:
            self._forget(key)
            self._put(key, None)
        for key, seen in listed.items():
            if key not in self._floors and seen.identity.uid not in self._buried:
                self._show(key, seen)
        for key in [key for key, doubt in self._uncertain.items() if doubt < turn]:
            self._settle(key)
        self.version = version
        self.synced.set()
        self._tell()


def _outlasts(floor: _Floor, version: str, turn: int) -> bool:
    """Tell whether an answer of ours is newer than a list of `version` that began in `turn`."""
    news = newer(floor.version, version)
    return floor.turn > turn if news is None else news


class Listing(Generic[K, V]):
    """Gather the pages of one list, projected as they come; `commit` puts them in the cache's place all at once."""

    def __init__(self, cache: Cache[K, V]) -> None:
        self._cache = cache
        self._turn = cache._tick()
        self._listed: dict[K, Seen[V]] = {}

    def add(self, raw: bytes) -> None:
        """Take one object of the list."""
        seen = project(self._cache.projection, raw)
        if seen.view is not None or seen.error:
            self._listed[self._cache._key(seen)] = seen

    def commit(self, version: str) -> None:
        """Replace the cache's content by the list, of which `version` is the resource version."""
        self._cache._commit(self._listed, version, self._turn)
