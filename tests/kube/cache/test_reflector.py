"""The reflector in virtual time: resuming, listing again, silence, refusals, back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest

from gpuward import errors
from gpuward.kube.cache.reflector import Reflector, WatchTiming
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.http.refusals import refusal
from gpuward.kube.http.transport import Response
from gpuward.kube.resources import PODS
from kubesandbox.timeloop import run_virtual
from sandbox_helpers.virtual import virtual
from tests.kube.scripted import Asked, ScriptedTransport, Watch, listed, refused, thing


class Sink:
    """Remember what arrived, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def listing(self) -> Sink.Listing:
        return Sink.Listing(self)

    def event(self, kind: str, raw: bytes) -> str:
        meta = msgspec.json.decode(raw)["metadata"]
        self.seen.append((kind, meta["name"]))
        return str(meta["resourceVersion"])

    def bookmark(self, version: str) -> None:
        self.seen.append(("BOOKMARK", version))

    class Listing:
        """Remember a list once it is complete."""

        def __init__(self, sink: Sink) -> None:
            self.sink = sink
            self.names: list[str] = []

        def add(self, raw: bytes) -> None:
            self.names.append(msgspec.json.decode(raw)["metadata"]["name"])

        def commit(self, version: str) -> None:
            self.sink.seen.append(("LIST", version, *self.names))


class Scene:
    """Run a reflector against a scripted server."""

    def __init__(self, answer: Callable[[Asked], Response] | None = None, **timing: float) -> None:
        self.transport = ScriptedTransport(answer or (lambda asked: listed(10, thing("a", 3))))
        self.client = Client(self.transport)
        self.sink = Sink()
        self.reports: list[errors.GpuwardError | None] = []
        self.reflector = Reflector(
            self.client, Selection(PODS), self.sink, random=Random(7), report=self.reports.append,
            timing=WatchTiming(**timing),
        )

    async def __aenter__(self) -> Scene:
        self.task = asyncio.create_task(self.reflector.run())
        await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    @property
    def watch(self) -> Watch:
        """Return the latest watch."""
        return self.transport.watches[-1]

    @property
    def resumed_from(self) -> list[str]:
        """Return the version from which each watch began."""
        return [watch.query["resourceVersion"] for watch in self.transport.watches]

    def gaps(self) -> list[float]:
        """Return the seconds between requests of lists."""
        times = [asked.at for asked in self.transport.asked]
        return [round(later - earlier, 3) for earlier, later in pairwise(times)]


@virtual
async def test_it_lists_then_watches_from_the_lists_version() -> None:
    async with Scene() as scene:
        scene.watch.send("MODIFIED", thing("a", 11))
        scene.watch.bookmark(15)
        await asyncio.sleep(0.1)
        assert scene.sink.seen == [("LIST", "10", "a"), ("MODIFIED", "a"), ("BOOKMARK", "15")]
        query = scene.watch.query
        assert query["allowWatchBookmarks"] == "true"
        assert query["resourceVersion"] == "10"
        assert 240 <= int(query["timeoutSeconds"]) <= 360
        assert scene.transport.asked[0].query == {"limit": "500"}
    assert scene.watch.closed


@virtual
async def test_pages_arrive_as_one_list() -> None:
    pages = {"": listed(10, thing("a", 3), more="next"), "next": listed(10, thing("b", 4))}
    async with Scene(lambda asked: pages[asked.query.get("continue", "")]) as scene:
        assert scene.sink.seen == [("LIST", "10", "a", "b")]


@virtual
async def test_after_the_servers_end_it_resumes_without_a_list() -> None:
    async with Scene() as scene:
        scene.watch.send("MODIFIED", thing("a", 11))
        scene.watch.end()
        await asyncio.sleep(0.001)
        scene.watch.bookmark(20)
        scene.watch.end()
        await asyncio.sleep(0.001)
        assert scene.resumed_from == ["10", "11", "20"]
        assert len(scene.transport.asked) == 1
        assert scene.reports == []


