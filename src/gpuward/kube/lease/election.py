"""Take part in the leader election: acquire the Lease, renew it, notice its loss, release it.

`gpuward.kube.lease.election_thread` runs an elector on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuward import errors, names
from gpuward.kube.http.client import Client
from gpuward.kube.lease.others import Holder, Others
from gpuward.kube.lease.rules import LeaseTiming, Observation, Step, claimed, new_lease, next_step, released
from gpuward.kube.resources import LEASES

if TYPE_CHECKING:
    from random import Random

JUST_AFTER = 0.01
"""Seconds after a Lease's end at which a candidate looks: an event loop may wake it a moment early."""
REFUSED_FOR = 5.0
"""Seconds after which a refusal to use the Lease is believed: an API server that has just started knows no roles yet."""
_REFUSALS = frozenset({400, 403, 404, 405, 422})
"""Answers that say that the Lease cannot be used at all, not that it cannot be now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Say who stands for election, and for which Lease."""

    identity: str
    """Unique among all processes: client-go uses `<host name>_<uuid>`."""
    namespace: str
    lease: str = names.LEADER_LEASE
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    looks_around: bool = False
    """Whether to give way to an operator in another namespace, who holds a Lease of the same name there."""


@dataclass(frozen=True, slots=True)
class ElectionListeners:
    """Hold whom to tell of what happens to a candidate.

    `silent` is called when the server answers again after an attempt that it did not answer, with the time (the loop's) at
    which that attempt began: connections that have been silent since then may be dead.
    `blocked` is called with whoever holds the Lease, or one of that name elsewhere, while this one waits; with None at its end.
    `refused` is called once when the server has refused for a while to let the Lease be used.
    `blind` is called with True when Leases of other namespaces may not be listed, and with False when they may again.
    `heard` is called, for a candidate on a thread of its own, with the API server's time in each answer, and when (the loop's
    time) that was asked for: whoever is idle hears of it from nobody else.
    """

    silent: Callable[[float], None] = lambda since: None
    blocked: Callable[[Holder | None], None] = lambda holder: None
    refused: Callable[[errors.GpuwardError], None] = lambda error: None
    blind: Callable[[bool], None] = lambda is_blind: None
    heard: Callable[[float, float], None] = lambda date, asked: None


