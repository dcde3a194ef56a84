"""A server of one Lease with an API server's preconditions, for the tests of the election."""

from __future__ import annotations

import asyncio
from typing import Any

from gpuward import errors
from gpuward.kube.http.transport import Response
from tests.kube.scripted import Asked, ok, refused


class LeaseServer:
    """Keep one Lease; answer, refuse or stay silent as the test says. Use it from one thread at a time."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.cut_off: set[str] = set()
        """Identities whose requests find no answer."""
        self.silent = False
        self.delay = 0.0
        """Seconds before each answer."""
        self.renewed = 0.0
        """When the Lease was last written (loop time)."""
        self.lose_answers = False
        self.conflicts = 0
        """How many more replacements find that somebody else was quicker."""
        self.requests: list[str] = []

    @property
    def holder(self) -> str:
        """Return who holds the Lease."""
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    @property
    def spec(self) -> dict[str, Any]:
        """Return the Lease's spec."""
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def store(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Keep a new state of the Lease."""
        self.version += 1
        self.renewed = asyncio.get_running_loop().time()
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    async def answer(self, identity: str, asked: Asked) -> Response:
        """Answer a candidate."""
        self.requests.append(f"{identity} {asked.method}")
        if self.silent:
            await asyncio.Event().wait()
        if identity in self.cut_off:
            raise errors.Unreachable("no route to host")
        response = self._respond(asked)
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.lose_answers and asked.method != "GET":
            raise errors.Unreachable("the answer was lost")
        return response

    def _respond(self, asked: Asked) -> Response:
        if asked.method == "POST":
            if self.lease is not None:
                return refused(409, "AlreadyExists")
            return ok(self.store(asked.body), 201)
        if self.lease is None:
            return refused(404, "NotFound")
        if asked.method == "GET":
            return ok(self.lease)
        if self.conflicts > 0:
            self.conflicts -= 1
            self.store(self.lease)
        if asked.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return refused(409, "Conflict")
        return ok(self.store(asked.body))
