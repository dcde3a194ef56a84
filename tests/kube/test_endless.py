"""Tasks that must not end: whatever ends one is told, but for a cancellation from outside."""

from __future__ import annotations

import asyncio

import pytest

from gpuward.errors import EndedByItself, Unreachable
from gpuward.kube.endless import endless


async def _returns() -> None:
    pass


async def _is_broken_off() -> None:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.cancel()
    await gone


async def _fails() -> None:
    raise Unreachable("no route")


@pytest.mark.parametrize(("work", "kind", "told"), [
    (_returns, EndedByItself, "the task ended by itself"), (_is_broken_off, EndedByItself, "the task was broken off from within"),
    (_fails, Unreachable, "no route"),
])
def test_a_group_ends_with_each_of_its_works(work: object, kind: type[Exception], told: str) -> None:
    """A TaskGroup alone goes on without a task that returns, or whose cancellation nobody asked for."""
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(endless("the task", work))  # type: ignore[arg-type]  # one of three functions
            group.create_task(asyncio.Event().wait())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert [(type(error), str(error)) for error in caught.value.exceptions] == [(kind, told)]


@pytest.mark.parametrize("at_once", [True, False])
def test_one_that_is_cancelled_ends_quietly(at_once: bool) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(endless("the task", asyncio.Event().wait))
            if not at_once:
                await asyncio.sleep(0)
            task.cancel()

    asyncio.run(main())
