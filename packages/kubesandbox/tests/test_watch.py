"""Watches in virtual time: what arrives, when, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kubesandbox.messages import Stream
from kubesandbox.timeloop import VirtualLoop
from sandbox_helpers.calls import Caller

PODS = "/api/v1/pods"
Play = Callable[[Callable[[Caller], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play() -> Play:
    def run(story: Callable[[Caller], Coroutine[Any, Any, None]]) -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(story(Caller()))
        finally:
            loop.close()
    return run


async def take(stream: Stream, count: int) -> list[tuple[str, str]]:
    """Return the next lines of a watch as (type, name)."""
    found = []
    chunks = stream.chunks()
    for _ in range(count):
        line = json.loads(await anext(chunks))
        found.append((line["type"], line["object"]["metadata"].get("name", "")))
    await chunks.aclose()  # type: ignore[attr-defined]  # an async generator
    return found


async def rest(stream: Stream) -> list[Any]:
    return [json.loads(line) async for line in stream.chunks()]


def relabel(caller: Caller, name: str, **labels: str) -> None:
    caller.store.modify("pods", "default", name, lambda pod: pod["metadata"].update(labels=labels))


def test_a_watch_without_version_begins_with_what_there_is(play: Play) -> None:
    async def story(caller: Caller) -> None:
        caller.pod("a")
        stream = caller.watch(PODS)
        caller.pod("b")
        caller.store.remove("pods", "default", "a")
        assert await take(stream, 3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]

    play(story)


def test_a_watch_from_a_version_misses_nothing_after_it(play: Play) -> None:
    async def story(caller: Caller) -> None:
        caller.pod("a")
        version = caller.store.version
        caller.pod("b")
        relabel(caller, "a", x="y")
        assert await take(caller.watch(PODS, resourceVersion=version), 2) == [("ADDED", "b"), ("MODIFIED", "a")]

    play(story)


def test_a_selector_turns_changes_into_coming_and_going(play: Play) -> None:
    async def story(caller: Caller) -> None:
        stream = caller.watch(PODS, labelSelector="x=1", resourceVersion=caller.store.version)
        caller.pod("a")
        relabel(caller, "a", x="1")
        relabel(caller, "a", x="1", z="2")
        relabel(caller, "a", x="2")
        relabel(caller, "a", x="1")
        caller.store.remove("pods", "default", "a")
        assert await take(stream, 5) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]

    play(story)


def test_a_version_that_is_gone_is_an_error_event(play: Play) -> None:
    async def story(caller: Caller) -> None:
        version = caller.store.version
        caller.pod("a")
        caller.store.compact(caller.store.version)
        [line] = await rest(caller.watch(PODS, resourceVersion=version))
        assert line["type"] == "ERROR"
        assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")
        [line] = await rest(caller.watch(PODS, resourceVersion=caller.store.version + 9))
        assert line["object"]["code"] == 504

    play(story)


def test_the_server_ends_a_watch_after_its_time(play: Play) -> None:
    async def story(caller: Caller) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await rest(caller.watch(PODS, timeoutSeconds=300)) == []
        assert loop.time() - begun == pytest.approx(300)

    play(story)


def test_bookmarks_come_when_asked_for(play: Play) -> None:
    async def story(caller: Caller) -> None:
        stream = caller.watch(PODS, timeoutSeconds=100, allowWatchBookmarks="true", resourceVersion=caller.store.version)
        caller.node("elsewhere")
        [line] = await rest(stream)
        assert line["type"] == "BOOKMARK"
        assert line["object"]["metadata"]["resourceVersion"] == str(caller.store.version)

    play(story)


def test_initial_events_end_with_a_marked_bookmark(play: Play) -> None:
    async def story(caller: Caller) -> None:
        caller.pod("a")
        lines = await rest(caller.watch(PODS, timeoutSeconds=1, allowWatchBookmarks="true", sendInitialEvents="true",
                                        resourceVersionMatch="NotOlderThan"))
        assert [line["type"] for line in lines][:2] == ["ADDED", "BOOKMARK"]
        assert lines[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    play(story)


def test_watches_of_different_resources_lag_by_themselves(play: Play) -> None:
    async def story(caller: Caller) -> None:
        caller.api.watch_delay = lambda key: {"pods": 5.0, "nodes": 1.0}.get(key, 0.0)
        loop = asyncio.get_running_loop()
        order: list[tuple[str, float]] = []

        async def follow(path: str) -> None:
            await take(streams[path], 1)
            order.append((path, loop.time() - begun))

        version = caller.store.version
        streams = {path: caller.watch(path, resourceVersion=version) for path in (PODS, "/api/v1/nodes", "/api/v1/configmaps")}
        begun = loop.time()
        caller.pod("p")
        caller.node("n")
        caller.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
        await asyncio.gather(*map(follow, streams))
        assert [(path, round(when, 3)) for path, when in order] == [("/api/v1/configmaps", 0.0), ("/api/v1/nodes", 1.0),
                                                                    (PODS, 5.0)]

    play(story)


def test_a_shorter_delay_does_not_let_changes_overtake(play: Play) -> None:
    async def story(caller: Caller) -> None:
        delays = iter([3.0, 0.0, 1.0])
        caller.api.watch_delay = lambda _: next(delays, 0.0)
        stream = caller.watch(PODS, resourceVersion=caller.store.version)
        for name in ("a", "b", "c"):
            caller.pod(name)
        assert await take(stream, 3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]

    play(story)


def test_a_closed_watch_no_longer_listens(play: Play) -> None:
    async def story(caller: Caller) -> None:
        stream = caller.watch(PODS, resourceVersion=caller.store.version)
        stream.close()
        caller.pod("a")
        assert await rest(stream) == []

    play(story)
