"""A small cluster to perform actions on: three nodes, three pods, and an executor that follows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gpuward.crd.generate import all_crds
from gpuward.execute.executor import ApiExecutor
from gpuward.execute.world import World
from gpuward.model.actions import Action
from gpuward.model.passes import Outcome
from gpuward.model.views import NodeView, PodView, Ref
from gpuward.sandbox.fleet import fleet, operator_place, workloads
from kubesandbox.timeloop import LoopClock, run_virtual
from tests.kube.following import Following


class NoEvents:
    """Take events and forget them."""

    def event(self, kind: str, ref: Ref, message: str, *, warning: bool = False) -> None:
        """Forget an event."""


class Bench(Following):
    """Hold a sandbox with three nodes and workloads, a cluster that follows it, and an executor."""

    def __init__(self, *, leads: bool = True) -> None:
        super().__init__()
        world = World(self.cluster, NoEvents(), LoopClock(), acting=lambda: leads)
        self.executor = ApiExecutor(world)

    def node(self, name: str) -> NodeView:
        """Return a node as it is known."""
        return self.cluster.nodes[name]

    def pods(self, prefix: str) -> list[PodView]:
        """Return the pods whose name begins with a prefix, by name."""
        return sorted((pod for pod in self.cluster.pods.values() if pod.name.startswith(prefix)), key=lambda pod: pod.name)

    async def execute(self, *actions: Action) -> Sequence[Outcome]:
        """Perform actions."""
        return await self.executor.execute(actions)


def on_a_bench(play: Callable[[Bench], Awaitable[None]], *, leads: bool = True) -> None:
    """Play on a bench whose pods run, in virtual time."""

    async def main() -> None:
        bench = Bench(leads=leads)
        await bench.sandbox.start()
        for node in fleet(3, 0):
            node["status"]["allocatable"]["nvidia.com/gpu"] = node["status"]["capacity"]["nvidia.com/gpu"] = "8"
            bench.sandbox.add_node(node)
        for obj in (*operator_place(), *all_crds(), *workloads(inference=0, training=0, web=3)):
            bench.sandbox.apply(obj)
        async with bench.followed(30):
            await play(bench)

    run_virtual(main)
