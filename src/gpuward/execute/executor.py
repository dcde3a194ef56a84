"""Perform a plan's actions: lane by lane, lanes side by side, and never let one lane's trouble reach another."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gpuward.errors import Conflict, GpuwardError, TooManyRequests
from gpuward.execute import conditions, maintenances, nodes, objects, pods
from gpuward.execute.throttle import Throttle
from gpuward.execute.world import CalledOff, World
from gpuward.model.actions import (
    Action,
    ApplyObject,
    CreatePod,
    DeleteObject,
    DeletePod,
    EvictPod,
    GrantNodes,
    PatchAnnotations,
    PatchConditions,
    PatchLabels,
    PatchNode,
    PatchStatus,
    ReleasePod,
    RequestMaintenance,
    SetOwner,
)
from gpuward.model.passes import Outcome

LANES_AT_ONCE: Final = 64


class ApiExecutor:
    """Perform actions on a Kubernetes API. It is the live Executor."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._room = asyncio.Semaphore(LANES_AT_ONCE)
        self._throttle = Throttle(world.clock.now)

    async def execute(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Perform the actions of each lane in order and return an outcome for each, in the order given.

        Evictions of one lane go out together, and a refused one fails nothing but itself.
        """
        lanes: dict[str, list[int]] = defaultdict(list)
        for number, action in enumerate(actions):
            lanes[action.lane].append(number)
        outcomes: dict[int, Outcome] = {}
        await asyncio.gather(*(self._lane(actions, numbers, outcomes) for numbers in lanes.values()))
        return [outcomes[number] for number in range(len(actions))]

    async def _lane(self, actions: Sequence[Action], numbers: list[int], outcomes: dict[int, Outcome]) -> None:
        failed = False
        evictions: list[int] = []
        async with self._room, self._throttle.turn():
            for number in numbers:
                action = actions[number]
                if failed:
                    outcomes[number] = Outcome(action, dropped=True)
                elif isinstance(action, EvictPod):
                    evictions.append(number)
                else:
                    outcomes[number] = await self._perform(action)
                    failed = bool(outcomes[number].error)
            ended = await asyncio.gather(*(self._perform(actions[number]) for number in evictions))
            outcomes.update(zip(evictions, ended, strict=True))

    async def _perform(self, action: Action) -> Outcome:
        if not isinstance(action, EvictPod) and (left := self._throttle.left()):
            return Outcome(action, error=self._throttle.message, wait=left)
        try:
            self.world.check_acting()
            wrote = await self._call(action)
        except CalledOff as error:
            return Outcome(action, error=str(error), called_off=True)
        except TooManyRequests as error:
            # A refused eviction says more of its pod's budget than of the server, and is repeated by rules of its own.
            wait = 0.0 if isinstance(action, EvictPod) else self._throttle.refused(error)
            return Outcome(action, error=str(error), wait=wait)
        except GpuwardError as error:
            return Outcome(action, error=str(error))
        except Exception as error:  # a bug in one action must not end the passes that are about other objects
            return Outcome(action, error=f"{type(error).__name__}: {error}")
        return Outcome(action, idle=wrote is False)

    def _call(self, action: Action) -> Awaitable[bool | None]:
        calls: dict[type, Callable[..., Awaitable[bool | None]]] = {
            PatchNode: nodes.patch_node,
            PatchConditions: conditions.patch_conditions,
            RequestMaintenance: maintenances.request_maintenance,
            EvictPod: pods.evict_pod,
            CreatePod: pods.create_pod,
            DeletePod: pods.delete_pod,
            ReleasePod: pods.release_pod,
            ApplyObject: objects.apply_object,
            DeleteObject: objects.delete_object,
            PatchStatus: objects.patch_status,
            PatchAnnotations: objects.patch_annotations,
            PatchLabels: objects.patch_labels,
            SetOwner: objects.set_owner,
            GrantNodes: _grant,
        }
        return calls[type(action)](self.world, action)


async def _grant(world: World, action: GrantNodes) -> None:
    """Write down which nodes are started next."""
    if world.ledger is None:
        raise CalledOff("no ledger of admissions is kept")
    try:
        await world.ledger.change(action.add, action.drop)
    except GpuwardError as error:
        if not isinstance(error, Conflict):
            world.cluster.wrote_ledger(world.clock.now(), str(error))
        raise
    world.cluster.wrote_ledger(world.clock.now(), "")
