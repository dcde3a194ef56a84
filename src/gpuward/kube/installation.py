"""Wait, without asking again and again, until a resource may have come that the API server does not have.

One that a CRD defines comes with that CRD, which can be watched. ResourceClaims come when the API server is upgraded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final

from gpuward import errors
from gpuward.kube.cache.projection import read_head
from gpuward.kube.cache.reflector import DENIED, Reflector
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GVR, RESOURCE_CLAIMS

UPGRADE_POLL: Final = 600.0
"""Seconds after which the API server may have been upgraded. Until claims can be listed each counts as one for GPUs."""


def installation_wait(
    client: Client, resource: GVR, listed: asyncio.Event, random: Random
) -> Callable[[], Awaitable[None]] | None:
    """Return what waits while a resource is not there; None for one without which there is no cluster.

    `listed` is set once the resource has been listed: a server that does not find it afterwards is in trouble.
    """
    if resource.is_custom:
        return partial(until_installed, client, resource, random)
    return partial(_until_upgraded, listed, random) if resource == RESOURCE_CLAIMS else None


async def until_installed(client: Client, resource: GVR, random: Random) -> None:
    """Wait until the CRD of a resource is there; not at all where CRDs may not be watched."""
    sink = _CrdSink()
    selection = Selection(CUSTOM_RESOURCE_DEFINITIONS, fields=f"metadata.name={resource}")
    reflector = Reflector(client, selection, sink, random=random, report=sink.cannot_be_seen)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(reflector.run(), name=f"await the CRD of {resource}")
        await sink.known.wait()
        following.cancel()


async def _until_upgraded(listed: asyncio.Event, random: Random) -> None:
    if not listed.is_set():
        await asyncio.sleep(UPGRADE_POLL * random.uniform(0.9, 1.1))


class _CrdSink:
    """Take what is seen of one CRD."""

    def __init__(self) -> None:
        self.known = asyncio.Event()

    def listing(self) -> _CrdSink:
        return self

    def add(self, raw: bytes) -> None:
        self.known.set()

    def commit(self, version: str) -> None:
        pass

    def event(self, kind: str, raw: bytes) -> str:
        if kind != "DELETED":
            self.known.set()
        return read_head(raw).metadata.resource_version

    def bookmark(self, version: str) -> None:
        pass

    def cannot_be_seen(self, error: errors.GpuwardError | None) -> None:
        if isinstance(error, DENIED):
            self.known.set()
