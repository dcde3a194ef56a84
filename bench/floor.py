"""The floor of a rollout: the same writes as gpuward's, sent by a client that decides nothing.

What this takes is what the control plane allows. Each node gets, in order, the patches and events of an upgrade; its driver pod
is deleted and waited for, then its validator pod; so many nodes at once as the limit says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.model.states import State

ROUTE = (State.UPGRADE_REQUIRED, State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED,
         State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED, State.DONE)


class Pods:
    """Follow the driver and validator pods of all nodes, and tell when a node has a ready one that is not the one before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._moved = asyncio.Condition()
        self.listed = asyncio.Event()

    async def follow(self) -> None:
        """Keep the pods up to date, until cancelled."""
        selection = Selection(resources.PODS, names.DEFAULT_NAMESPACE, f"app in ({names.DRIVER_APP},{names.VALIDATOR_APP})")
        version = ""
        async for page in self._client.pages(selection):
            version = page.version
            for item in page.items or ():
                self._take(json.loads(bytes(item)))
        self.listed.set()
        while True:
            with contextlib.suppress(errors.Unreachable):
                async for event in self._client.watch(selection, version, server_seconds=600, idle_seconds=600):
                    pod = json.loads(bytes(event.object))
                    version = pod["metadata"]["resourceVersion"]
                    if event.type in ("ADDED", "MODIFIED"):
                        async with self._moved:
                            self._take(pod)
                            self._moved.notify_all()

    def _take(self, pod: dict[str, Any]) -> None:
        node = pod["spec"].get("nodeName")
        if node:
            self._pods[pod["metadata"]["labels"]["app"], node] = pod

    def uid(self, app: str, node: str) -> str:
        """Return the uid of a node's pod."""
        return str(self._pods[app, node]["metadata"]["uid"])

    def name(self, app: str, node: str) -> str:
        """Return the name of a node's pod."""
        return str(self._pods[app, node]["metadata"]["name"])

    async def ready(self, app: str, node: str, not_uid: str) -> None:
        """Wait until a node has another pod than before, and it is ready."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._is_ready(self._pods.get((app, node)), not_uid))

    @staticmethod
    def _is_ready(pod: dict[str, Any] | None, not_uid: str) -> bool:
        if pod is None or pod["metadata"]["uid"] == not_uid:
            return False
        statuses = pod["status"].get("containerStatuses") or []
        return bool(statuses) and all(one["ready"] for one in statuses)


class Floor:
    """Send the writes of a rollout: all nodes are asked to wait, and some upgraded, at most `limit` of them at once (0: all)."""

    def __init__(self, client: Client, nodes: list[str], upgraded: list[str], limit: int) -> None:
        self._client = client
        self._nodes = nodes
        self._upgraded = upgraded
        self._room = asyncio.Semaphore(limit or len(nodes))
        self._pods = Pods(client)
        self._events: set[asyncio.Task[None]] = set()

    async def run(self) -> float:
        """Send everything; return the seconds that it took."""
        following = asyncio.create_task(self._pods.follow())
        listed = asyncio.create_task(self._pods.listed.wait())
        await asyncio.wait((following, listed), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(self._required(node) for node in self._nodes))
        await asyncio.gather(*(self._upgrade(node) for node in self._upgraded))
        await asyncio.gather(*self._events)
        took = loop.time() - begun
        following.cancel()
        return took

    async def _required(self, node: str) -> None:
        await self._patch(node, ROUTE[:1])

    async def _upgrade(self, node: str) -> None:
        async with self._room:
            driver, validator = self._pods.uid(names.DRIVER_APP, node), self._pods.uid(names.VALIDATOR_APP, node)
            await self._patch(node, ROUTE[1:5], {"op": "add", "path": "/spec/unschedulable", "value": True})
            async for _ in self._client.list(Selection(resources.PODS, fields=f"spec.nodeName={node}")):
                pass
            await self._client.delete(resources.PODS, self._pods.name(names.DRIVER_APP, node), names.DEFAULT_NAMESPACE)
            await self._pods.ready(names.DRIVER_APP, node, driver)
            await self._patch(node, ROUTE[5:6])
            await self._client.delete(resources.PODS, self._pods.name(names.VALIDATOR_APP, node), names.DEFAULT_NAMESPACE)
            await self._pods.ready(names.VALIDATOR_APP, node, validator)
            await self._patch(node, ROUTE[6:], {"op": "remove", "path": "/spec/unschedulable"})

    async def _patch(self, node: str, states: tuple[State, ...], *more: dict[str, Any]) -> None:
        label = {"op": "add", "path": "/metadata/labels/nvidia.com~1gpu-driver-upgrade-state", "value": str(states[-1])}
        await self._client.patch_json(resources.NODES, node, [label, *more])
        for state in states:
            task = asyncio.create_task(self._event(node, state))
            self._events.add(task)

    async def _event(self, node: str, state: State) -> None:
        body = {
            "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": names.DRIVER_EVENT_REASON,
            "metadata": {"generateName": f"{node}.", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
            "message": f"Successfully updated node state label to {state}", "source": {"component": "bench-floor"},
        }
        await self._client.create(resources.EVENTS, body)


@contextlib.asynccontextmanager
async def closing(client: Client) -> AsyncIterator[Client]:
    """Close a client at the end."""
    try:
        yield client
    finally:
        await client.close()
