"""Waiting for something, with an end, and being told to end."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from gpuward.agents.signals import ENDING, release_signals
from gpuward.errors import GpuwardError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from gpuward.agents.telling import Teller


class ToldToEndError(GpuwardError):
    """Say that a signal told an agent to end."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number  # type: ignore[misc]  # of this one, by its signal
        super().__init__(f"told to end by {signal.Signals(number).name}")


class TimeIsUpError(GpuwardError):
    """Say what did not come in time."""


def end_by_signals() -> None:
    """Turn SIGTERM and SIGINT into ToldToEndError, wherever the agent is: it then leaves things as a failure would leave them.

    Raises:
        ToldToEndError: one of them came earlier.
    """
    for number in ENDING:
        signal.signal(number, _end)
    release_signals()


def no_more_signals() -> None:
    """Ignore further signals: what is being put back is put back whole."""
    with suppress(ToldToEndError):  # one may come just now
        _ignore()


def _ignore() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _ignore()
    raise ToldToEndError(number)


@dataclass(frozen=True, slots=True)
class Patience:
    """Wait in steps, by a clock that can be another one."""

    teller: Teller
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait(self, missing: Callable[[], str], *, seconds: float, every: float) -> None:
        """Wait until nothing is missing any more, saying each time that it is something else.

        Raises:
            TimeIsUpError: after so many seconds it still was; the message says what.
        """
        until = self.monotonic() + seconds
        while what := missing():
            left = until - self.monotonic()
            if left <= 0:
                raise TimeIsUpError(f"{what}, for {seconds:g} s")
            self.teller.say(f"waiting: {what}")
            self.sleep(min(every, left))
