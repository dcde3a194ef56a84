"""The cache's rules one by one, and then all of them against a server whose news arrive in any order."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward import errors
from gpuward.kube.cache import Cache, Change
from gpuward.kube.projection import BY_NAME, BY_PLACE, Identity, Projection
from tests.kube.scripted import thing


class View(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    color: str = ""
    deleting: bool = False
    namespace: str = ""


def view(raw: bytes) -> View | None:
    """Keep what has a color; refuse the color "broken"."""
    obj = msgspec.json.decode(raw)
    meta, color = obj["metadata"], obj.get("spec", {}).get("color", "")
    if color == "broken":
        raise errors.PolicyError("spec.color", color, "write a color")
    if not color:
        return None
    return View(meta["name"], meta["uid"], meta["resourceVersion"], color, "deletionTimestamp" in meta,
                meta.get("namespace", ""))


def identity(seen: View) -> Identity:
    return Identity(seen.namespace, seen.name, seen.uid, seen.version)


def same(old: View, new: View) -> bool:
    return msgspec.structs.replace(old, version=new.version) == new


def raw(name: str, version: int | str, color: str = "red", *, uid: str = "", **meta: Any) -> bytes:
    obj = thing(name, version, uid=uid, color=color)
    obj["metadata"] |= meta
    return msgspec.json.encode(obj)


class Watched:
    """Hold a cache with what its listener was told."""

    def __init__(self) -> None:
        self.cache = Cache(Projection(BY_NAME, view, identity, same), {"color": lambda seen: (seen.color,)})
        self.told: list[list[Change[str, View]]] = []
        self.cache.subscribe(self.told.append)

    def fill(self, version: int, *objects: bytes) -> None:
        listing = self.cache.listing()
        for each in objects:
            listing.add(each)
        listing.commit(str(version))

    def colors(self) -> dict[str, str]:
        return {name: seen.color for name, seen in self.cache.items()}

    def changed(self) -> list[str]:
        """Return the keys that the listener was told of since the last call."""
        keys = [change.key for changes in self.told for change in changes]
        self.told.clear()
        return keys


@pytest.fixture
def watched() -> Watched:
    """Return a cache that has listed `a`, `b` and one irrelevant object at version 10."""
    watched = Watched()
    watched.fill(10, raw("a", 5), raw("b", 6, "blue"), raw("c", 7, ""))
    return watched


def test_a_list_fills_the_cache_and_tells_once(watched: Watched) -> None:
    assert watched.colors() == {"a": "red", "b": "blue"}
    assert watched.cache.synced.is_set()
    assert watched.cache.version == "10"
    assert len(watched.told) == 1
    assert watched.changed() == ["a", "b"]
    assert len(watched.cache) == 2
    assert "a" in watched.cache
    assert "c" not in watched.cache
    assert list(watched.cache) == ["a", "b"]
    assert watched.cache["a"] is watched.cache.get("a")


def test_events_change_it(watched: Watched) -> None:
    watched.changed()
    assert watched.cache.event("MODIFIED", raw("a", 11, "green")) == "11"
    watched.cache.event("ADDED", raw("d", 12))
    watched.cache.event("DELETED", raw("b", 13, "blue"))
    watched.cache.event("MODIFIED", raw("d", 14, ""))
    assert watched.colors() == {"a": "green"}
    assert watched.changed() == ["a", "d", "b", "d"]


def test_a_change_that_does_not_matter_is_not_told(watched: Watched) -> None:
    watched.changed()
    watched.cache.event("MODIFIED", raw("a", 11))
    watched.cache.event("MODIFIED", raw("c", 12, ""))
    assert watched.changed() == []
    assert watched.cache["a"].version == "11"


def test_a_listener_can_leave(watched: Watched) -> None:
    heard: list[Any] = []
    leave = watched.cache.subscribe(heard.append)
    leave()
    leave()
    watched.cache.event("ADDED", raw("d", 11))
    assert heard == []


def test_a_new_list_replaces_everything(watched: Watched) -> None:
    watched.changed()
    watched.fill(20, raw("b", 6, "blue"), raw("d", 15))
    assert watched.colors() == {"b": "blue", "d": "red"}
    assert watched.changed() == ["a", "d"]


def test_an_index_follows_every_change(watched: Watched) -> None:
    def red() -> list[str]:
        return [seen.name for seen in watched.cache.by("color", "red")]

    assert red() == ["a"]
    watched.cache.event("ADDED", raw("d", 11))
    watched.cache.event("MODIFIED", raw("a", 12, "blue"))
    assert red() == ["d"]
    assert watched.cache.index_values("color") == {"red", "blue"}
    watched.cache.event("DELETED", raw("d", 13))
    assert red() == []
    assert watched.cache.index_values("color") == {"blue"}


def test_our_own_write_is_seen_at_once_and_a_late_event_does_not_undo_it(watched: Watched) -> None:
    watched.cache.learn(raw("a", 15, "green"))
    assert watched.colors()["a"] == "green"
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert watched.colors()["a"] == "green"
    watched.cache.event("MODIFIED", raw("a", 15, "green"))
    watched.cache.event("MODIFIED", raw("a", 16, "yellow"))
    assert watched.colors()["a"] == "yellow"


def test_a_write_that_makes_an_object_irrelevant_is_not_undone_either(watched: Watched) -> None:
    watched.cache.learn(raw("a", 15, ""))
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert "a" not in watched.cache
    watched.cache.event("MODIFIED", raw("a", 16, "yellow"))
    assert watched.colors()["a"] == "yellow"


def test_an_answer_that_the_watch_has_overtaken_is_no_news(watched: Watched) -> None:
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    watched.cache.event("DELETED", raw("b", 13, "blue"))
    watched.cache.learn(raw("a", 11, "green"))
    watched.cache.learn(raw("b", 12, "green"))
    assert watched.colors() == {"a": "yellow"}


def test_of_two_answers_the_newer_counts(watched: Watched) -> None:
    watched.cache.learn(raw("a", 16, "second"))
    watched.cache.learn(raw("a", 15, "first"))
    assert watched.colors()["a"] == "second"


def test_a_bookmark_ends_the_wait_for_older_events(watched: Watched) -> None:
    watched.cache.learn(raw("a", 15, "green"))
    watched.cache.passed("20")
    watched.cache.learn(raw("a", 18, "late"))
    assert watched.colors()["a"] == "green"
    assert watched.cache.version == "20"


@pytest.mark.parametrize(("listed_at", "expected"), [(14, "green"), (15, "listed"), (16, "listed")])
def test_a_list_older_than_our_write_does_not_undo_it(watched: Watched, listed_at: int, expected: str) -> None:
    listing = watched.cache.listing()
    watched.cache.learn(raw("a", 15, "green"))
    listing.add(raw("a", 14, "listed"))
    listing.commit(str(listed_at))
    assert watched.colors() == {"a": expected}


def test_an_object_created_while_a_list_was_on_its_way_stays(watched: Watched) -> None:
    listing = watched.cache.listing()
    watched.cache.learn(raw("new", 15))
    listing.commit("12")
    assert watched.colors() == {"new": "red"}


def test_a_final_deletion_hides_all_that_is_heard_of_that_life(watched: Watched) -> None:
    listing = watched.cache.listing()
    listing.add(raw("a", 5))
    watched.cache.deleted("a", "uid-a", b'{"kind":"Status","status":"Success"}')
    assert "a" not in watched.cache
    watched.cache.event("MODIFIED", raw("a", 12, "late"))
    watched.cache.learn(raw("a", 11, "late"))
    listing.commit("12")
    assert "a" not in watched.cache
    watched.cache.event("DELETED", raw("a", 13))
    watched.cache.event("ADDED", raw("a", 14, "again", uid="second"))
    assert watched.colors() == {"a": "again"}


def test_a_list_that_began_after_a_deletion_is_the_truth(watched: Watched) -> None:
    watched.cache.gone("a", "uid-a")
    watched.fill(20, raw("a", 18, "again", uid="second"))
    watched.cache.event("MODIFIED", raw("a", 21, "more", uid="second"))
    assert watched.colors() == {"a": "more"}


@pytest.mark.parametrize(("answer", "left"), [
    (raw("a", 15, deletionTimestamp="t", deletionGracePeriodSeconds=30), True),
    (raw("a", 15, deletionTimestamp="t", deletionGracePeriodSeconds=0, finalizers=["x"]), True),
    (raw("a", 15, deletionTimestamp="t", deletionGracePeriodSeconds=0), False),
    (raw("a", 15), False),
])
def test_a_deletion_may_take_its_time(watched: Watched, answer: bytes, left: bool) -> None:
    watched.cache.deleted("a", "uid-a", answer)
    assert ("a" in watched.cache) is left
    if left:
        assert watched.cache["a"].deleting


def test_a_deletion_of_an_earlier_life_leaves_the_present_one(watched: Watched) -> None:
    watched.cache.gone("a", "another uid")
    assert "a" in watched.cache


def evict(watched: Watched) -> None:
    watched.cache.overlay(
        "a", "uid-a", lambda seen: msgspec.structs.replace(seen, deleting=True), lambda seen: seen.deleting
    )


def test_an_overlay_holds_until_the_watch_shows_the_effect(watched: Watched) -> None:
    watched.changed()
    evict(watched)
    assert watched.changed() == ["a"]
    watched.cache.event("MODIFIED", raw("a", 11, "green"))
    assert watched.cache["a"] == View("a", "uid-a", "11", "green", deleting=True)
    watched.cache.event("MODIFIED", raw("a", 12, "green", deletionTimestamp="t"))
    watched.cache.event("DELETED", raw("a", 13, "green", deletionTimestamp="t"))
    watched.cache.event("ADDED", raw("a", 14))
    assert not watched.cache["a"].deleting


def test_an_overlay_does_not_pass_to_another_life(watched: Watched) -> None:
    evict(watched)
    watched.cache.event("ADDED", raw("a", 14, uid="second"))
    assert not watched.cache["a"].deleting
    evict(watched)
    assert not watched.cache["a"].deleting


def test_an_overlay_outlives_a_list_that_began_before_it_only(watched: Watched) -> None:
    listing = watched.cache.listing()
    evict(watched)
    listing.add(raw("a", 5))
    listing.commit("11")
    assert watched.cache["a"].deleting
    watched.fill(12, raw("a", 5))
    assert not watched.cache["a"].deleting


def test_an_overlay_of_an_effect_already_seen_changes_nothing(watched: Watched) -> None:
    watched.cache.event("MODIFIED", raw("a", 11, deletionTimestamp="t"))
    watched.changed()
    evict(watched)
    assert watched.changed() == []


def test_a_doubt_ends_with_the_next_event(watched: Watched) -> None:
    watched.cache.doubt("a")
    watched.changed()
    assert watched.cache.uncertain == {"a"}
    watched.cache.event("MODIFIED", raw("b", 11, "blue"))
    assert watched.cache.uncertain == {"a"}
    watched.cache.event("MODIFIED", raw("a", 12))
    assert watched.cache.uncertain == frozenset()
    assert watched.changed() == ["a"]


def test_a_doubt_does_not_end_with_a_late_event(watched: Watched) -> None:
    watched.cache.learn(raw("a", 15, "green"))
    watched.cache.doubt("a")
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert watched.cache.uncertain == {"a"}


@pytest.mark.parametrize(("found", "expected"), [
    (raw("a", 15, "green"), "green"),
    (raw("a", 5), "red"),
    (None, None),
])
def test_a_get_settles_a_doubt(watched: Watched, found: bytes | None, expected: str | None) -> None:
    watched.cache.doubt("a")
    watched.changed()
    watched.cache.settle("a", found, watched.cache.doubted("a"))
    assert watched.cache.uncertain == frozenset()
    assert watched.colors().get("a") == expected
    assert watched.changed() == ["a"]
    watched.cache.event("MODIFIED", raw("a", 12, "late"))
    assert watched.colors().get("a") == ("late" if found == raw("a", 5) else expected)


def test_a_get_sent_before_the_latest_doubt_settles_nothing(watched: Watched) -> None:
    watched.cache.doubt("a")
    mark = watched.cache.doubted("a")
    watched.cache.doubt("a")
    watched.cache.settle("a", raw("a", 15, "green"), mark)
    assert watched.cache.uncertain == {"a"}
    assert watched.colors()["a"] == "red"


def test_a_list_that_began_after_a_doubt_settles_it(watched: Watched) -> None:
    listing = watched.cache.listing()
    watched.cache.doubt("a")
    listing.commit("11")
    assert watched.cache.uncertain == {"a"}
    watched.fill(12)
    assert watched.cache.uncertain == frozenset()


def test_an_object_that_cannot_be_read_keeps_its_last_view_and_says_why(watched: Watched) -> None:
    watched.changed()
    watched.cache.event("MODIFIED", raw("a", 11, "broken"))
    assert watched.colors()["a"] == "red"
    assert "spec.color" in watched.cache.unreadable["a"]
    assert watched.changed() == ["a"]
    watched.fill(12, raw("a", 11, "broken"), raw("b", 6, "blue"))
    assert watched.colors() == {"a": "red", "b": "blue"}
    watched.cache.event("MODIFIED", raw("a", 13, "green"))
    assert watched.cache.unreadable == {}
    watched.cache.event("ADDED", raw("x", 14, "broken"))
    assert "x" not in watched.cache
    watched.fill(20)
    assert watched.cache.unreadable == {}


def test_an_object_without_metadata_is_the_servers_fault(watched: Watched) -> None:
    with pytest.raises(errors.ServerError, match="metadata cannot be read"):
        watched.cache.event("MODIFIED", b'{"metadata":{"name":3,"uid":"u","resourceVersion":"9"}}')


def test_versions_that_are_no_numbers_are_not_guessed() -> None:
    watched = Watched()
    watched.fill(10, raw("a", "x5"))
    watched.cache.version = "x10"
    watched.cache.learn(raw("a", "x15", "green"))
    assert watched.colors() == {"a": "red"}
    assert watched.cache.uncertain == {"a"}
    watched.cache.settle("a", raw("a", "x15", "green"))
    assert watched.colors() == {"a": "green"}
    watched.cache.event("MODIFIED", raw("a", "x12", "late"))
    assert watched.colors() == {"a": "green"}
    watched.cache.event("MODIFIED", raw("a", "x15", "green"))
    watched.cache.event("MODIFIED", raw("a", "x16", "next"))
    assert watched.colors() == {"a": "next"}


def test_namespaced_keys() -> None:
    cache = Cache(Projection(BY_PLACE, view, identity))
    cache.event("ADDED", raw("a", 1, namespace="x"))
    cache.event("ADDED", raw("a", 2, namespace="y"))
    assert list(cache) == [("x", "a"), ("y", "a")]
    assert BY_PLACE.locate(("x", "a")) == ("x", "a")
    assert BY_NAME.locate("n") == ("", "n")


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
            self.answers.append(lambda: self.watched.cache.learn(body))

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
                self.watched.cache.doubt(name)

    def settle(self) -> None:
        for name in sorted(self.watched.cache.uncertain):
            found = self.objects.get(name)
            self.watched.cache.settle(name, raw(name, found[0], found[2], uid=found[1]) if found else None)

    def bookmark(self) -> None:
        if not self.events and not self.lists:
            self.watched.cache.passed(str(self.version))

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
