"""The two API servers that the contract is held against: the sandbox over HTTP, and the real control plane."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tools.controlplane import lent, processes

from gpuward import errors
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.delays import GpuDelays
from kubesandbox.timeloop import SpeedLoop
from tests.contract.api import PATIENCE, Server

WANTED = "GPUWARD_CONTROLPLANE"
QUICK = GpuDelays(reaction_seconds=0.005, pod_start_seconds=0.02, init_seconds=0.0, ready_seconds=0.02, termination_seconds=0.02,
               garbage_seconds=0.02)
WATCH_LAG = 0.005
"""Seconds by which watches lag behind writes, about as on a real server; other tests have the sandbox's larger ones."""
T = TypeVar("T")


class SandboxThread:
    """Run a whole sandbox, controllers and kubelets included, on a thread of its own."""

    def __init__(self) -> None:
        self._loop = SpeedLoop(1.0)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.sandbox = self.do(lambda: Sandbox(delays=QUICK, watch_delay=lambda _: WATCH_LAG))

    def start(self) -> str:
        """Let it live, and return a kubeconfig for it."""
        async def begin() -> str:
            await self.sandbox.start()
            return await self.sandbox.serve()

        return asyncio.run_coroutine_threadsafe(begin(), self._loop).result(PATIENCE)

    def do(self, what: Callable[[], T]) -> T:
        """Run something on the sandbox's thread and return what it returns."""
        async def call() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.sandbox.stop(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class SandboxServer(Server):
    """Be the sandbox, over HTTP."""

    def __init__(self, thread: SandboxThread, home: Path) -> None:
        self._sandbox = thread
        (home / "kubeconfig").write_text(thread.start())
        super().__init__("sandbox", home / "kubeconfig")

    def forget(self) -> None:
        """Forget the changes up to now."""
        store = self._sandbox.sandbox.store
        self._sandbox.do(lambda: store.compact(store.version))

    compact = forget


class ControlPlane(Server):
    """Be the real thing, in the folder of its state."""

    def __init__(self, state: Path) -> None:
        self._etcd = json.loads((state / "ports.json").read_text())["etcd"]
        self._state = state
        super().__init__("controlplane", state / "kubeconfig")

    def compact(self) -> None:
        """Forget the changes up to now, in etcd. Events are listed because only they are never read from a cache."""
        version = self.request("GET", "/api/v1/events", limit=1).body["metadata"]["resourceVersion"]
        body = json.dumps({"revision": version, "physical": True}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self._etcd}/v3/kv/compaction", body, PATIENCE) as answer:
            assert answer.status == 200

    def forget(self) -> None:
        """Forget the changes up to now, in etcd and, by a restart, in the API server: its watch cache keeps more than etcd."""
        self.compact()
        processes.restart(self._state, "kube-apiserver")
        until = time.monotonic() + 3 * PATIENCE
        while not self._is_ready():
            assert time.monotonic() < until, "the API server has not come back"

    def _is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz").status == 200
        except errors.Unreachable:
            time.sleep(0.1)
            return False


@contextmanager
def sandbox(home: Path) -> Iterator[SandboxServer]:
    """Serve a sandbox while the block runs."""
    thread = SandboxThread()
    try:
        server = SandboxServer(thread, home)
        yield server
        server.close()
    finally:
        thread.stop()


@contextmanager
def control_plane(home: Path) -> Iterator[ControlPlane]:
    """Run a control plane while the block runs; skip the test where none is wanted."""
    if os.environ.get(WANTED) != "1":
        pytest.skip(f"a real control plane is started only with {WANTED}=1, as ./dev test does")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    state = home / "run"
    with lent.running(state, "--nodes", "0"):
        server = ControlPlane(state)
        yield server
        server.close()
