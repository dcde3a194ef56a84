"""`gpuward sandbox`: a simulated Kubernetes cluster with GPU nodes, for kubectl and for an operator of your own."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from gpuward.cli.terminal import say
from gpuward.errors import InputError
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import fleet, operator_place, workloads
from kubesandbox import errors
from kubesandbox.timeloop import SpeedLoop


def serve_sandbox(nodes: int, port: int, speed: float, kubeconfig: str | None) -> None:
    """Serve until a signal comes; `kubeconfig` is where to write one."""
    with at_speed(speed) as runner:
        runner.run(_serve(nodes, port, kubeconfig))


def at_speed(speed: float) -> asyncio.Runner:
    """Return a runner whose time passes so many times as fast as the wall clock's; a speed that is none is an InputError."""
    def loop() -> SpeedLoop:
        try:
            return SpeedLoop(speed)
        except errors.InputError as error:
            raise InputError(error.field, error.value, error.fix) from error
    return asyncio.Runner(loop_factory=loop)


async def _serve(nodes: int, port: int, kubeconfig: str | None) -> None:
    cluster = Sandbox()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await cluster.start()
    try:
        for node in fleet(nodes, 1):
            cluster.add_node(node)
        for obj in (*operator_place(), *workloads()):
            cluster.apply(obj)
        text = await cluster.serve(port)
        with tempfile.TemporaryDirectory(prefix="gpuward-") as folder:
            file = Path(kubeconfig) if kubeconfig else Path(folder) / "kubeconfig"
            _write(file, text)
            say(f"export KUBECONFIG={file}")
            sys.stdout.flush()
            await ended.wait()
    finally:
        await cluster.stop()


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
