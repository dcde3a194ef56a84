"""The last RolloutPolicy, which stays in force for a while after it has gone.

`kubectl replace --force` deletes it and makes it anew, and so do others that cannot change what is there. In between, every node
that waits for a window, an approval or the end of a notice could start. What it allows ends at once (`policy/rolloutpolicy.py`).
The ClusterPolicy keeps it for a process that begins in that while (`policy/lastrollout.py`): its minute begins with that process.
While RolloutPolicies may not be listed nobody has seen that it is gone: it stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any, Final

import msgspec

from gpuward.kube.cache.cache import Cache
from gpuward.model.views import PolicyView
from gpuward.policy.lastrollout import last_rollout
from gpuward.ports import NO_LOG, Log
from gpuward.wire.policies import oldest_first

KIND: Final = "RolloutPolicy"
LINGERS: Final = 60.0
"""Seconds for which it does."""


class RolloutPolicies:
    """Hold the RolloutPolicies that are there, and the one that was in force last."""

    def __init__(self, cache: Cache[Any, PolicyView], policies: Cache[Any, PolicyView], forbidden: Callable[[], Set[str]],
                 touch: Callable[[], None], log: Log = NO_LOG) -> None:
        self._cache = cache
        self._policies = policies
        self._forbidden = forbidden
        self._touch = touch
        self._last: PolicyView | None = None
        self._ends: asyncio.TimerHandle | None = None
        self._log = log
        cache.subscribe(lambda changes: self.look())

    def views(self) -> tuple[PolicyView, ...]:
        """Return all that count, the one in force first."""
        there = oldest_first(self._cache.values())
        if self._last is None or any(not view.deleting for view in there):
            return there
        return (msgspec.structs.replace(self._last, gone=True), *(view for view in there if view.uid != self._last.uid))

    def recall(self) -> None:
        """Put in force what the ClusterPolicy remembers, for a process that begins to decide and has seen no RolloutPolicy."""
        policy = next((view for view in oldest_first(self._policies.values()) if not view.deleting), None)
        if self._last is None and policy is not None:
            self._last = last_rollout(policy.body)
            self.look()

    def look(self) -> None:
        """See which is in force now, whether they may be listed or not."""
        active = next((view for view in oldest_first(self._cache.values()) if not view.deleting), None)
        if active is not None:
            self._last = active
            if self._ends is not None:
                self._ends.cancel()
                self._ends = None
        elif self._last is not None and self._ends is None and (self._cache.synced.is_set() or KIND not in self._forbidden()):
            self._log.info("The RolloutPolicy is not there any more: it stays in force for a minute, unless one comes",
                           rolloutPolicy=self._last.name)
            self._ends = asyncio.get_running_loop().call_later(LINGERS, self._forget)

    def _forget(self) -> None:
        self._last = self._ends = None
        self._touch()
