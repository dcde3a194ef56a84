"""The cache's rules, one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import errors
from gpuward.kube.cache.cache import Cache
from gpuward.kube.cache.projection import BY_NAME, BY_PLACE, Projection
from tests.kube.colors import View, Watched, identity, raw, view


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
    watched.cache.event("DELETED", raw("d", 13))
    assert red() == []


@pytest.mark.weakness(41)
def test_our_own_write_is_seen_at_once_and_a_late_event_does_not_undo_it(watched: Watched) -> None:
    watched.cache.apply_response(raw("a", 15, "green"))
    assert watched.colors()["a"] == "green"
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert watched.colors()["a"] == "green"
    watched.cache.event("MODIFIED", raw("a", 15, "green"))
    watched.cache.event("MODIFIED", raw("a", 16, "yellow"))
    assert watched.colors()["a"] == "yellow"


def test_a_write_that_makes_an_object_irrelevant_is_not_undone_either(watched: Watched) -> None:
    watched.cache.apply_response(raw("a", 15, ""))
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert "a" not in watched.cache
    watched.cache.event("MODIFIED", raw("a", 16, "yellow"))
    assert watched.colors()["a"] == "yellow"


def test_an_answer_that_the_watch_has_overtaken_is_no_news(watched: Watched) -> None:
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    watched.cache.event("DELETED", raw("b", 13, "blue"))
    watched.cache.apply_response(raw("a", 11, "green"))
    watched.cache.apply_response(raw("b", 12, "green"))
    assert watched.colors() == {"a": "yellow"}


def test_of_two_answers_the_newer_counts(watched: Watched) -> None:
    watched.cache.apply_response(raw("a", 16, "second"))
    watched.cache.apply_response(raw("a", 15, "first"))
    assert watched.colors()["a"] == "second"


def test_a_bookmark_ends_the_wait_for_older_events(watched: Watched) -> None:
    watched.cache.apply_response(raw("a", 15, "green"))
    watched.cache.bookmark("20")
    watched.cache.apply_response(raw("a", 18, "late"))
    assert watched.colors()["a"] == "green"
    assert watched.cache.version == "20"


@pytest.mark.parametrize(("listed_at", "expected"), [(14, "green"), (15, "listed"), (16, "listed")])
def test_a_list_older_than_our_write_does_not_undo_it(watched: Watched, listed_at: int, expected: str) -> None:
    listing = watched.cache.listing()
    watched.cache.apply_response(raw("a", 15, "green"))
    listing.add(raw("a", 14, "listed"))
    listing.commit(str(listed_at))
    assert watched.colors() == {"a": expected}


def test_an_object_created_while_a_list_was_on_its_way_stays(watched: Watched) -> None:
    listing = watched.cache.listing()
    watched.cache.apply_response(raw("new", 15))
    listing.commit("12")
    assert watched.colors() == {"new": "red"}


def test_a_final_deletion_hides_all_that_is_heard_of_that_life(watched: Watched) -> None:
    listing = watched.cache.listing()
    listing.add(raw("a", 5))
    watched.cache.deleted("a", "uid-a", b'{"kind":"Status","status":"Success"}')
    assert "a" not in watched.cache
    watched.cache.event("MODIFIED", raw("a", 12, "late"))
    watched.cache.apply_response(raw("a", 11, "late"))
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
    watched.cache.mark_uncertain("a")
    watched.changed()
    assert watched.cache.uncertain == {"a"}
    watched.cache.event("MODIFIED", raw("b", 11, "blue"))
    assert watched.cache.uncertain == {"a"}
    watched.cache.event("MODIFIED", raw("a", 12))
    assert watched.cache.uncertain == frozenset()
    assert watched.changed() == ["a"]


def test_a_doubt_does_not_end_with_a_late_event(watched: Watched) -> None:
    watched.cache.apply_response(raw("a", 15, "green"))
    watched.cache.mark_uncertain("a")
    watched.cache.event("MODIFIED", raw("a", 12, "yellow"))
    assert watched.cache.uncertain == {"a"}


@pytest.mark.parametrize(("found", "expected"), [
    (raw("a", 15, "green"), "green"),
    (raw("a", 5), "red"),
    (None, None),
])
def test_a_get_settles_a_doubt(watched: Watched, found: bytes | None, expected: str | None) -> None:
    watched.cache.mark_uncertain("a")
    watched.changed()
    watched.cache.settle("a", found, watched.cache.uncertain_since("a"))
    assert watched.cache.uncertain == frozenset()
    assert watched.colors().get("a") == expected
    assert watched.changed() == ["a"]
    watched.cache.event("MODIFIED", raw("a", 12, "late"))
    assert watched.colors().get("a") == ("late" if found == raw("a", 5) else expected)


def test_a_get_sent_before_the_latest_doubt_settles_nothing(watched: Watched) -> None:
    watched.cache.mark_uncertain("a")
    mark = watched.cache.uncertain_since("a")
    watched.cache.mark_uncertain("a")
    watched.cache.settle("a", raw("a", 15, "green"), mark)
    assert watched.cache.uncertain == {"a"}
    assert watched.colors()["a"] == "red"


def test_a_list_that_began_after_a_doubt_settles_it(watched: Watched) -> None:
    listing = watched.cache.listing()
    watched.cache.mark_uncertain("a")
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
    watched.cache.apply_response(raw("a", "x15", "green"))
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
