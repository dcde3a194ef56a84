"""Tasks that must not end: when one does, the process ends too, as nothing would tell that its work is not done any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from gpuward.errors import EndedByItself


async def endless(name: str, work: Callable[[], Awaitable[object]]) -> NoReturn:
    """Do work that goes on until this task is cancelled. A TaskGroup lets one that returns, or cancels itself, end in silence.

    Raises:
        EndedByItself: it returned, or a cancellation came out of it that nobody asked for.
    """
    try:
        await work()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise EndedByItself(f"{name} was broken off from within") from None
    raise EndedByItself(f"{name} ended by itself")