@virtual
async def test_a_broken_watch_resumes_after_a_moment_and_is_reported_once() -> None:
    async with Scene() as scene:
        scene.watch.send("MODIFIED", thing("a", 11))
        scene.watch.end(errors.Unreachable("reset by peer"))
        await asyncio.sleep(0.2)
        assert scene.resumed_from == ["10", "11"]
        scene.watch.end(errors.Unreachable("reset by peer"))
        await asyncio.sleep(0.2)
        assert scene.resumed_from == ["10", "11", "11"]
        assert [str(report) for report in scene.reports] == ["reset by peer"]
        assert str(scene.reflector.failure) == "reset by peer"
        scene.watch.bookmark(12)
        await asyncio.sleep(0.001)
        assert scene.reports[1:] == [None]
        assert scene.reflector.failure is None


@virtual
async def test_silence_is_a_broken_watch() -> None:
    async with Scene(silence=150) as scene:
        await asyncio.sleep(149)
        assert len(scene.transport.watches) == 1
        scene.watch.bookmark(12)
        await asyncio.sleep(149)
        assert len(scene.transport.watches) == 1
        await asyncio.sleep(2)
        assert scene.resumed_from == ["10", "12"]
        assert len(scene.transport.asked) == 1


@pytest.mark.parametrize("as_event", [True, False])
def test_a_version_that_is_gone_leads_to_a_new_list(as_event: bool) -> None:
    async def run() -> None:
        versions = iter([10, 30])
        async with Scene(lambda asked: listed(next(versions), thing("a", 3))) as scene:
            if as_event:
                scene.watch.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})
            else:
                scene.watch.end(errors.Gone("old"))
            await asyncio.sleep(0.2)
            assert scene.sink.seen == [("LIST", "10", "a"), ("LIST", "30", "a")]
            assert scene.resumed_from == ["10", "30"]
            assert scene.reports == []

    run_virtual(run)


@virtual
async def test_a_server_that_is_always_gone_is_not_hammered() -> None:
    scene = Scene()
    scene.transport.refuse_watch = errors.Gone("old")
    async with scene:
        await asyncio.sleep(60)
    gaps = scene.gaps()
    assert 5 <= len(gaps) <= 20
    assert gaps[0] < 0.2
    assert max(gaps) > 4


@virtual
async def test_a_list_that_expires_while_paging_is_read_in_one_piece() -> None:
    def answer(asked: Asked) -> Response:
        if "continue" in asked.query:
            return refused(410, "Expired")
        if "limit" in asked.query:
            return listed(10, thing("a", 3), more="next")
        return listed(12, thing("a", 3), thing("b", 4))

    async with Scene(answer) as scene:
        assert scene.sink.seen == [("LIST", "12", "a", "b")]


@virtual
async def test_failed_lists_back_off_up_to_ten_seconds_and_recover() -> None:
    down = True
    scene = Scene(lambda asked: refused(500, "InternalError", "etcd") if down else listed(10))
    async with scene:
        await asyncio.sleep(120)
        gaps = scene.gaps()
        assert 0.05 <= gaps[0] <= 0.1
        for number, gap in enumerate(gaps):
            longest = min(10, 0.1 * 2**number)
            assert longest / 2 - 0.001 <= gap <= longest + 0.001
        assert [type(report) for report in scene.reports] == [errors.ServerError]
        down = False
        await asyncio.sleep(11)
        assert scene.sink.seen == [("LIST", "10")]
        assert scene.reports[-1] is None


@virtual
async def test_the_server_may_ask_for_a_longer_wait() -> None:
    async with Scene(lambda asked: refused(429, "TooManyRequests", retryAfterSeconds=25)) as scene:
        await asyncio.sleep(80)
        assert scene.gaps() == [25.0, 25.0, 25.0]


