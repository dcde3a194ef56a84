"""Go easy on an API server that refuses requests for its own load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from gpuward.errors import TooManyRequests

PAUSE: Final = 1.0
"""Seconds for which nothing is asked after such a refusal, where the server does not say how long."""
CAREFUL: Final = 10.0
"""Seconds after that in which only one lane goes on at a time: all at once, they would be refused together again and again."""


class Throttle:
    """Remember how long the API server asked to be left alone. Belongs to one event loop."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = 0.0
        self._asked = 0.0
        self._one = asyncio.Lock()
        self.message = ""
        """What the last refusal said."""

    def refused(self, error: TooManyRequests) -> float:
        """Take a refusal; return for how many seconds to ask nothing."""
        self._asked = error.retry_after or PAUSE
        self._until = self._now() + self._asked
        self.message = str(error)
        return self._asked

    def left(self) -> float:
        """Return for how many more seconds nothing is asked; a time that was set on another clock is over."""
        left = self._until - self._now()
        return left if 0.0 < left <= self._asked else 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for one's turn for as long as one after the other is enough for the server."""
        if -CAREFUL < self._until - self._now() <= self._asked:
            async with self._one:
                yield
        else:
            yield
