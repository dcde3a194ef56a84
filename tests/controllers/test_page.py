"""The operator's page over HTTP: what it may do in a browser, what it costs, and what it says of the process that answers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from gpuward.controllers.page import Board, board_of, page_routes
from gpuward.controllers.serving import serve
from gpuward.kube import resources
from gpuward.model.passes import Pass
from gpuward.model.reading import read_time
from gpuward.model.states import State
from gpuward.report.page import Leading
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests import build
from tests.journeys.looking import condition_of, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.report.fleets import Fleet, rollout

LEADS = Leading("operator-1", True, "operator-1")


def board_for(fleet: Fleet | None, leading: Leading = LEADS) -> Board:
    """Return a board that has seen a fleet."""
    board = Board(lambda: leading, lambda: build.NOW + 1, build.NAMESPACE)
    if fleet is not None:
        board.planned(seen(fleet))
    return board


def seen(fleet: Fleet, at: float = build.NOW) -> Pass[Any, Any]:
    return Pass(fleet.snapshot, fleet.policies, at, fleet.plan)


def read(board: Board) -> dict[str, Any]:
    """Return what a browser gets."""
    return dict(json.loads(board.data().body))


@asynccontextmanager
async def asking(board: Board) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve a board, and ask it over HTTP."""
    async with (serve("--metrics-bind-address", "127.0.0.1:0", page_routes(board)) as address,
                aiohttp.ClientSession(f"http://{address}", auto_decompress=False) as session):
        yield session


def test_the_page_is_one_small_file_that_may_load_nothing_and_be_framed_by_nobody() -> None:
    async def main() -> None:
        async with asking(board_for(None)) as session, session.get("/ui") as answer:
            body = await answer.text()
            assert answer.status == 200
            assert len(body.encode()) < 100_000
            assert "//" not in body.replace("// ", ""), "no address of another server"
            policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";"))
            assert (policy["default-src"], policy["frame-ancestors"], policy["form-action"]) == ("'none'",) * 3
            assert policy["connect-src"] == "'self'"
            assert policy["script-src"].startswith("'sha256-")
            assert "unsafe" not in str(policy)
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"

    asyncio.run(main())


def test_nothing_can_be_written() -> None:
    async def main() -> None:
        async with asking(board_for(None)) as session:
            for path in ("/ui", "/ui/", "/ui/data.json"):
                for method in ("POST", "PUT", "PATCH", "DELETE"):
                    async with session.request(method, path) as answer:
                        assert answer.status == 405, (method, path)

    asyncio.run(main())


def test_an_idle_page_gets_no_second_copy() -> None:
    clock = [0.0]

    async def main() -> None:
        board = Board(lambda: LEADS, lambda: build.NOW + 1, build.NAMESPACE, lambda: clock[0])
        board.planned(seen(rollout(200)))
        async with asking(board) as session:
            async with session.get("/ui/data.json", headers={"Accept-Encoding": "gzip"}) as answer:
                zipped = await answer.read()
                assert answer.headers["Content-Encoding"] == "gzip"
                tag = answer.headers["ETag"]
            async with session.get("/ui/data.json", headers={"Accept-Encoding": "identity"}) as answer:
                assert await answer.read() == gzip.decompress(zipped)
                assert "Content-Encoding" not in answer.headers
            board.planned(seen(rollout(200), build.NOW + 9))
            for clock[0], looked in ((0.5, build.NOW), (60.0, build.NOW + 9)):
                async with session.get("/ui/data.json", headers={"If-None-Match": tag}) as answer:
                    assert (answer.status, await answer.read()) == (304, b"")
                    times = [answer.headers[name] for name in ("Gpuward-Seen-At", "Gpuward-Time")]
                    assert times == [f"{looked:.3f}", f"{build.NOW + 1:.3f}"]

    asyncio.run(main())


def test_the_same_content_has_the_same_tag_whenever_it_is_made() -> None:
    assert board_for(rollout(50)).data().tag == board_for(rollout(50)).data().tag != board_for(rollout(51)).data().tag


def test_news_wait_for_a_second_however_many_ask() -> None:
    clock = [0.0]
    board = Board(lambda: LEADS, lambda: build.NOW, build.NAMESPACE, lambda: clock[0])
    board.planned(seen(rollout(3)))
    assert len(read(board)["nodes"]) == 3
    board.planned(seen(rollout(4)))
    for clock[0] in (0.1, 0.5, 0.99):
        assert len(read(board)["nodes"]) == 3
    clock[0] = 2.0
    assert len(read(board)["nodes"]) == 4


