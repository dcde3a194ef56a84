"""How many requests were made, and how long they took, for metrics and for figures."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final, NamedTuple

BOUNDS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 30.0)
"""Seconds up to which requests are counted together; the rest took longer."""


class RequestKey(NamedTuple):
    """Tell requests apart: the Kubernetes verb, the resource ("pods", "pods/eviction"), and the HTTP status."""

    verb: str
    resource: str
    status: int
    """0 when no answer came."""


class Durations:
    """Count how long requests of one kind took."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """Requests by the first bound that they did not exceed; the last count is of those beyond all."""
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one request."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class RequestStats:
    """Count requests by verb, resource and status. Paged lists count every page; a watch counts when it ends."""

    WRITES = frozenset({"create", "update", "patch", "delete"})

    def __init__(self) -> None:
        self.requests: Counter[RequestKey] = Counter()
        self.durations: dict[tuple[str, str], Durations] = {}
        """By verb and resource; watches have none, as they last for as long as the server likes."""

    def count(self, verb: str, resource: str, status: int, seconds: float | None = None) -> None:
        """Add one request."""
        self.requests[RequestKey(verb, resource, status)] += 1
        if seconds is not None:
            self.durations.setdefault((verb, resource), Durations()).add(seconds)

    def total(self, verb: str | None = None, resource: str | None = None) -> int:
        """Return the number of requests with this verb and this resource; None matches all."""
        return sum(
            number
            for key, number in self.requests.items()
            if verb in (None, key.verb) and resource in (None, key.resource)
        )

    def writes(self) -> int:
        """Return the number of requests that change objects, refused ones included."""
        return sum(number for key, number in self.requests.items() if key.verb in self.WRITES)