NOBODY = ElectionListeners()


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
        told: ElectionListeners = NOBODY,
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
        self._told = told
        self._others = Others(client, candidate.lease, candidate.namespace) if candidate.looks_around else None
        self._blocker: Holder | None = None
        self._is_blind = False
        self._refused_since: float | None = None
        self._believes_refusal = False
        self._unanswered: float | None = None
        """When the first attempt began that was not answered, until one is."""
        self._lease: dict[str, Any] | None = None
        self._seen: Observation | None = None
        self._renewed = 0.0

    def valid(self, now: float) -> bool:
        """Tell whether we lead and have renewed within the deadline; `now` is a reading of the elector's loop clock.

        To be asked before a write: while nothing runs in this process, nobody is told that leading has ended.
        """
        return self.leading and now < self._renewed + self._candidate.timing.renew_deadline

    @property
    def unusable(self) -> bool:
        """Tell whether the server does not let the Lease be used: then it cannot tell who else runs."""
        if not self._believes_refusal or self._refused_since is None:
            return False
        # Whoever is in a namespace that is not there is not where the operator is.
        return not (isinstance(self.failure, errors.ApiError) and self.failure.is_of_a_missing_namespace)

    async def run(self) -> None:
        """Acquire, renew, and acquire again after a loss, until cancelled; then release the Lease if it is ours."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                begun = loop.time()
                await self._attempt(begun)
                await asyncio.sleep(self._pause(begun, loop.time()))
        finally:
            await self._release()

    def _pause(self, begun: float, now: float) -> float:
        """Return the seconds until the next attempt; the last one began at `begun`."""
        timing = self._candidate.timing
        if self.leading:
            # One that was not answered has taken longer, and is repeated at once, over another connection.
            return max(0.0, begun + timing.retry - now)
        # Looks are spread so that candidates that start together do not keep colliding.
        look = timing.look * self._random.uniform(1.0, 1.2)
        left = self._seen.ends + JUST_AFTER - now if self._seen else look
        return left if 0 < left < look else look

    async def _attempt(self, begun: float) -> None:
        timing = self._candidate.timing
        loop = asyncio.get_running_loop()
        limit = timing.renew_deadline / 2  # one answer that does not come leaves time for another attempt
        if self.leading:
            limit = min(limit, self._renewed + timing.renew_deadline - begun)
        try:
            async with asyncio.timeout(max(limit, 0.0)):
                held = await self._try()
        except (errors.ApiError, errors.Unreachable, TimeoutError) as error:
            self.failure = error if isinstance(error, errors.GpuwardError) else errors.Unreachable("no answer in time")
            if isinstance(error, TimeoutError) and self._unanswered is None:
                self._unanswered = begun
            self._note_refusal(begun)
            self._lease = None  # the answer may be lost, but the write may have happened: read before the next one
            held = self.leading and loop.time() < self._renewed + timing.renew_deadline
        else:
            self.failure = self._refused_since = None
            self._believes_refusal = False
            if self._unanswered is not None:
                self._told.silent(self._unanswered)
                self._unanswered = None
            if held:
                # Others count from when they see the renewal, which is after this: the early end is the safe one.
                self._renewed = begun
        self._lead(held)

    def _note_refusal(self, begun: float) -> None:
        error = self.failure
        if not isinstance(error, errors.ApiError) or error.status not in _REFUSALS:
            self._refused_since, self._believes_refusal = None, False
            return
        if self._refused_since is None:
            self._refused_since = begun
        if begun >= self._refused_since + REFUSED_FOR and not self._believes_refusal:
            self._believes_refusal = True
            self._told.refused(error)

    async def _try(self) -> bool:
        """Make one attempt, reading the Lease again when it moved under us. Return whether it is ours now."""
        for fresh in (False, True):
            if self._lease is None or fresh or not self.leading:
                await self._read()
            step = next_step(self._candidate.identity, self._seen, asyncio.get_running_loop().time())
            if step is Step.WAIT:
                self._block(Holder.of(self._lease or {}))
                return False
            if step is not Step.RENEW:
                self._lead(False)  # one that slept while others led and left begins anew: what it knows is of another time
                if await self._gives_way():
                    return False
            try:
                await self._claim(step)
            except errors.Conflict:
                if fresh:
                    raise
                continue
            # Two that began at once have both seen nobody before; now at least one of them sees the other.
            if await self._gives_way():
                await self._give_back()
                return False
            self._block(None)
            return True
        return False

    async def _gives_way(self) -> bool:
        """Look for an operator in another namespace: always before leading begins, and now and then while it lasts."""
        if self._others is None or (self.leading and not self._others.is_due(asyncio.get_running_loop().time())):
            return False
        holder = None
        if not self.leading:
            holder = await self._others.look()
        else:  # a look that fails must not cost the Lease
            with contextlib.suppress(errors.ApiError, errors.Unreachable, TimeoutError):
                async with asyncio.timeout(self._candidate.timing.retry):
                    holder = await self._others.look(acting=True)
        if self._others.forbidden != self._is_blind:
            self._is_blind = self._others.forbidden
            self._told.blind(self._is_blind)
        if holder is not None:
            self._block(holder)
        return holder is not None

    async def _give_back(self) -> None:
        self._lead(False)
        if self._lease is not None:
            answer = await self._client.replace(LEASES, released(self._lease, self._wall()))
            self._observe(answer.object())

    def _block(self, holder: Holder | None) -> None:
        if holder != self._blocker:
            self._blocker = holder
            self._told.blocked(holder)

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
