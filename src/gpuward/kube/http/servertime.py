"""The time by the API server's clock, in which all that is kept on nodes is written and judged.

Clocks of machines differ. What a leader wrote by its own clock the next one would misjudge by the difference: a clock that was
ahead makes a deadline late, one that was behind ends a wait that has just begun. The API server tells its time in every answer,
in whole seconds, and to all alike.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from gpuward.ports import Clock

CONFIRMED: Final = 60.0
"""Seconds for which every answer has to say that it is later than was thought, until that is believed: where several API servers
disagree, waits end by the one that is behind the others."""
RESOLUTION: Final = 1.0
"""Seconds: a Date header leaves out what is less."""


class ServerClock:
    """Tell the API server's time, as far as its answers have told it, and that of this machine until the first of them.

    Between two answers it is the event loop's clock that goes on, which nobody sets.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._ahead: float | None = None
        """By how much the server's time is ahead of the event loop's; None while no answer has told it."""
        self._later: tuple[float, float] | None = None
        """Since when (by the event loop) all answers have said that it is later, and by how much at least."""
        self.moved: Callable[[], None] = lambda: None
        """Told when it has become later than time alone makes it: who sleeps until a moment has slept too long."""
        self._told = -math.inf

    def now(self) -> float:
        """Return seconds since the epoch.

        It stands still where an answer corrects it by less than such a header leaves out: a moment that has come stays so.
        """
        if self._ahead is None:
            return self._machine.now()
        now = asyncio.get_running_loop().time() + self._ahead
        if not self._told - RESOLUTION <= now < self._told:
            self._told = now
        return self._told

    async def sleep(self, seconds: float) -> None:
        """Wait; how long that is does not depend on what time it is."""
        await self._machine.sleep(seconds)

    def heard(self, date: float, asked: float) -> None:
        """Take the Date of an answer, and when (by the event loop) it was asked for.

        The time is changed no more than it takes to agree with the answer: where the clocks agree already, not at all.
        """
        loop = asyncio.get_running_loop().time()
        least, most = date - loop, date + RESOLUTION - asked
        if self._ahead is None:
            self._ahead = min(max(self._machine.now() - loop, least), most)
        elif self._ahead >= least:
            self._ahead, self._later = min(self._ahead, most), None
        else:
            since, by = self._later or (loop, least)
            self._later = since, min(by, least)
            if loop - since >= CONFIRMED:
                self._ahead, self._later = self._later[1], None
                self.moved()
