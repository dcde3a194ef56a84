"""The analysis of waves: judged from the machines and by what people read, against a Prometheus that is asked over TCP."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from gpuward import names
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.measuring import Answer
from gpuward.model.states import State
from gpuward.ports import Access
from gpuward.prometheus.client import PrometheusClient
from gpuward.sandbox.samples import IMAGES
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import condition_of, explanation_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_removed import COMPILED, DEFAULT, MODES, NVIDIADRIVER, PRECOMPILED, installed
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_status_screen import shown
from tests.journeys.test_waves import abort, on_new, promote, resume
from tests.journeys.test_windows import ask

ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}
THREADS = ThreadPoolExecutor(1)


class FakePrometheus(ThreadingHTTPServer):
    """Answer queries with these samples."""

    def __init__(self) -> None:
        self.samples: list[float] = [0.0]
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakePrometheus

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append(form["query"][0])
        result = [{"metric": {"gpu": str(place)}, "value": [1.0, str(value)]} for place, value in enumerate(self.server.samples)]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def prometheus() -> Iterator[FakePrometheus]:
    server = FakePrometheus()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class OverTCP:
    """Ask with the client of the operator, in a thread of its own: the time of the stage stands still meanwhile."""

    async def ask(self, server: str, query: str, access: Access) -> Answer:
        return THREADS.submit(lambda: asyncio.run(PrometheusClient().ask(server, query, access))).result(20)


class WithPrometheus(Stage):
    """Play a cluster whose operator asks a Prometheus."""

    def _operator(self) -> Operator:
        settings = Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0)
        return Operator(self.client, settings, self.clock, outside=Outside(prometheus=OverTCP()))


def check(server: str, **more: Any) -> dict[str, Any]:
    return {"name": "slo", "promql": {"server": server, "query": 'xids{Hostname=~"{{nodes}}"}', "failWhen": "> 0"},
            "interval": "30s", "for": "5m", **more}


def wave(*checks: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "canary", "nodes": 1, "analysis": list(checks), **more}]


async def begin(stage: Stage, mode: str, *waves: dict[str, Any]) -> str:
    await installed(stage, mode)
    (old,) = stage.drivers()
    await apply(stage, waves=list(waves))
    await stage.rest(5)
    await ask(stage, mode)
    return old


def told(stage: Stage, node: str = "gpu-2") -> str:
    return sentence(stage.operator.plan.holds[node])


def holds(stage: Stage, reason: str) -> Callable[[], bool]:
    return lambda: stage.hold("gpu-2") == reason


@MODES
def test_a_wave_whose_check_passes_lets_the_next_one_go_after_its_time(mode: str) -> None:
    with prometheus() as server:
        @on_stage(kind=WithPrometheus, gpu_nodes=3, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            old = await begin(stage, mode, *wave(check(server.address)))
            await stage.until(holds(stage, "AnalysisRunning"), within=1800)
            assert on_new(stage, old) == ["gpu-1"]
            await stage.rest(60)
            began = stage.clock.now()
            lines = await shown(stage)
            assert not any("stopped" in line for line in lines), "it goes on by itself"
            assert any("canary: 1 of 1 done, check slo passes (the query xids{" in line for line in lines)
            assert "wave canary is done, and its check slo has to pass for 5m: it has passed since" in told(stage)
            assert ': the query xids{Hostname=~"gpu-1"} gave 0 {gpu="0"}' in told(stage)
            await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)
            assert stage.clock.now() - began >= 230
            assert set(server.asked) == {'xids{Hostname=~"gpu-1"}'}
            asked = len(server.asked)
            await stage.rest(600)
            assert len(server.asked) == asked, "nobody is asked when all is done"

        scenario()


@MODES
def test_a_canary_that_fails_by_promql_stops_the_rollout_until_somebody_says_something(mode: str) -> None:
    with prometheus() as server:
        server.samples = [0.0, 3.0]

        @on_stage(kind=WithPrometheus, gpu_nodes=3, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            old = await begin(stage, mode, *wave(check(server.address, failures=3)))
            await stage.until(holds(stage, "AnalysisRunning"), within=1800)
            await stage.until(lambda: "1 of 3 failures are counted, the last: the query xids" in told(stage))
            await stage.until(holds(stage, "AnalysisFailed"))
            assert told(stage).startswith("no later wave starts: check slo of wave canary failed 3 times: ")
            assert 'the query xids{Hostname=~"gpu-1"} gave 3 {gpu="1"}, and > 0 fails; see `gpuward explain NODE`' in told(stage)
            helping = [(one.commands, one.risk) for one in (await explanation_of(stage, "gpu-2")).remedies]
            of = " --driver default" if mode == NVIDIADRIVER else ""
            assert ((f"gpuward resume{of}",), "") in helping
            assert ((f"gpuward promote{of}",), "the check has failed: later waves get this driver all the same") in helping
            server.samples = [0.0]
            await stage.restart_operator()
            await stage.rest(3600)
            assert holds(stage, "AnalysisFailed")(), "neither time nor a new operator forgives it"
            assert on_new(stage, old) == ["gpu-1"]
            assert stage.cordons() == []
            driver = DEFAULT if mode == NVIDIADRIVER else ""
            assert any("check slo fails (the query xids" in line for line in await shown(stage))
            (rollout,) = (await status_of(stage))["waves"]
            assert rollout["waves"][0]["state"] == "AnalysisFailed"
            assert rollout["waves"][0]["checks"][0]["result"] == "Failed"
            assert [f"gpuward promote{' --driver default' if driver else ''}"] in [
                list(one.commands) for one in (await explanation_of(stage, "gpu-2")).remedies]
            assert ", although a check failed" in (await promote(stage, driver))[0]
            await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)

        scenario()


def test_a_resumed_rollout_has_a_failed_check_measured_anew_and_an_abort_ends_it() -> None:
    with prometheus() as server:
        server.samples = [1.0]

        @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            await begin(stage, COMPILED, *wave(check(server.address)))
            await stage.until(holds(stage, "AnalysisFailed"), within=1800)
            await stage.rest(40)
            assert condition_of(stage)[1] == "AnalysisFailed"
            asked = len(server.asked)
            said = await resume(stage)
            assert said[0].endswith("; the check that failed is measured anew, and later waves start if it passes"), said
            await stage.rest(5)
            assert len(server.asked) == asked + 1
            assert holds(stage, "AnalysisFailed")()
            server.samples = [0.0]
            await resume(stage)
            await stage.until(holds(stage, "AnalysisRunning"), within=5)
            await abort(stage)
            await stage.until(holds(stage, "Aborted"))
            await stage.rest(600)
            assert on_new(stage) == ["gpu-1"]
            await resume(stage)
            await stage.upgraded(NEW)

        scenario()


def test_a_failed_check_that_somebody_writes_anew_is_measured_anew() -> None:
    with prometheus() as server:
        server.samples = [1.0]

        @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            await begin(stage, COMPILED, *wave(check(server.address)))
            await stage.until(holds(stage, "AnalysisFailed"), within=1800)
            await edit(stage, waves=[{**wave(check(server.address))[0], "name": "first"}])
            await stage.rest(60)
            assert "of wave first failed" in told(stage), "a new name is no new check"
            better = check(server.address)
            better["promql"]["failWhen"] = "> 1"
            await edit(stage, waves=wave(better))
            await stage.upgraded(NEW)

        scenario()


@MODES
def test_an_unreachable_prometheus_holds_later_waves_and_is_named(mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        old = await begin(stage, mode, *wave(check(f"http://127.0.0.1:{port}")))
        await stage.until(holds(stage, "AnalysisUnknown"), within=1800)
        await stage.rest(7200)
        assert told(stage) == ("wave canary is done, and no later one starts while nothing is known of its check slo: "
                               f"http://127.0.0.1:{port}: it cannot be reached (Connection refused)")
        assert on_new(stage, old) == ["gpu-1"]
        assert any("is not known (http://127.0.0.1" in line for line in await shown(stage))
        first, *others = (await explanation_of(stage, "gpu-2")).remedies
        assert first.do == f"have http://127.0.0.1:{port} answer it, or correct check slo of wave canary"
        assert first.commands[0].startswith("kubectl edit rolloutpolicy ")
        assert first.then.startswith("then this node waits: wave canary is done, and its check slo")
        assert not first.then.endswith((":", " "))
        assert others[0].commands[0].startswith("gpuward promote")
        assert len(others) > 1, "the driver before is another way"

    scenario()


def test_no_data_neither_passes_nor_fails_and_goes_on_when_there_is_some() -> None:
    with prometheus() as server:
        server.samples = []

        @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            await begin(stage, COMPILED, *wave(check(server.address, failures=1)))
            await stage.until(holds(stage, "AnalysisUnknown"), within=1800)
            await stage.rest(7200)
            assert f"{server.address} has no data for the query xids" in told(stage)
            await stage.rest(30)
            assert condition_of(stage)[1] == "AnalysisUnknown"
            assert "has no data for the query xids" in condition_of(stage)[2]
            assert on_new(stage) == ["gpu-1"]
            server.samples = [0.0]
            await stage.upgraded(NEW)

        scenario()


@on_stage(kind=WithPrometheus, gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_a_condition_of_a_node_of_the_wave_fails_a_check_and_another_nodes_does_not(stage: Stage) -> None:
    conditions = [{"type": "GpuXid"}]
    set_condition(stage, "gpu-2", "True")
    await begin(stage, COMPILED, *wave({"name": "xid", "nodeConditions": conditions, "for": "10m"}))
    await stage.until(holds(stage, "AnalysisUnknown"), within=1800)
    assert "condition GpuXid is not reported, or Unknown, by gpu-1" in told(stage)
    set_condition(stage, "gpu-1", "False")
    await stage.until(holds(stage, "AnalysisRunning"))
    set_condition(stage, "gpu-1", "True")
    await stage.until(holds(stage, "AnalysisFailed"))
    assert "check xid of wave canary failed once: node gpu-1 has GpuXid=True" in told(stage)
    await stage.rest(3600)
    assert on_new(stage) == ["gpu-1"]
    set_condition(stage, "gpu-1", "False")
    await resume(stage)
    await stage.upgraded(NEW)


@on_stage(kind=WithPrometheus, gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_a_failure_stays_though_a_node_starts_with_another_kernel(stage: Stage) -> None:
    set_condition(stage, "gpu-1", "False")
    old = await begin(stage, PRECOMPILED, *wave({"name": "xid", "nodeConditions": [{"type": "GpuXid"}], "for": "10m"}))
    await stage.until(holds(stage, "AnalysisRunning"), within=1800)
    set_condition(stage, "gpu-1", "True")
    await stage.until(holds(stage, "AnalysisFailed"))
    set_condition(stage, "gpu-1", "False")
    await runs_kernel(stage, "gpu-4", "5.15.0-999-generic")
    await stage.rest(1800)
    await stage.restart_operator()
    await stage.rest(1800)
    assert (stage.hold("gpu-2"), stage.driver("gpu-2"), stage.driver("gpu-3")) == ("AnalysisFailed", old, old)
    await resume(stage)
    await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=7200)


def set_condition(stage: Stage, node: str, status: str) -> None:
    def change(obj: dict[str, Any]) -> None:
        others = [one for one in obj["status"].get("conditions") or () if one["type"] != "GpuXid"]
        obj["status"]["conditions"] = [*others, {"type": "GpuXid", "status": status}]

    stage.sandbox.store.patch_status("nodes", None, node, change)


def test_a_soak_is_measured_too_and_a_failure_ends_it() -> None:
    with prometheus() as server:
        @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            await begin(stage, COMPILED, *wave(check(server.address), soak="2h"))
            await stage.until(holds(stage, "WaveSoaking"), within=1800)
            await stage.rest(3600)
            assert holds(stage, "WaveSoaking")()
            server.samples = [1.0]
            await stage.until(holds(stage, "AnalysisFailed"))
            assert on_new(stage) == ["gpu-1"]

        scenario()


def test_nothing_is_written_while_a_check_goes_on_passing() -> None:
    with prometheus() as server:
        @on_stage(kind=WithPrometheus, gpu_nodes=2, upgrade=ALL_AT_ONCE)
        async def scenario(stage: Stage) -> None:
            await begin(stage, COMPILED, *wave(check(server.address), soak="6h"))
            await stage.until(holds(stage, "WaveSoaking"), within=1800)
            await stage.rest(300)
            before = (await stage.user.get(resources.CLUSTER_POLICIES, "cluster-policy")).object()["metadata"]["resourceVersion"]
            for value in (0.0, -1.0, -2.0):
                server.samples = [value]
                await stage.rest(600)
            after = (await stage.user.get(resources.CLUSTER_POLICIES, "cluster-policy")).object()["metadata"]["resourceVersion"]
            assert before == after

        scenario()
