"""A real Prometheus scrapes an operator: every query of the dashboard and the alerts has an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpuward.cli.connect import connected
from gpuward.kube import resources
from tests.journeys.stage import POLICY
from tests.monitoring.files import NO_PROMETHEUS, RULES, alerts, queries

T = TypeVar("T")
WITHIN = 60.0
"""Seconds."""
STANDS = ('gpuward_driver_upgrade_held_nodes{reason="BudgetBlocks"} == 1 and on () '
          'gpuward_nodes_by_group{group="up to date"} == 2')
"""One node is held and the others are up to date."""


class Prometheus:
    """Ask a Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer."""
        with urllib.request.urlopen(f"{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def until(self, expr: str) -> None:
        """Wait until a query has results."""
        until(lambda: self.ask("query", query=expr)["result"], expr)

    def started(self) -> None:
        """Wait until it answers."""
        def answers() -> bool:
            with contextlib.suppress(OSError):
                return bool(self.ask("status/buildinfo"))
            return False

        until(answers, "it does not answer")


def until(holds: Callable[[], T | None], what: object) -> T:
    """Wait until something is there, and return it."""
    end = time.monotonic() + WITHIN
    while not (found := holds()):
        assert time.monotonic() < end, what
        time.sleep(0.2)
    return found


@contextlib.contextmanager
def running(output: Path, *command: str) -> Iterator[None]:
    """Keep a process running that writes to a file."""
    with output.open("w", encoding="utf-8") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def said(output: Path, pattern: str) -> str:
    """Wait until a program says something, and return the part of it that is asked for."""
    return until(lambda: re.search(pattern, output.read_text(encoding="utf-8"), re.MULTILINE), pattern)[1]


def upgrade(kubeconfig: str, version: str) -> None:
    """Ask for another driver version."""
    async def ask() -> None:
        async with connected(kubeconfig, None) as (client, _):
            await client.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": {"version": version}}})

    asyncio.run(ask())


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Let a Prometheus with our alerts scrape a demo in which one node is held while the others are upgraded."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(NO_PROMETHEUS)
    folder: Path = tmp_path_factory.mktemp("prometheus")
    python = [sys.executable, "-c", "from gpuward.cli.main import main; main()"]
    with running(folder / "demo", *python, "demo", "--keep", "--nodes", "3", "--speed", "60", "--fault", "budget-blocks"):
        operator = {"targets": [said(folder / "demo", "^metrics: http://(.*)/metrics$")], "labels": {"namespace": "gpu-operator"}}
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "gpu-operator", "static_configs": [operator]}]}), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        with running(folder / "log", program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                     f"--web.listen-address={address}"):
            asked = Prometheus(f"http://{address}")
            asked.started()
            said(folder / "demo", "(Ctrl-C ends them)")
            asked.until(STANDS)
            upgrade(said(folder / "demo", "KUBECONFIG=(.*)$"), "595.91.09")
            asked.until('increase(gpuward_driver_upgrade_state_seconds_count{state="validation-required"}[1m]) > 1')
            asked.until(STANDS)
            yield asked


def test_every_panel_has_data_and_every_alert_can_be_evaluated(prometheus: Prometheus) -> None:
    for title, expr in queries():
        values = [float(one["value"][1]) for one in prometheus.ask("query", query=expr)["result"]]
        assert [value for value in values if not math.isnan(value)], (title, expr)
    (group,) = prometheus.ask("rules")["groups"]
    assert {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in group["rules"]} == {
        alert["alert"]: ("ok", "") for alert in alerts()}
    found = prometheus.ask("query", query="gpuward_nodes_by_group > 0")["result"]
    assert {one["metric"]["group"]: one["value"][1] for one in found} == {"held": "1", "up to date": "2"}
