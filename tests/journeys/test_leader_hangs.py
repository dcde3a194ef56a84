"""A leader that hangs between two requests of one action, as a process that is stopped or a machine that is paused, and wakes up
when another one leads: it does nothing by what it had seen. Judged from the machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from gpuward.errors import Forbidden
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response
from gpuward.model.states import State
from gpuward.sandbox.hosts import VM_RESOURCE
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS
from tests.journeys.test_hosts_switched import MANAGED, loaded, with_manager
from tests.journeys.test_node_workload import end, run_machine, runs, torn
from tests.journeys.test_two_leaders import take_lease

Hangs = Callable[[str, str], bool]


class Hanging(InProcessTransport):
    """Let a process hang, once, as the answer to a request of a kind comes."""

    hangs: Hangs = staticmethod(lambda method, path: False)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.sandbox.api)
        self.awake = asyncio.Event()
        self.awake.set()
        self.hung = False

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json", timeout: float | None = None) -> Response:
        await self.awake.wait()
        answer = await super().request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)
        if not self.hung and self.hangs(method, path):
            self.hung = True
            self.awake.clear()
        await self.awake.wait()
        return answer

    async def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        async for line in super().stream(path, query=query, idle_timeout=idle_timeout * 10):
            await self.awake.wait()
            yield line


class Turns:
    """Let a process lead that hangs, and another one after it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.leader = "first"
        self.transport = Hanging(stage)

    async def begin(self) -> None:
        """Let the first one lead."""
        await take_lease(self._stage, self.leader)
        await self._stage.restart_operator(self._stage.new_operator(
            Client(self.transport), identity="first", leads=lambda: self.leader == "first"))

    async def relieve(self, interfere: Callable[[Request, Proceed], Answer | Stream] | None = None) -> asyncio.Task[None]:
        """Let another one lead while the first one hangs."""
        await self._stage.until(lambda: self.transport.hung)
        self.leader = "second"
        await take_lease(self._stage, self.leader)
        transport = self._stage.sandbox.transport()
        if interfere is not None:
            transport.interfere = interfere
        second = self._stage.new_operator(Client(transport), identity="second", leads=lambda: self.leader == "second")
        return asyncio.create_task(second.run())


def looks(method: str, path: str) -> bool:
    """Tell whether a request is a last look at a node."""
    return (method, path) == ("GET", "/api/v1/pods")


@on_stage(gpu_nodes=1)
async def test_a_driver_stays_whose_deletion_was_decided_by_a_leader_that_hangs(stage: Stage) -> None:
    """The driver is taken back meanwhile, so that the node goes back into service."""
    turns = Turns(stage)
    await turns.begin()
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    turns.transport.hangs = lambda method, path: looks(method, path) and stage.state("gpu-1") == State.POD_RESTART_REQUIRED
    await stage.upgrade_to(NEW)
    await stage.until(lambda: turns.transport.hung)
    await stage.patch_policy("driver/version", OLD)
    since = stage.clock.now()

    def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "DELETE" and "/pods/" in request.path and stage.clock.now() < since + 5:
            return refusal(Forbidden("the driver pod may not be deleted yet"))
        return proceed()

    second = await turns.relieve(refuse)
    await stage.until(lambda: runs(stage, "train") and not stage.cordons() and stage.all_are(State.DONE))
    turns.transport.awake.set()
    await stage.rest(300)
    assert (torn(stage), stage.driver("gpu-1"), runs(stage, "train")) == ([], OLD, True)
    second.cancel()


@on_stage(gpu_nodes=3)
async def test_the_driver_of_hosts_stays_that_a_leader_that_hangs_was_about_to_take_away(stage: Stage) -> None:
    """It is switched on again meanwhile, and a virtual machine comes."""
    turns = Turns(stage)
    await turns.begin()
    await stage.installed()
    await with_manager(stage)
    await end(stage, "vm")
    await stage.rest(30)

    def last(method: str, path: str) -> bool:
        """Tell whether a request is the last one before the DaemonSet goes: device plugins have stopped."""
        plugins = [pod for pod in stage.pods("nvidia-sandbox-device-plugin-daemonset") if pod["spec"]["nodeName"] in HOSTS]
        return looks(method, path) and len(stage.cordons()) == 2 and not plugins

    turns.transport.hangs = last
    await stage.patch_policy("vgpuManager/enabled", False)
    await stage.until(lambda: turns.transport.hung)
    await stage.patch_policy("vgpuManager/enabled", True)
    second = await turns.relieve()
    await stage.until(lambda: not stage.cordons() and int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    turns.transport.awake.set()
    await stage.rest(300)
    assert (torn(stage), loaded(stage), runs(stage, "vm")) == ([], [MANAGED, MANAGED], True)
    second.cancel()
