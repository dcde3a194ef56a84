"""Watches: from a version on, with bookmarks, in order, and what is said when the version is gone."""

from __future__ import annotations

import pytest

from gpuward.kube.resources import CONFIG_MAPS, EVENTS, NODES, PODS
from tests.contract.api import Api
from tests.contract.objects import config_map, event, pod


def seen(events: list[dict[str, object]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]  # type: ignore[index, misc]  # JSON


def test_a_watch_begins_after_its_version(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    first = api.made(path, config_map("a", x="1"))
    api.merge(f"{path}/a", {"data": {"x": "2"}})
    api.made(path, config_map("b"))
    gone = api.delete(f"{path}/a")
    assert gone.status == 200
    with api.watching(path, resourceVersion=first["metadata"]["resourceVersion"], timeoutSeconds=5) as watch:
        events = watch.until("DELETED", "a")
        # kube-root-ca.crt may come at any time.
        assert [one for one in seen(events) if one[1] in "ab"] == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[-1]["object"]["data"] == {"x": "2"}


def test_a_watch_without_version_shows_what_is_there_first(api: Api) -> None:
    path = PODS.path(api.ns)
    api.made(path, pod("b", node="nowhere"))
    api.made(path, pod("a", node="nowhere"))
    with api.watching(path, timeoutSeconds=5) as watch:
        assert sorted(seen([watch.next(), watch.next()])) == [("ADDED", "a"), ("ADDED", "b")]
        api.made(path, pod("c", node="nowhere"))
        assert seen([watch.next()]) == [("ADDED", "c")]


def test_a_selector_turns_changes_into_additions_and_deletions(api: Api) -> None:
    path = PODS.path(api.ns)
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watching(path, resourceVersion=version, timeoutSeconds=10, labelSelector="in=yes") as watch:
        api.made(path, pod("a", node="nowhere"))
        api.merge(f"{path}/a", {"metadata": {"labels": {"in": "yes"}}})
        assert seen([watch.next()]) == [("ADDED", "a")]
        out = api.merge(f"{path}/a", {"metadata": {"labels": {"in": "no"}}}).body
        event = watch.next()
        assert seen([event]) == [("DELETED", "a")]
        assert event["object"]["metadata"]["resourceVersion"] == out["metadata"]["resourceVersion"]
        assert event["object"]["metadata"]["labels"] == {"in": "yes"}


def test_a_field_selector_watches_one_object(api: Api) -> None:
    path = PODS.path(api.ns)
    with api.watching(path, timeoutSeconds=10, fieldSelector="metadata.name=b") as watch:
        api.made(path, pod("a", node="nowhere"))
        api.made(path, pod("b", node="nowhere"))
        assert seen([watch.next()]) == [("ADDED", "b")]


def test_a_watch_ends_when_its_time_is_over_with_a_bookmark_before(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watching(path, resourceVersion=version, timeoutSeconds=3, allowWatchBookmarks="true") as watch:
        api.made(path, config_map("a"))  # in a quiet cluster there is nothing that a bookmark could say
        events = watch.until_end()
    assert [event["type"] for event in events][-1:] == ["BOOKMARK"]
    last = events[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("ConfigMap", "v1")
    assert int(last["metadata"]["resourceVersion"]) >= int(version)


@pytest.mark.since("1.36")
def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    path = PODS.path(api.ns)
    api.made(path, pod("a", node="nowhere"))
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true",
             "resourceVersion": "", "timeoutSeconds": "5"}
    with api.watching(path, **asked) as watch:
        first, second = watch.next(), watch.next()
    assert seen([first]) == [("ADDED", "a")]
    assert (second["type"], second["object"]["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})


def test_a_version_from_before_the_history_is_gone(api: Api) -> None:
    path = EVENTS.path(api.ns)
    first = api.made(path, event("a", api.ns))
    for name in "bc":
        api.made(path, event(name, api.ns))
    api.server.compact()
    with api.watching(path, resourceVersion=first["metadata"]["resourceVersion"], timeoutSeconds=5) as watch:
        told = watch.next()
    assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_future_version_is_too_large(api: Api) -> None:
    with api.watching(PODS.path(api.ns), resourceVersion=999999999, timeoutSeconds=1) as watch:
        watch.until_end()
    assert watch.refused is None or "Too large resource version" in str(watch.refused)


def test_deletions_of_pods_are_seen_in_two_steps(api: Api) -> None:
    path = PODS.path(api.ns)
    made = api.made(path, pod("a", node="nowhere"))
    with api.watching(path, resourceVersion=made["metadata"]["resourceVersion"], timeoutSeconds=10) as watch:
        api.delete(f"{path}/a")
        marked = watch.next()
        api.delete(f"{path}/a", gracePeriodSeconds=0)
        ended = watch.until("DELETED", "a")[-1]
    assert (marked["type"], marked["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 30)
    assert ended["object"]["metadata"]["uid"] == made["metadata"]["uid"]


def test_nothing_older_than_what_the_server_has_forgotten_can_be_had(api: Api) -> None:
    """Come last: controllers take some seconds to find a server again that has been restarted."""
    api.node("a")
    api.node("b")
    for name in "ab":
        api.made(PODS.path(api.ns), pod(name, node="nowhere"))
    paths = (PODS.path(api.ns), NODES.path())
    old = {path: api.get(path, limit=1).body["metadata"] for path in paths}
    api.merge(f"{PODS.path(api.ns)}/a", {"metadata": {"labels": {"x": "y"}}})
    api.merge(NODES.path("", f"{api.ns}-a"), {"metadata": {"labels": {"x": "y"}}})
    api.server.forget()
    for path in paths:
        with api.watching(path, resourceVersion=old[path]["resourceVersion"], timeoutSeconds=5) as watch:
            told = watch.next()
        assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")
        page = api.get(path, limit=1, continue_=old[path]["continue"])
        exact = api.get(path, resourceVersion=old[path]["resourceVersion"], resourceVersionMatch="Exact")
        assert [(reply.status, reply.reason) for reply in (page, exact)] == [(410, "Expired")] * 2
