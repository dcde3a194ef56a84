"""What every action works with: the cluster's caches and client, the events it leaves behind, and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from gpuward import errors
from gpuward.execute.contested import ContestedLabels
from gpuward.execute.gate import DriverGate
from gpuward.kube.cache.cache import Cache
from gpuward.kube.doubts import settle
from gpuward.kube.resources import GVR
from gpuward.model.views import Ref
from gpuward.ports import Clock

if TYPE_CHECKING:
    from gpuward.kube.cluster import Cluster

SHUTDOWN_GRACE: Final = 5.0
"""Seconds for which an end of the operator waits for the answer to a call that must not be broken off."""
T = TypeVar("T")


class CalledOff(errors.GpuwardError):
    """End an action that its last look at the cluster made unwanted; nothing was written."""


class EventSink(Protocol):
    """Take Kubernetes events without ever holding up or failing who reports them."""

    def event(self, kind: str, ref: Ref, message: str, *, warning: bool = False) -> None:
        """Report an event about an object, with NVIDIA's reason for driver upgrades."""
        ...


class Ledger(Protocol):
    """Keep the nodes that whoever leads was granted to start."""

    async def change(self, add: Mapping[str, str], drop: Collection[str]) -> None:
        """Enter nodes and take others out; raise errors.Conflict if somebody else leads, or has changed the ledger."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Bundle what actions need."""

    cluster: Cluster
    events: EventSink
    clock: Clock
    ledger: Ledger | None = None
    """Where admissions are written down first; None where nobody else can lead."""
    gate: DriverGate = field(default_factory=DriverGate)
    contested: ContestedLabels = field(default_factory=ContestedLabels)
    acting: Callable[[], bool] = lambda: True
    """Whether this process may write. It is asked directly before every write, after the looks that go before it: a process that
    was stopped for a while, also between two requests of one action, must not act on what it saw while it led."""

    def check_acting(self) -> None:
        """Call an action off whose process does not lead any more.

        Raises:
            CalledOff: it does not.
        """
        if not self.acting():
            raise CalledOff("this process does not lead any more")


async def settle_after(error: errors.GpuwardError, world: World, gvr: GVR, cache: Cache[Any, Any], key: Any) -> None:
    """Hold an object whose write failed in a way that leaves it unknown, and learn what it is if that is possible now.

    After a conflict the server can be asked at once. After a lost answer it is asked again later, by the cluster.
    """
    if isinstance(error, errors.Conflict | errors.NotFound):
        cache.mark_uncertain(key)
        try:
            await settle(world.cluster.client, gvr, cache, key)
        except (errors.ApiError, errors.Unreachable):
            return
    elif isinstance(error, errors.Unreachable | errors.ServerError):
        cache.mark_uncertain(key)


def is_refusal(error: errors.GpuwardError) -> bool:
    """Tell whether the API server does not want this very request, or never answers it: not where others came first, or it has
    too much to do.
    """
    passing = (errors.Conflict, errors.NotFound, errors.TooManyRequests, errors.Unauthorized)
    return isinstance(error, errors.Unanswered) or (isinstance(error, errors.ApiError) and not isinstance(error, passing))


async def to_its_end(call: Coroutine[Any, Any, T]) -> T:
    """Await a call; when this task is cancelled meanwhile, the answer is awaited all the same before it ends.

    kube-apiserver takes an eviction off its budget before it deletes the pod. One that is broken off in between leaves
    a pod that stays and a budget without room for it, for two minutes.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=SHUTDOWN_GRACE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
