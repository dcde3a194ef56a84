"""How long to wait before trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuward.errors import ApiError, GpuwardError
from gpuward.model.backoff import backoff

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Double the delay with every failure, from `first` up to `longest` seconds, and shorten it by up to half at random."""

    def __init__(self, random: Random, first: float = 0.1, longest: float = 10.0) -> None:
        self._random = random
        self._first = first
        self._longest = longest
        self._failures = 0

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._failures = 0

    def next(self, error: GpuwardError | None = None) -> float:
        """Return the seconds to wait now: never less than the server asked for, within reason."""
        self._failures += 1
        delay = backoff(self._failures, self._first, self._longest)
        return max(delay * self._random.uniform(0.5, 1.0), asked_wait(error))


def asked_wait(error: GpuwardError | None) -> float:
    """Return the seconds that a refusal asks to wait (retryAfterSeconds, Retry-After), 0 when it does not say."""
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
