"""A sandbox that is served over HTTP from its own thread, and a real kubectl to talk to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gpuward.crd.generate import all_crds
from kubesandbox.api import ApiServer
from kubesandbox.server import HttpServer
from kubesandbox.store import Store

KUBECTL = shutil.which("kubectl")
LIMIT_SECONDS = 30.0
T = TypeVar("T")


class Cluster:
    """Serve a store from a thread; whoever touches the store does so through `do`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.loop = asyncio.new_event_loop()
        self.store = Store(now=time.time)
        self.api = ApiServer(self.store)
        self._server = HttpServer(self.api)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self.loop).result(LIMIT_SECONDS)
        (self.home / "config").write_text(self._server.kubeconfig("gpu-operator"))
        self.do(self._furnish)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self.loop).result(LIMIT_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT_SECONDS)
        self.loop.close()

    def do(self, what: Callable[[], T]) -> T:
        """Run something on the server's thread and return what it returns."""
        async def call() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(LIMIT_SECONDS)

    def command(self, *words: str) -> list[str]:
        return [KUBECTL or "kubectl", "--cache-dir", str(self.home / "cache"), *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.home / "config"), "HOME": str(self.home)}

    def kubectl(self, *words: str, given: str | None = None, fails: bool = False) -> str:
        """Run kubectl and return its output; with `fails`, it must fail and what it complains of is returned."""
        done = subprocess.run(self.command(*words), env=self.environment, input=given, capture_output=True, text=True,
                              timeout=LIMIT_SECONDS, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start a kubectl that goes on."""
        return subprocess.Popen(self.command(*words), env=self.environment, stdout=subprocess.PIPE, text=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _furnish(self) -> None:
        store = self.store
        store.create("namespaces", {"metadata": {"name": "gpu-operator"}})
        for crd in all_crds():
            store.create("customresourcedefinitions.apiextensions.k8s.io", dict(crd))
        for name in ("gpu-1", "gpu-2", "cpu-1"):
            labels = {"nvidia.com/gpu.present": "true"} if name.startswith("gpu") else {}
            store.create("nodes", {"metadata": {"name": name, "labels": labels}, "status": {
                "capacity": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "nodeInfo": {"kubeletVersion": "v1.34.0", "osImage": "Ubuntu 22.04.5 LTS"}}})
        self.add_pod("driver-a", "gpu-1", {"app": "nvidia-driver-daemonset"})
        self.add_pod("web", "gpu-1", {"app": "web"})

    def add_pod(self, name: str, node: str, labels: dict[str, str]) -> dict[str, Any]:
        """Put a running pod on a node."""
        self.store.create("pods", {"metadata": {"name": name, "namespace": "gpu-operator", "labels": labels},
                                   "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry/app:1"}]}})
        return self.store.patch_status("pods", "gpu-operator", name, lambda pod: pod["status"].update(
            phase="Running", podIP="10.1.0.7", conditions=[{"type": "Ready", "status": "True"}],
            containerStatuses=[{"name": "main", "ready": True, "restartCount": 0, "image": "registry/app:1", "imageID": "",
                                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]))