@pytest.mark.parametrize(("busy", "reports"), [(2, []), (8, [errors.TooManyRequests, type(None)])])
def test_a_server_that_is_busy_for_a_moment_is_no_trouble(busy: int, reports: list[type]) -> None:
    """kube-apiserver says so of a custom resource whose CRD has just been made: storage is (re)initializing."""
    async def run() -> None:
        answers = iter([refused(429, "TooManyRequests", retryAfterSeconds=1)] * busy)
        async with Scene(lambda _: next(answers, listed(10, thing("a", 3)))) as scene:
            await asyncio.sleep(60)
            assert scene.sink.seen == [("LIST", "10", "a")]
            assert [type(report) for report in scene.reports] == reports

    run_virtual(run)


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
@pytest.mark.parametrize("asked", ["3600", "Sun, 22 Nov 2099 10:00:07 GMT", "9" * 5000, "\x1b[2J", "-1", "1e9"])
def test_a_load_balancer_that_asks_for_an_hour_silences_nobody(status: int, asked: str) -> None:
    """Neither the list nor the watch: its maintenance page was there for a moment only."""
    page = Response(status, {"Retry-After": asked, "Date": "Sun, 22 Nov 2026 10:00:00 GMT"}, b"<html>maintenance</html>")

    async def run() -> None:
        answers = iter([page])
        async with Scene(lambda _: next(answers, listed(10))) as scene:
            await asyncio.sleep(errors.LONGEST_WAIT + 1)
            assert len(scene.transport.watches) == 1
            scene.transport.refuse_watch = refusal(page)
            scene.transport.watches[0].end()
            await asyncio.sleep(1)
            scene.transport.refuse_watch = None
            over = asyncio.get_running_loop().time()
            await asyncio.sleep(errors.LONGEST_WAIT + 1)
            assert scene.transport.watches[-1].at > over

    run_virtual(run)


@pytest.mark.parametrize(("status", "kind"), [(403, errors.Forbidden), (404, errors.NotFound)])
def test_a_refusal_that_stays_is_reported_once_and_retried_slowly(status: int, kind: type[Exception]) -> None:
    async def run() -> None:
        allowed = False
        scene = Scene(lambda asked: listed(10, thing("a", 3)) if allowed else refused(status))
        async with scene:
            await asyncio.sleep(301)
            assert 14 <= len(scene.gaps()) <= 16
            assert all(27 <= gap <= 33 for gap in scene.gaps()[6:])
            assert [type(report) for report in scene.reports] == [kind]
            assert scene.sink.seen == []
            allowed = True
            await asyncio.sleep(33)
            assert scene.sink.seen == [("LIST", "10", "a")]
            assert scene.reports[1:] == [None]

    run_virtual(run)


@virtual
async def test_a_server_that_has_not_read_its_roles_yet_is_asked_again_soon() -> None:
    """One that was just started refuses everything for a moment; a rollout does not stand still for half a minute then."""
    answers = iter([refused(403), refused(403), listed(10)])
    async with Scene(lambda asked: next(answers)) as scene:
        await asyncio.sleep(2)
        assert scene.resumed_from == ["10"]


@virtual
async def test_another_failure_is_reported_too() -> None:
    answers = iter([refused(403), refused(500), refused(500), listed(10)])
    async with Scene(lambda asked: next(answers)) as scene:
        await asyncio.sleep(40)
        assert [type(report) for report in scene.reports] == [errors.Forbidden, errors.ServerError, type(None)]


@virtual
async def test_a_watch_that_ends_at_once_is_not_repeated_without_a_pause() -> None:
    scene = Scene()
    async with scene:
        for _ in range(2000):
            scene.watch.end()
            await asyncio.sleep(0.05)
    assert len(scene.transport.watches) < 60


@virtual
async def test_an_unknown_kind_of_event_is_a_failure_of_the_server() -> None:
    async with Scene() as scene:
        scene.watch.send("SURPRISE", thing("a", 11))
        await asyncio.sleep(0.2)
        assert [type(report) for report in scene.reports] == [errors.ServerError]
        assert scene.resumed_from == ["10", "10"]


@virtual
async def test_a_list_without_a_version_is_a_failure_of_the_server() -> None:
    async with Scene(lambda asked: Response(200, {}, b'{"items":[]}')) as scene:
        assert [str(report) for report in scene.reports] == ["the list of pods has no resourceVersion"]
        assert scene.sink.seen == []
