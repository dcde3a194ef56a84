"""`gpuward sandbox`: a simulated Kubernetes cluster with GPU nodes, for kubectl and for an operator of your own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from gpuward.cli.terminal import say
from gpuward.errors import GpuwardError, InputError
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import fleet, operator_place, workloads
from kubesandbox import errors
from kubesandbox.timeloop import SpeedLoop

LASTS = 600.0
"""Real seconds for which a sandbox that people work with keeps its speed."""


class ServedSandbox(NamedTuple):
    """Hold what the sandbox is asked for."""

    nodes: int
    port: int
    kubeconfig: str | None
    """Where to write one."""
    troubles: Mapping[str, tuple[str, ...]]
    """The faults that are there from the beginning, by node."""
    has_image: Callable[[str], bool]
    pull_seconds: float = 0.0
    """How long a machine takes to pull an image that it does not have."""


def serve_sandbox(wanted: ServedSandbox, speed: float) -> None:
    """Serve until a signal comes."""
    with of_sandbox(speed) as runner:
        runner.run(_serve(wanted))


def of_sandbox(speed: float) -> asyncio.Runner:
    """Return the runner of a sandbox, which keeps its speed for as long as somebody may try something on it."""
    return at_speed(speed, speed * LASTS if speed > 1 else 0.0)


def at_speed(speed: float, back: float = 0.0) -> asyncio.Runner:
    """Return a runner whose time passes so many times as fast as the wall clock's; a speed that is none is an InputError.

    It goes at the wall clock's pace once it has caught up, from a minute's run or at least `back` seconds ago.
    """
    def loop() -> SpeedLoop:
        try:
            return SpeedLoop(speed, time.time() - max(back, speed * 60) if back else None)
        except errors.InputError as error:
            raise InputError("--speed", error.value, error.fix) from error
    return asyncio.Runner(loop_factory=loop)


async def _serve(wanted: ServedSandbox) -> None:
    cluster = Sandbox()
    cluster.has_image = wanted.has_image
    cluster.pull_seconds = lambda image: wanted.pull_seconds
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await cluster.start()
    try:
        for node in fleet(wanted.nodes, 1):
            cluster.add_node(node)
        for obj in (*operator_place(), *workloads()):
            cluster.apply(obj)
        for name, faults in wanted.troubles.items():
            cluster.trouble(name, *faults)
        text = await _listen(cluster, wanted.port)
        with tempfile.TemporaryDirectory(prefix="gpuward-") as folder:
            file = Path(wanted.kubeconfig) if wanted.kubeconfig else Path(folder) / "kubeconfig"
            _write(file, text)
            say(f"export KUBECONFIG={quote(str(file.absolute()))}")
            sys.stdout.flush()
            await ended.wait()
    finally:
        await cluster.stop()


async def _listen(cluster: Sandbox, port: int) -> str:
    try:
        return await cluster.serve(port)
    except OSError as error:
        told = os.strerror(error.errno) if error.errno else str(error)
        raise GpuwardError(f"cannot listen on 127.0.0.1:{port}: {told}; name another --port, or none for a free one") from error


def _write(file: Path, text: str) -> None:
    """Write the file such that whoever waits for it finds it whole."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise InputError("--kubeconfig", str(file), f"name a file that can be written: {error.strerror}") from error
