"""The cache against a server whose news arrive in any order."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kube.colors import Watched, raw


class Server:
    """Be a server that changes, and a network that delivers the news in an order of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.version = 10
        self.lives = 0
        self.objects: dict[str, tuple[int, str, str]] = {}   # name -> version, uid, color
        self.events: list[tuple[str, bytes]] = []            # not delivered yet, in order
        self.answers: list[Any] = []                         # answers on their way, in any order
        self.lists: list[Any] = []
        self.watched = Watched()
        self.buried: set[str] = set()
        self.list()
        self.deliver_list()

    def step(self, action: str) -> None:
        getattr(self, action)()

    def write(self) -> None:
        """Somebody, or we, create or change an object."""
        name = self.rng.choice("abc")
        self.version += 1
        known = self.objects.get(name)
        if known is None:
            self.lives += 1
        uid = known[1] if known else f"life-{self.lives}"
        color = self.rng.choice(["red", "blue", ""])
        self.objects[name] = (self.version, uid, color)
        body = raw(name, self.version, color, uid=uid)
        self.events.append(("MODIFIED" if known else "ADDED", body))
        if self.rng.random() < 0.5:
            self.answers.append(lambda: self.watched.cache.apply_response(body))

    def delete(self) -> None:
        """Somebody, or we, delete an object for good."""
        if not self.objects:
            return
        name = self.rng.choice(sorted(self.objects))
        _, uid, color = self.objects.pop(name)
        self.version += 1
        self.events.append(("DELETED", raw(name, self.version, color, uid=uid)))
        if self.rng.random() < 0.5:
            self.answers.append(lambda: self.note_burial(name, uid))

    def note_burial(self, name: str, uid: str) -> None:
        self.watched.cache.gone(name, uid)
        if all(uid not in body.decode() or kind != "DELETED" for kind, body in self.events):
            return
        self.buried.add(uid)

    def deliver_event(self) -> None:
        if self.events and not self.lists:  # a reflector does not watch while it lists
            self.watched.cache.event(*self.events.pop(0))

    def deliver_answer(self) -> None:
        if self.answers:
            self.answers.pop(self.rng.randrange(len(self.answers)))()

    def lose_answer(self) -> None:
        """An answer is lost, so the object is in doubt."""
        if self.answers:
            self.answers.pop(self.rng.randrange(len(self.answers)))
            for name in "abc":
                self.watched.cache.mark_uncertain(name)

    def settle(self) -> None:
        for name in sorted(self.watched.cache.uncertain):
            found = self.objects.get(name)
            self.watched.cache.settle(name, raw(name, found[0], found[2], uid=found[1]) if found else None)

    def bookmark(self) -> None:
        if not self.events and not self.lists:
            self.watched.cache.bookmark(str(self.version))

    def list(self) -> None:
        """The watch broke: a list is read now, and arrives some time later."""
        if self.lists:
            return
        listing = self.watched.cache.listing()
        for name, (version, uid, color) in sorted(self.objects.items()):
            listing.add(raw(name, version, color, uid=uid))
        self.lists.append((listing, self.version))

    def deliver_list(self) -> None:
        if self.lists:
            listing, version = self.lists.pop()
            listing.commit(str(version))
            self.events = [(kind, body) for kind, body in self.events if _version(body) > version]

    def everything_arrives(self) -> None:
        self.deliver_list()
        while self.answers:
            self.deliver_answer()
        while self.events:
            self.deliver_event()
        self.settle()

    def relevant(self) -> dict[str, tuple[str, str]]:
        return {name: (str(version), uid) for name, (version, uid, color) in self.objects.items() if color}


def _version(body: bytes) -> int:
    return int(msgspec.json.decode(body)["metadata"]["resourceVersion"])


ACTIONS = st.sampled_from([
    "write", "write", "delete", "deliver_event", "deliver_event", "deliver_answer", "lose_answer", "settle",
    "bookmark", "list", "deliver_list",
])


@settings(max_examples=300, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=60), seed=st.integers(0, 2**16))
def test_in_whatever_order_news_arrive_the_cache_never_goes_back_and_ends_right(
    actions: list[str], seed: int
) -> None:
    server = Server(random.Random(seed))
    newest: dict[str, int] = {}
    for action in actions:
        server.step(action)
        for seen in server.watched.cache.values():
            version = int(seen.version)
            assert version >= newest.get(seen.name, 0), f"{seen.name} went back to {version}"
            assert seen.uid not in server.buried, f"{seen.name} came back to life"
            newest[seen.name] = version
        listed = {seen.name for seen in server.watched.cache.values()}
        for color in ("red", "blue"):
            indexed = {seen.name for seen in server.watched.cache.by("color", color)}
            assert indexed == {name for name in listed if server.watched.cache[name].color == color}
    server.everything_arrives()
    shown = {name: (seen.version, seen.uid) for name, seen in server.watched.cache.items()}
    assert shown == server.relevant()
    assert server.watched.cache.uncertain == frozenset()
