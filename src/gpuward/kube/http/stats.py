"""How many requests were made, for metrics and for figures."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class RequestKey(NamedTuple):
    """Tell requests apart: the Kubernetes verb, the resource ("pods", "pods/eviction"), and the HTTP status."""

    verb: str
    resource: str
    status: int
    """0 when no answer came."""


class RequestStats:
    """Count requests by verb, resource and status. Paged lists count every page; a watch counts when it ends."""

    WRITES = frozenset({"create", "update", "patch", "delete"})

    def __init__(self) -> None:
        self.requests: Counter[RequestKey] = Counter()

    def count(self, verb: str, resource: str, status: int) -> None:
        """Add one request."""
        self.requests[RequestKey(verb, resource, status)] += 1

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
