"""The page of `gpuward run`: of the process that leads, of one that stands by, and switched off."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from gpuward.sandbox.samples import IMAGES
from tests.recorder.test_process import install, process, until

PROBES = ["--health-probe-bind-address", "0", "--no-recorder"]


def free_address() -> str:
    """Return an address that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return f"127.0.0.1:{bound.getsockname()[1]}"


def data(address: str) -> dict[str, Any]:
    """Return what the page is made from; empty while there is no answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/ui/data.json", timeout=10) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, ConnectionError):
        return {}


def status(address: str, path: str) -> int:
    """Return the status of an answer; 0 while there is none."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError):
        return 0


def test_the_page_follows_a_real_process_from_its_start(tmp_path: Path) -> None:
    kubeconfig, sandbox, log = tmp_path / "kubeconfig", tmp_path / "sandbox", tmp_path / "log"
    first, second, third = (free_address() for _ in range(3))
    environment = {**IMAGES, "OPERATOR_NAMESPACE": "gpu-operator", "KUBECONFIG": str(kubeconfig)}

    def run(address: str, *options: str) -> list[str]:
        return ["run", *PROBES, "--leader-elect", "--metrics-bind-address", address, *options]

    with process(sandbox, "sandbox", "--nodes", "2", "--speed", "60", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, sandbox)
        asyncio.run(install(kubeconfig))
        with process(log, *run(first), **environment):
            until(lambda: data(first).get("counts", {}).get("upToDate") == 2, log)
            told = data(first)
            assert [node["name"] for node in told["nodes"]] == ["gpu-1", "gpu-2"]
            assert told["headline"] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"
            here = socket.gethostname()
            assert told["operator"] == {"process": here, "leads": True, "holder": here, "own": True}
            assert status(first, "/ui") == 200
            with process(log, *run(second), **environment), process(log, *run(third, "--ui=false"), **environment):
                until(lambda: data(second).get("operator", {}).get("holder"), log)
                assert data(second)["nodes"] is None
                assert data(second)["operator"] == {"process": here, "leads": False, "holder": here, "own": False}
                until(lambda: status(third, "/metrics") == 200, log)
                assert [status(third, path) for path in ("/ui", "/ui/", "/ui/data.json")] == [404] * 3
