"""The driver manager while the API server is away: it says so, and ends in the time that the kubelet gives it."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuward import errors
from gpuward.agents.drivermanager import run
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.telling import Teller
from tests.agents.test_driver_manager_evict import Server
from tests.agents.test_driver_manager_pods import Place

GRACE = 30.0
"""Seconds that the kubelet gives a pod to end, by default."""
CODE = """
import sys
from gpuward.agents.drivermanager.command import driver_manager
sys.exit(driver_manager(["uninstall_driver"]))
"""


@pytest.fixture(params=["it refuses connections", "it takes them and says nothing"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of an API server that does not answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if "nothing" in request.param:
            server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def begun(folder: Path, address: str) -> subprocess.Popen[str]:
    """Start the driver manager."""
    (folder / "kubeconfig").write_text(json.dumps({
        "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": address}}], "users": [{"name": "a", "user": {"token": "t"}}]}))
    (folder / "last").touch()
    variables = {"KUBECONFIG": str(folder / "kubeconfig"), "NODE_NAME": "node-1", "AGENT_ROOT": str(folder),
                 "AGENT_SYS": str(folder), "AGENT_PROC": str(folder), "AGENT_TERMINATION_LOG": str(folder / "last")}
    return subprocess.Popen([sys.executable, "-c", CODE], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def test_it_says_soon_whom_it_waits_for_and_ends_within_its_grace(tmp_path: Path, address: str) -> None:
    process, started = begun(tmp_path, address), time.monotonic()
    assert process.stdout is not None
    assert f"waiting for the API server, for 3 s: {address}: " in process.stdout.readline()
    assert time.monotonic() - started < 8.0
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert "told to end by SIGTERM: giving the node back" in process.stdout.readline()
    assert (tmp_path / "last").read_text() == "told to end by SIGTERM: giving the node back", "whoever kills it now leaves that"
    said, _ = process.communicate(timeout=60.0)
    assert time.monotonic() - told < GRACE - 5.0
    assert process.returncode == 128 + signal.SIGTERM, said
    assert (tmp_path / "last").read_text().startswith(
        f"told to end by SIGTERM; the node could not be given back, the next attempt does it: {address}: ")


class Away(Server):
    """Be an API server that no longer answers."""

    def get(self, path: str) -> dict[str, object]:
        raise errors.Unreachable("https://10.96.0.1: Connection refused")


def test_what_became_of_the_node_is_a_note_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GIVING_BACK", 0.5)
    place = Place(tmp_path)
    with pytest.raises(errors.Unreachable) as caught:
        DriverManager(Settings("gpu-1"), place.machine, Away([]), Teller(io.StringIO())).uninstall()
    assert caught.value.__notes__ == [
        "the node could not be given back, the next attempt does it: https://10.96.0.1: Connection refused"]


def test_an_answer_that_makes_no_sense_does_not_hide_why_it_failed(tmp_path: Path) -> None:
    class Odd(Server):
        def get(self, path: str) -> dict[str, object]:
            return {}

    place = Place(tmp_path)
    with pytest.raises(KeyError) as caught:
        DriverManager(Settings("gpu-1"), place.machine, Odd([]), Teller(io.StringIO())).uninstall()
    assert caught.value.__notes__ == ["the node could not be given back, the next attempt does it: KeyError: 'metadata'"]