def test_who_stops_leading_shows_nothing_of_the_fleet() -> None:
    leading = [LEADS]
    board = Board(lambda: leading[0], lambda: build.NOW, build.NAMESPACE)
    assert read(board)["nodes"] is None
    board.planned(seen(rollout(3)))
    assert len(read(board)["nodes"]) == 3
    leading[0] = Leading("operator-1", False, "operator-2")
    assert (read(board)["nodes"], read(board)["operator"]["holder"]) == (None, "operator-2")
    assert board.data().seen_at is None
    leading[0] = LEADS
    board.forget()
    assert read(board)["nodes"] is None


def test_a_decision_that_fails_leaves_the_last_one_and_says_since_when() -> None:
    fleet = rollout(3)
    board = board_for(fleet)
    failed: Pass[Any, Any] = Pass(fleet.snapshot, fleet.policies, build.NOW + 5, error="KeyError")
    for later in (0.0, 30.0):
        board.planned(msgspec.structs.replace(failed, at=failed.at + later))
    assert (len(read(board)["nodes"]), read(board)["failingSince"]) == (3, "2023-11-14T22:13:25.000Z")


@on_stage(gpu_nodes=3)
async def test_it_says_what_status_says_at_every_moment_of_a_rollout(stage: Stage) -> None:
    board = board_of(stage.operator, build.NAMESPACE, ticks=stage.clock.now)
    await stage.installed()
    await stage.upgrade_to()
    states = set()
    for _ in range(40):
        await stage.rest(7)
        told, status = read(board), await status_of(stage)
        left, told_left = status.pop("estimate"), told["estimate"]
        assert {key: told[key] for key in status if key != "operator"} == {
            key: value for key, value in status.items() if key != "operator"}
        assert (left is None) is (told_left is None)
        assert left is None or left["unknownBecause"] or abs(
            read_time(left["finishesAt"]) - read_time(told_left["finishesAt"])) < 3, "the page's was worked out before"
        states |= {node["state"] for node in told["nodes"]}
    assert stage.finished(NEW)
    assert len(states) > 3, "the rollout was seen on its way"


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%"})
async def test_upgrades_that_end_are_counted_since_the_process_leads(stage: Stage) -> None:
    board = board_of(stage.operator, build.NAMESPACE, ticks=stage.clock.now)
    await stage.installed()
    assert read(board)["history"]["finished"] == 0, "what was installed was not upgraded"
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-2"))
    await stage.upgrade_to()
    ended = {"gpu-1": State.DONE, "gpu-2": State.FAILED, "gpu-3": State.DONE}
    await stage.until(lambda: stage.states() == ended and NEW in stage.drivers(), 7200)
    await stage.rest(5)
    history = read(board)["history"]
    assert (history["finished"], history["failed"]) == (2, 1)
    assert {(one["node"], one["failed"]) for one in history["last"]} == {("gpu-1", False), ("gpu-2", True), ("gpu-3", False)}
    assert all(one["seconds"] > 10 for one in history["last"])
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", {"metadata": {"labels": {"a": "b"}}})
    await stage.rest(5)
    assert read(board)["history"] == history


@on_stage(gpu_nodes=2)
async def test_a_policy_that_cannot_be_followed_is_not_called_up_to_date(stage: Stage) -> None:
    board = board_of(stage.operator, build.NAMESPACE, ticks=stage.clock.now)
    await stage.installed()
    await stage.until(lambda: read(board)["rollout"]["status"] == "True")
    refused = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    for path, bad, good in (("driver/version", "595 91", OLD), ("driver/resources", refused, {})):
        await stage.patch_policy(path, bad)
        await stage.until(lambda: condition_of(stage)[0] == "False", 300)
        await stage.rest(60)
        told = read(board)["rollout"]
        assert (told["status"], told["reason"], told["message"]) == condition_of(stage)
        await stage.patch_policy(path, good)
        await stage.until(lambda: condition_of(stage)[0] == read(board)["rollout"]["status"] == "True", 300)


@on_stage(gpu_nodes=2)
async def test_where_drivers_are_switched_off_it_says_so(stage: Stage) -> None:
    board = board_of(stage.operator, build.NAMESPACE, ticks=stage.clock.now)
    await stage.installed()
    await stage.patch_policy("driver/enabled", False)
    await stage.until(lambda: not read(board)["nodes"], 3600)
    await stage.rest(60)
    assert read(board)["rollout"]["message"].startswith("driver.enabled is false: no drivers are managed")
