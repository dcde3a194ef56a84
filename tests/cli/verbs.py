"""What the verbs of the command line do to a cluster, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gpuward import names
from gpuward.cli.nodes import retry_nodes, skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.cli.resume import resume_paused
from gpuward.cli.rollouts import Lines
from gpuward.crd.generate import all_crds
from gpuward.kube.http.client import Client
from gpuward.model.record import Failure, Record, encode_record
from gpuward.model.states import State
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node
from kubesandbox.timeloop import run_virtual
from tests.journeys.stage import policy

Object = dict[str, Any]


class Cluster:
    """Play a person at a terminal, in a cluster without an operator, in which somebody else may interfere."""

    def __init__(self, *objects: Object) -> None:
        self.sandbox = Sandbox()
        for obj in (*all_crds(), *objects):
            self.sandbox.apply(obj)
        self.transport = self.sandbox.transport()
        self.client = Client(self.transport)

    async def pause(self, driver: str = "", *, dry_run: bool = False) -> list[str]:
        return await said(pause_rollouts(self.client, driver, dry_run=dry_run))

    async def resume(self, driver: str = "", *, dry_run: bool = False) -> list[str]:
        return await said(resume_paused(self.client, driver, dry_run=dry_run))

    async def retry(self, *nodes: str, dry_run: bool = False) -> list[str]:
        return await said(retry_nodes(self.client, nodes, dry_run=dry_run))

    async def skip(self, *nodes: str, undo: bool = False, dry_run: bool = False) -> list[str]:
        return await said(skip_nodes(self.client, nodes, undo=undo, dry_run=dry_run))

    def policy(self, name: str = "cluster-policy") -> Object:
        return self.sandbox.store.get("clusterpolicies.nvidia.com", None, name)

    def driver(self, name: str) -> Object:
        return self.sandbox.store.get("nvidiadrivers.nvidia.com", None, name)

    def labels(self, node: str) -> dict[str, str]:
        return dict(self.sandbox.store.get("nodes", None, node)["metadata"]["labels"])

    def versions(self) -> dict[str, str]:
        """Return which version each object is of: what changes when anything is written."""
        keys = ("nodes", "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
        meta = [obj["metadata"] for key in keys for obj in self.sandbox.store.list(key)]
        return {each["uid"]: each["resourceVersion"] for each in meta}


async def said(lines: Lines) -> list[str]:
    """Return what is printed."""
    return [line async for line in lines]


def on_cluster(*objects: Object) -> Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Give a test a cluster of these objects, in virtual time."""

    def decorate(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def story() -> None:
            await test(Cluster(*objects))

        def play() -> None:
            run_virtual(story)

        return play

    return decorate


def node(name: str, state: State | None = None, *, failed_at: float = 0.0, labels: dict[str, str] | None = None) -> Object:
    """Build a node in an upgrade state; one that failed remembers when."""
    body = cpu_node(name)
    body["metadata"]["labels"] |= {**({names.UPGRADE_STATE: str(state)} if state else {}), **(labels or {})}
    failure = Failure(State.DRAIN_REQUIRED, "a pod stayed", failed_at) if failed_at else None
    if state is not None or failure is not None:
        record = Record(state or State.FAILED, failure=failure)
        body["metadata"]["annotations"][names.UPGRADE_RECORD] = encode_record(record)
    return body


def switched(on: bool) -> Object:
    """Build a ClusterPolicy with upgrades on or off."""
    return policy(upgrade={"autoUpgrade": on})


def left_to_drivers() -> Object:
    """Build a ClusterPolicy that leaves drivers to NVIDIADrivers."""
    body = policy()
    body["spec"]["driver"]["useNvidiaDriverCRD"] = True
    return body
