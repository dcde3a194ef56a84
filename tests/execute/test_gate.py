"""The gate between changes of driver DaemonSets and what lets their pods come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gpuward.execute.gate import DriverGate
from kubesandbox.timeloop import run_virtual


class Walk:
    """Let writes pass a gate, each for some seconds, and note when they begin and end."""

    def __init__(self) -> None:
        self.gate = DriverGate()
        self.told: list[str] = []

    async def opening(self, name: str, seconds: float) -> None:
        async with self.gate.opening():
            await self._pass(name, seconds)

    async def change(self, name: str, seconds: float) -> None:
        async with self.gate.change():
            await self._pass(name, seconds)

    async def _pass(self, name: str, seconds: float) -> None:
        self.told.append(f"{name} begins")
        await asyncio.sleep(seconds)
        self.told.append(f"{name} ends")


async def begun(*walks: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    tasks = []
    for walk in walks:
        tasks.append(asyncio.create_task(walk))
        await asyncio.sleep(0.01)
    return tasks


def test_openings_go_together_and_a_change_alone() -> None:
    async def main() -> list[str]:
        walk = Walk()
        await asyncio.gather(*await begun(walk.opening("a", 1), walk.opening("b", 1), walk.change("c", 1), walk.change("d", 1)))
        return walk.told

    assert run_virtual(main) == ["a begins", "b begins", "a ends", "b ends", "c begins", "c ends", "d begins", "d ends"]


def test_changes_that_hang_again_and_again_let_an_opening_pass_in_its_turn() -> None:
    async def main() -> list[str]:
        walk = Walk()

        async def again(name: str) -> None:
            for _ in range(10):
                await walk.change(name, 30)

        hanging = await begun(again("a"), again("b"))
        async with asyncio.timeout(100):
            await walk.opening("node", 1)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        return walk.told

    assert "node ends" in run_virtual(main)


def test_who_is_cancelled_leaves_the_gate_to_others() -> None:
    async def main() -> list[str]:
        walk = Walk()
        first, second, third = await begun(walk.change("a", 30), walk.change("b", 30), walk.opening("c", 1))
        second.cancel()
        first.cancel()
        async with asyncio.timeout(5):
            await third
            await walk.change("d", 1)
        return walk.told

    assert run_virtual(main) == ["a begins", "c begins", "c ends", "d begins", "d ends"]
