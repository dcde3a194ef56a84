"""What an end of the operator does to a call that must not be broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gpuward.errors import TooManyRequests
from gpuward.execute.world import SHUTDOWN_GRACE, to_its_end
from kubesandbox.timeloop import run_virtual


async def broken_off(call: Coroutine[Any, Any, str]) -> None:
    task = asyncio.ensure_future(to_its_end(call))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("takes", "answered"), [(1.0, True), (SHUTDOWN_GRACE + 2.0, False)])
def test_its_answer_is_awaited_for_some_seconds(takes: float, answered: bool) -> None:
    answers: list[str] = []

    async def ask() -> str:
        await asyncio.sleep(takes)
        answers.append("evicted")
        return "evicted"

    async def play() -> None:
        await broken_off(ask())
        await asyncio.sleep(60)

    run_virtual(play)
    assert (answers != []) is answered


def test_a_refusal_on_the_way_out_troubles_nobody() -> None:
    async def refuse() -> str:
        await asyncio.sleep(1.0)
        raise TooManyRequests("its budget has no room", status=429)

    run_virtual(lambda: broken_off(refuse()))
    with pytest.raises(TooManyRequests):
        run_virtual(lambda: to_its_end(refuse()))
