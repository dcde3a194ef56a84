"""Nodes leave this machine as they found it, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.realnodes import PATIENCE, ROOT, Nodes, eventually, running, settings, traces

pytestmark = pytest.mark.realnode


@pytest.fixture
def nodes(archive: Path, tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "run")
    yield nodes
    nodes.run("down")


def test_nothing_stays_after_parts_were_killed(nodes: Nodes, archive: Path) -> None:
    machine, before = settings(), traces(nodes.state)
    nodes.run("up")
    nodes.run("load", str(archive))
    nodes.pod("probe", {})
    assert settings() == machine
    pids = nodes.pids(nodes.run("status"))
    for name in ("node-1", "router", "kube-apiserver"):
        os.kill(pids[name], signal.SIGKILL)
    eventually("all processes of the node end with its first", lambda: not running(nodes.state, "probe"))
    nodes.run("status", code=1)
    nodes.run("down")
    assert traces(nodes.state) - before == set()
    assert settings() == machine
    nodes.run("down")
    assert "runs" not in nodes.run("status", code=3).replace("does not run", "")


def test_nothing_stays_after_the_start_was_killed_and_its_notes_were_lost(nodes: Nodes) -> None:
    machine, before = settings(), traces(nodes.state)
    with subprocess.Popen(nodes.command("up"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
        note = nodes.state / "node-1.pid"
        until = time.monotonic() + PATIENCE
        while not running(nodes.state, "containerd"):
            assert time.monotonic() < until
            time.sleep(0.01)
        starting.kill()
    note.unlink()
    nodes.run("down")
    assert traces(nodes.state) - before == set()
    assert settings() == machine


def test_a_second_start_is_refused_and_a_later_one_begins_anew(nodes: Nodes) -> None:
    nodes.run("up")
    nodes.run("up", code=1)
    os.kill(nodes.pids(nodes.run("status"))["router"], signal.SIGKILL)
    os.kill(nodes.pids(nodes.run("status", code=1))["node-1"], signal.SIGKILL)
    nodes.run("up")
    assert nodes.get("node", "node-1")["status"]["nodeInfo"]["kubeletVersion"]
