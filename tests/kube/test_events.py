"""The event recorder: what it writes, and that it never troubles whoever speaks."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest

from gpuward import errors
from gpuward.kube.events import NORMAL, WARNING, About, EventRecorder, RecordedEvent, event_object
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response
from kubesandbox.timeloop import EPOCH, run_virtual
from sandbox_helpers.virtual import virtual
from tests.kube.scripted import Answerer, Asked, ScriptedTransport, ok, refused

NODE = About("v1", "Node", "gpu-1", "uid-1")
POD = About("v1", "Pod", "driver-x", "uid-2", "gpu-operator")
REASON = "GPUDriverUpgrade"


class Scene:
    """Run a recorder against a scripted server."""

    def __init__(self, answer: Answerer | None = None, limit: int = 20_000) -> None:
        self.transport = ScriptedTransport(answer or (lambda asked: ok(asked.body, 201)))
        self.reported: list[str] = []
        self.recorder = EventRecorder(
            Client(self.transport), now=lambda: asyncio.get_running_loop().time(), random=Random(3), limit=limit,
            report=lambda error: self.reported.append(str(error) if error else "works"),
        )

    async def __aenter__(self) -> Scene:
        self.task = asyncio.create_task(self.recorder.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def say(self, message: str, about: About = NODE, **more: Any) -> None:
        self.recorder.record(about, NORMAL, REASON, message, **more)

    def written(self) -> list[tuple[str, str]]:
        """Return method and message, or count, of every request."""
        return [
            (asked.method, str(asked.body.get("message", asked.body.get("count")))) for asked in self.transport.asked
        ]


def test_an_event_looks_as_client_go_writes_it() -> None:
    said = RecordedEvent(NODE, WARNING, REASON, "Failed to drain the node, x", 1_700_000_000.9)
    assert event_object(said, "nvidia-gpu-operator", 0x17A) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "gpu-1.17a", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "uid-1"},
        "type": "Warning",
        "reason": "GPUDriverUpgrade",
        "message": "Failed to drain the node, x",
        "source": {"component": "nvidia-gpu-operator"},
        "reportingComponent": "nvidia-gpu-operator",
        "reportingInstance": "",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }
    pod = event_object(RecordedEvent(POD, NORMAL, REASON, "x", 0), "c", 1)
    assert pod["metadata"]["namespace"] == "gpu-operator"
    assert pod["involvedObject"]["namespace"] == "gpu-operator"


@virtual
async def test_events_are_written_where_they_belong() -> None:
    async with Scene() as scene:
        scene.say("on a node")
        scene.say("on a pod", POD)
        await scene.recorder.flush()
    paths = {asked.body["involvedObject"]["name"]: asked.path for asked in scene.transport.asked}
    assert paths == {
        "gpu-1": "/api/v1/namespaces/default/events", "driver-x": "/api/v1/namespaces/gpu-operator/events"}


@virtual
async def test_an_events_name_is_made_of_the_object_and_the_time() -> None:
    async with Scene() as scene:
        scene.say("x")
        await scene.recorder.flush()
    assert scene.transport.asked[0].body["metadata"]["name"] == f"gpu-1.{int(EPOCH * 1e9):x}"


@virtual
async def test_the_events_of_one_object_keep_their_order_and_have_names_of_their_own() -> None:
    async with Scene() as scene:
        for number in range(100):
            scene.say(f"step {number}")
        await scene.recorder.flush()
    assert scene.written() == [("POST", f"step {number}") for number in range(100)]
    assert len({asked.body["metadata"]["name"] for asked in scene.transport.asked}) == 100


@virtual
async def test_the_same_again_is_counted_on_the_first() -> None:
    async with Scene() as scene:
        scene.say("same")
        await scene.recorder.flush()
        await asyncio.sleep(90)
        scene.say("same")
        scene.recorder.record(NODE, WARNING, REASON, "same")
        scene.say("same")
        await scene.recorder.flush()
    assert scene.written() == [("POST", "same"), ("PATCH", "2"), ("POST", "same"), ("PATCH", "3")]
    first, patch = scene.transport.asked[:2]
    assert patch.path == f"/api/v1/namespaces/default/events/{first.body['metadata']['name']}"
    assert patch.content_type == "application/merge-patch+json"
    assert patch.body["lastTimestamp"] > first.body["lastTimestamp"]


@pytest.mark.weakness(47)
@virtual
async def test_an_event_that_must_stand_alone_does() -> None:
    async with Scene() as scene:
        for _ in range(3):
            scene.say("Successfully updated node state label to upgrade-done", alone=True)
        await scene.recorder.flush()
    assert [method for method, _ in scene.written()] == ["POST"] * 3


def test_an_event_that_expired_or_may_not_be_patched_is_written_anew() -> None:
    async def run(status: int) -> None:
        def answer(asked: Asked) -> Response:
            return refused(status) if asked.method == "PATCH" else ok(asked.body, 201)

        async with Scene(answer) as scene:
            scene.say("same")
            scene.say("same")
            await scene.recorder.flush()
        assert scene.written() == [("POST", "same"), ("PATCH", "2"), ("POST", "same")]
        assert scene.recorder.dropped == 0

    for status in (403, 404):
        run_virtual(partial(run, status))


@virtual
async def test_passing_troubles_are_waited_out() -> None:
    answers = iter([refused(500), refused(429, retryAfterSeconds=20)])

    async with Scene(lambda asked: next(answers, ok({}, 201))) as scene:
        scene.say("at last")
        await scene.recorder.flush()
        assert len(scene.transport.asked) == 3
        assert scene.transport.asked[2].at - scene.transport.asked[1].at >= 20
        assert scene.recorder.dropped == 0


@virtual
async def test_an_unreachable_server_costs_events_but_nothing_else() -> None:
    def answer(asked: Asked) -> Response:
        raise errors.Unreachable("down")

    async with Scene(answer) as scene:
        scene.say("never")
        scene.say("never", POD)
        await scene.recorder.flush()
        assert scene.recorder.dropped == 2
        assert str(scene.recorder.failure) == "down"


@virtual
async def test_a_refusal_that_stays_is_not_repeated() -> None:
    async with Scene(lambda asked: refused(403, "Forbidden", "namespace is being terminated")) as scene:
        scene.say("no")
        scene.say("neither")
        await scene.recorder.flush()
        assert len(scene.transport.asked) == 2
        assert scene.recorder.dropped == 2


@virtual
async def test_what_goes_wrong_is_reported_once_for_each_kind_of_trouble_and_so_is_its_end() -> None:
    answers = iter([ok({}, 201), refused(403, message="not you"), refused(403, message="nor you"), refused(401, message="who?")])

    async with Scene(lambda asked: next(answers, ok({}, 201))) as scene:
        for number in range(6):
            scene.say(f"step {number}")
        await scene.recorder.flush()
        assert scene.reported == ["not you", "who?", "works"]
        assert scene.recorder.dropped == 3


@virtual
async def test_writes_that_are_under_way_while_a_right_goes_or_comes_are_no_news() -> None:
    """Eight lanes write side by side: the server's answers of before and after the change arrive in any order."""
    allowed = True

    async def answer(asked: Asked) -> Response:
        verdict = allowed
        await asyncio.sleep(int(asked.body["metadata"]["name"].split(".")[0].removeprefix("gpu-")))
        return ok({}, 201) if verdict else refused(403, message="not you")

    async with Scene(answer) as scene:
        for message in ("one", "two"):
            scene.say(message, About("v1", "Node", "gpu-3", "uid"))
            await asyncio.sleep(0.5)
            allowed = not allowed
            scene.say(message, About("v1", "Node", "gpu-1", "uid"))
            await scene.recorder.flush()
        assert scene.reported == ["not you", "works"]


@virtual
async def test_what_waits_is_bounded() -> None:
    async with Scene(limit=10) as scene:
        for number in range(25):
            scene.say(f"step {number}")
        await scene.recorder.flush()
        assert scene.recorder.dropped == 15
        scene.say("more")
        await scene.recorder.flush()
    assert scene.written() == [("POST", f"step {number}") for number in range(10)] + [("POST", "more")]


@virtual
async def test_a_long_message_is_cut_to_what_the_server_takes() -> None:
    async with Scene() as scene:
        scene.say("x" * 5000)
        await scene.recorder.flush()
    assert len(scene.transport.asked[0].body["message"]) == 1024


@virtual
async def test_different_objects_do_not_wait_for_each_other() -> None:
    async def slowly(asked: Asked) -> Response:
        await asyncio.sleep(1)
        return ok({}, 201)

    scene = Scene()
    scene.transport.answer = slowly
    async with scene:
        for number in range(64):
            scene.say("x", About("v1", "Node", f"gpu-{number}", f"uid-{number}"))
        begun = asyncio.get_running_loop().time()
        await scene.recorder.flush()
        assert asyncio.get_running_loop().time() - begun < 32
