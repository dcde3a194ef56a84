"""Let a pass end before what it does, where the API server takes its time to answer: one object must not hold up all others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from gpuward.model.actions import Action
from gpuward.model.passes import Outcome
from gpuward.ports import Executor

PATIENCE: Final = 5.0
"""Seconds that a pass waits for its actions. A webhook may take 30 s, and the server as long as it likes."""


class Patience:
    """Perform the actions of one loop, lane by lane; one that takes long goes on beside later passes, and nothing is added to it.

    `late` is told which lanes have no answer, with the time when they were begun, and None once they have one.
    """

    def __init__(self, executor: Executor, now: Callable[[], float], late: Callable[[str, float | None], None]) -> None:
        self._executor = executor
        self._now = now
        self._late = late
        self._slow: dict[str, asyncio.Task[Sequence[Outcome]]] = {}
        self._ended: list[Outcome] = []

    async def execute(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Return how the actions ended, but for those that go on, and before them how earlier ones did."""
        lanes: dict[str, list[Action]] = defaultdict(list)
        for action in actions:
            lanes[action.lane].append(action)
        outcomes, begun = [Outcome(action, dropped=True) for action in actions if action.lane in self._slow], self._now()
        tasks = {lane: asyncio.create_task(self._lane(each)) for lane, each in lanes.items() if lane not in self._slow}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=PATIENCE)
        except asyncio.CancelledError:
            self._slow |= tasks
            raise
        for lane, task in tasks.items():
            if task.done():
                outcomes += task.result()
            else:
                self._goes_on(lane, task, begun)
        earlier, self._ended = self._ended, []
        return [*earlier, *outcomes]

    async def _lane(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        return await self._executor.execute(actions)

    def _goes_on(self, lane: str, task: asyncio.Task[Sequence[Outcome]], begun: float) -> None:
        self._slow[lane] = task
        self._late(lane, begun)
        task.add_done_callback(lambda _: self._has_ended(lane, task))

    def _has_ended(self, lane: str, task: asyncio.Task[Sequence[Outcome]]) -> None:
        self._slow.pop(lane, None)
        if not task.cancelled() and task.exception() is None:
            self._ended += task.result()
        self._late(lane, None)

    async def break_off(self) -> None:
        """End what still goes on."""
        tasks = list(self._slow.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
