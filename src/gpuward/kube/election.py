"""Take part in the leader election: acquire the Lease, renew it, notice its loss, release it.

`gpuward.kube.election_thread` runs an elector on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuward import errors, names
from gpuward.kube.client import Client
from gpuward.kube.lease import Observation, Step, Timing, claimed, new_lease, next_step, released
from gpuward.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random



@dataclass(frozen=True, slots=True)
class Candidate:
    """Say who stands for election, and for which Lease."""

    identity: str
    """Unique among all processes: client-go uses `<host name>_<uuid>`."""
    namespace: str
    lease: str = names.LEADER_LEASE
    timing: Timing = field(default_factory=Timing)


class Elector:
    """Hold the Lease whenever it can be had.

    `wall` gives Unix seconds for what is written into the Lease; every wait is measured on the event loop's clock.
    `changed` is called with True when leading begins and with False when it ends, whatever the reason. Whoever was
    told False must stop writing: the renewal deadline is shorter than the time after which others take over.
    """

    def __init__(
        self,
        client: Client,
        candidate: Candidate,
        *,
        random: Random,
        wall: Callable[[], float],
        changed: Callable[[bool], None],
    ) -> None:
        self.leading = False
        self.holder = ""
        """Who holds the Lease, as last seen; for log lines and status."""
        self.failure: errors.GpuwardError | None = None
        """Why the last attempt failed, or None."""
        self._client = client
        self._candidate = candidate
        self._random = random
        self._wall = wall
        self._changed = changed
        self._lease: dict[str, Any] | None = None
        self._seen: Observation | None = None
        self._renewed = 0.0

    def valid(self, now: float) -> bool:
        """Tell whether we lead and have renewed within the deadline; `now` is a reading of the elector's loop clock.

        To be asked before a write: while nothing runs in this process, nobody is told that leading has ended.
        """
        return self.leading and now < self._renewed + self._candidate.timing.renew_deadline

    async def run(self) -> None:
        """Acquire, renew, and acquire again after a loss, until cancelled; then release the Lease if it is ours."""
        timing = self._candidate.timing
        try:
            while True:
                await self._attempt()
                # Acquiring is spread so that candidates that start together do not keep colliding.
                factor = 1.0 if self.leading else self._random.uniform(1.0, 2.2)
                await asyncio.sleep(timing.retry * factor)
        finally:
            await self._release()

    async def _attempt(self) -> None:
        timing = self._candidate.timing
        loop = asyncio.get_running_loop()
        begun = loop.time()
        limit = timing.renew_deadline / 2  # one answer that does not come leaves time for another attempt
        if self.leading:
            limit = min(limit, self._renewed + timing.renew_deadline - begun)
        try:
            async with asyncio.timeout(max(limit, 0.0)):
                held = await self._try()
        except (errors.ApiError, errors.Unreachable, TimeoutError) as error:
            self.failure = error if isinstance(error, errors.GpuwardError) else errors.Unreachable("no answer in time")
            self._lease = None  # the answer may be lost, but the write may have happened: read before the next one
            held = self.leading and loop.time() < self._renewed + timing.renew_deadline
        else:
            self.failure = None
            if held:
                # Others count from when they see the renewal, which is after this: the early end is the safe one.
                self._renewed = begun
        self._lead(held)

    async def _try(self) -> bool:
        """Make one attempt, reading the Lease again when it moved under us. Return whether it is ours now."""
        for fresh in (False, True):
            if self._lease is None or fresh or not self.leading:
                await self._read()
            step = next_step(self._candidate.identity, self._seen, asyncio.get_running_loop().time())
            if step is Step.WAIT:
                return False
            try:
                await self._claim(step)
            except errors.Conflict:
                if fresh:
                    raise
                continue
            return True
        return False

    async def _read(self) -> None:
        try:
            answer = await self._client.get(LEASES, self._candidate.lease, self._candidate.namespace)
        except errors.NotFound:
            self._lease, self._seen = None, None
        else:
            self._observe(answer.object())

    async def _claim(self, step: Step) -> None:
        current = self._lease or new_lease(self._candidate.namespace, self._candidate.lease)
        wanted = claimed(current, self._candidate.identity, step, self._wall(), self._candidate.timing)
        if step is Step.CREATE:
            answer = await self._client.create(LEASES, wanted)
        else:
            answer = await self._client.replace(LEASES, wanted)
        self._observe(answer.object())

    def _observe(self, lease: dict[str, Any]) -> None:
        self._lease = lease
        self._seen = (self._seen or Observation()).next(lease, asyncio.get_running_loop().time())
        self.holder = self._seen.holder

    def _lead(self, leading: bool) -> None:
        if leading != self.leading:
            self.leading = leading
            self._changed(leading)

    async def _release(self) -> None:
        if not self.leading:
            return
        self._lead(False)
        # A Lease that cannot be released runs out by itself; nothing is left to do about it here.
        with contextlib.suppress(errors.ApiError, errors.Unreachable, TimeoutError):
            async with asyncio.timeout(self._candidate.timing.retry):
                await self._read()
                if self._lease is not None and self.holder == self._candidate.identity:
                    await self._client.replace(LEASES, released(self._lease, self._wall()))
