"""`gpuward run` as a process: it records by default, and what it recorded is decided again after it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuward.cli.connect import connected
from gpuward.crd.generate import all_crds
from gpuward.kube import resources
from gpuward.recorder.reading import moments
from gpuward.recorder.ring import PATTERN
from gpuward.sandbox.samples import IMAGES, sample_policy

COMMAND = [sys.executable, "-c", "from gpuward.cli.main import main; main()"]
PORTS = ["--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0"]


@contextmanager
def process(log: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command for as long as the context lasts."""
    with log.open("wb") as file:
        running = subprocess.Popen([*COMMAND, *arguments], env={**os.environ, **environment}, stdout=file, stderr=file)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def until(holds: Callable[[], object], log: Path) -> None:
    """Wait until something holds; a wait in vain tells what the process said."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


async def install(kubeconfig: Path) -> None:
    """Install the CRDs and a policy."""
    async with connected(str(kubeconfig), None) as (client, _):
        for crd in all_crds():
            await client.create(resources.CUSTOM_RESOURCE_DEFINITIONS, crd)
        await client.create(resources.CLUSTER_POLICIES, sample_policy())


def states(path: Path) -> set[str]:
    """Return the states that were recorded."""
    return {said.state for moment in moments(path, lambda _: None) for said in moment.shown.values()}


def test_the_operator_records_where_it_is_told_and_survives_a_kill(tmp_path: Path) -> None:
    kubeconfig, folder, log = tmp_path / "kubeconfig", tmp_path / "recordings", tmp_path / "log"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "2", "--speed", "60", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        asyncio.run(install(kubeconfig))
        with process(log, "run", *PORTS, "--recorder-dir", str(folder), OPERATOR_NAMESPACE="gpu-operator",
                     KUBECONFIG=str(kubeconfig), **IMAGES) as operator:
            until(lambda: list(folder.glob(PATTERN)) and "upgrade-done" in states(folder), log)
            operator.send_signal(signal.SIGKILL)
            operator.wait()
    replayed = subprocess.run([*COMMAND, "replay", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "RESULT    every plan came out the same" in replayed.stdout
