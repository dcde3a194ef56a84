"""Reach the API server that the user means, or say in one line why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gpuward import errors
from gpuward.kube import resources
from gpuward.kube.config.access import Access
from gpuward.kube.config.loading import find_access
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.http.listing import ListingTransport


class WallClock:
    """Tell the time of the machine. It is the live Clock."""

    def now(self) -> float:
        """Return Unix seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None, *, lists_only: bool = False
                    ) -> AsyncIterator[tuple[Client, Access]]:
    """Yield a client for the cluster that the user means, or one that can only get and list.

    Raises:
        KubeconfigError: nothing usable is configured.
        Unreachable: nobody answers there.
        ApiError: the server answers, but does not let us in.
    """
    access = find_access(kubeconfig, context)
    transport = AiohttpTransport(access)
    client = Client(ListingTransport(transport) if lists_only else transport)
    try:
        await client.server_version()
        yield client, access
    finally:
        await client.close()


async def unsupported(client: Client) -> tuple[str, ...]:
    """Say of each object that NVIDIA's operator follows, and gpuward does not, that it is there; where their kind is not
    installed, or may not be listed, nothing.
    """
    try:
        found = [item async for item in client.list(Selection(resources.GPU_CLUSTERS))]
    except errors.ApiError:
        return ()
    names = sorted(str(msgspec.json.decode(item)["metadata"]["name"]) for item in found)
    return tuple(f"GPUCluster {name} is not supported: gpuward does nothing about it" for name in names)


async def check_access(client: Client, namespace: str = "") -> list[str]:
    """Make sure that what every command reads may be read, in the operands' namespace too if it is named; return what is
    not installed.

    Raises:
        Forbidden: a list that nothing works without is refused.
    """
    needed = [Selection(each) for each in (resources.NODES, resources.PODS, resources.CLUSTER_POLICIES)]
    if namespace:
        needed += [Selection(each, namespace) for each in (resources.DAEMON_SETS, resources.CONTROLLER_REVISIONS)]
    # One after the other: an API server that lets few requests of the operator through would refuse the others.
    return [str(each.resource) for each in needed if not await _is_installed(client, each)]


async def _is_installed(client: Client, selection: Selection) -> bool:
    try:
        async for _ in client.list(selection, limit=1):
            break
    except errors.NotFound:
        return False
    return True
