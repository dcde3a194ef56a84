"""A cluster that follows a sandbox, for tests of what it shows and of what is done by that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from gpuward import errors
from gpuward.kube.cluster import Cluster
from gpuward.kube.http.client import Client
from gpuward.kube.resources import GVR
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node, operator_place
from kubesandbox.store import Store
from kubesandbox.timeloop import run_virtual

NAMESPACE = "gpu-operator"


class Following:
    """Hold a sandbox and a cluster that follows it."""

    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self.transport = self.sandbox.transport()
        self.client = Client(self.transport)
        self.reports: list[tuple[str, str]] = []
        self.cluster = Cluster(self.client, NAMESPACE, random=Random(0), report=self._report)

    def _report(self, resource: GVR, error: errors.GpuwardError | None) -> None:
        self.reports.append((str(resource), str(error)))

    @property
    def store(self) -> Store:
        return self.sandbox.store

    @asynccontextmanager
    async def followed(self, seconds: float) -> AsyncIterator[None]:
        """Let the cluster follow the sandbox, for so many seconds before the test begins; stop the sandbox in the end."""
        async with asyncio.TaskGroup() as group:
            self.cluster.start(group)
            await asyncio.sleep(seconds)
            yield
            self.cluster.stop()
        await self.sandbox.stop()


def follow(play: Callable[[Following], Awaitable[None]], prepare: Callable[[Following], None] = lambda _: None) -> None:
    """Play in virtual time while a sandbox is followed that has no life of its own."""

    async def main() -> None:
        scene = Following()
        for obj in (operator_place()[0], cpu_node("n1")):
            scene.sandbox.apply(obj)
        prepare(scene)
        async with scene.followed(1):
            await play(scene)

    run_virtual(main)
