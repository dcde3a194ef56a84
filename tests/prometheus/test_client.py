"""What is asked of a server over TCP, and that nothing that it answers does harm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from gpuward.model.measuring import Answer, Sample
from gpuward.ports import Access
from gpuward.prometheus.client import LONGEST, PrometheusClient

GOOD = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"0.5"]}]}}'


def asked(handler: Callable[[web.Request], Awaitable[web.StreamResponse]], access: Access = Access()) -> Answer:  # noqa: B008
    """Return what a client is told by a server that answers so."""
    async def main() -> Answer:
        app = web.Application()
        app.router.add_post("/prom/api/v1/query", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            return await PrometheusClient().ask(f"http://127.0.0.1:{port}/prom", "up", access)
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def answering(text: str, status: int = 200, **headers: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, headers=headers)

    return handler


def test_samples_are_read_and_the_query_and_token_sent() -> None:
    seen: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((str((await request.post())["query"]), request.headers["Authorization"]))
        return web.Response(text=GOOD)

    assert asked(handler, Access("hush")) == Answer((Sample({"a": "b"}, 0.5),))
    assert seen == [("up", "Bearer hush")]
    assert "hush" not in repr(Access("hush"))


@pytest.mark.parametrize(("text", "status", "why"), [
    ('{"status":"error","errorType":"bad_data","error":"parse error"}', 400, "it answers 400 bad_data: parse error"),
    ("<html>", 502, "it answers 502"),
    ("<html>", 200, "it answers 200 with what is no answer of a Prometheus"),
    ("[" * 100_000, 200, "it answers 200 with what is no answer of a Prometheus"),
    ('{"status":"success","data":{"resultType":"matrix","result":[]}}', 200,
     "the query gives a matrix: write one that gives an instant vector or a scalar"),
    ('{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}', 200,
     "it answers with what are no samples, as those of native histograms are none"),
    ('{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}', 200,
     "it answers with what are no samples, as those of native histograms are none"),
    (" " * (LONGEST + 1), 200, "its answer has more than 1024 KiB: aggregate in the query"),
])
def test_what_is_no_answer_is_said(text: str, status: int, why: str) -> None:
    assert asked(answering(text, status)) == Answer(None, why)


def test_a_redirect_is_not_followed() -> None:
    told = asked(answering("", 302, Location="http://127.0.0.1:1/elsewhere"), Access("hush"))
    assert told == Answer(None, "it answers 302 and sends elsewhere, which is not followed")


def test_a_scalar_and_a_warning_are_read() -> None:
    text = '{"status":"success","warnings":["partial"],"data":{"resultType":"scalar","result":[1,"+Inf"]}}'
    assert asked(answering(text)) == Answer((Sample({}, float("inf")),), "partial")


def test_a_secret_without_authorities_that_can_be_read_is_named() -> None:
    told = asyncio.run(PrometheusClient().ask("https://127.0.0.1:1", "up", Access("", "nonsense")))
    assert told == Answer(None, "ca.crt of its Secret has no certificate authority that can be read")


def test_a_real_prometheus_is_asked(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        assert not os.environ.get("CI"), "prometheus is not installed"
        pytest.skip("prometheus is not installed")
    with socket.create_server(("127.0.0.1", 0)) as found:
        address = f"127.0.0.1:{found.getsockname()[1]}"
    job = f"{{job_name: itself, scrape_interval: 1s, static_configs: [{{targets: ['{address}']}}]}}"
    (tmp_path / "p.yml").write_text(f"scrape_configs: [{job}]\n")
    running = subprocess.Popen(["prometheus", f"--config.file={tmp_path / 'p.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
                                f"--web.listen-address={address}", "--log.level=error"])
    try:
        def ask(query: str) -> Answer:
            return asyncio.run(PrometheusClient().ask(f"http://{address}", query, Access()))

        deadline = time.monotonic() + 60
        while not (ask("up").samples or ()):
            assert time.monotonic() < deadline, ask("up")
            time.sleep(0.3)
        assert ask("up") == Answer((Sample({"__name__": "up", "instance": address, "job": "itself"}, 1.0),))
        assert ask("vector(0) / 0").samples is not None
        assert ask("scalar(vector(3))") == Answer((Sample({}, 3.0),))
        assert ask("nothing_of_that_name") == Answer(())
        assert (ask("up{").why or "").startswith("it answers 400 bad_data: ")
        assert "gives a matrix" in ask("up[1m]").why
    finally:
        running.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(10)
