"""The one loop that every controller runs: look, decide, act, and sleep until something changed or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import structlog

from gpuward.model.actions import Action, EvictPod
from gpuward.model.snapshot import Snapshot
from gpuward.ports import Clock, Executor, Observer, Outcome

SHORTEST_GAP: Final = 0.005
"""Seconds between two passes at least."""
LONGEST_GAP: Final = 0.2
FIRST_RETRY: Final = 0.5
LAST_RETRY: Final = 30.0


class Decision(Protocol):
    """Be what a pass decided: what to do now, and when to look again unasked."""

    @property
    def actions(self) -> Sequence[Action]:
        """Return what to do now."""
        ...

    @property
    def wake_at(self) -> float | None:
        """Return when time alone changes the decision."""
        ...


D = TypeVar("D", bound=Decision)


class Controller(Protocol[D]):
    """Decide for one concern."""

    @property
    def name(self) -> str:
        """Return the name of its logger."""
        ...

    def decide(self, snapshot: Snapshot, now: float) -> D:
        """Return what to do. Called once per pass, with one reading of the clock."""
        ...

    def report(self, snapshot: Snapshot, decision: D, outcomes: Sequence[Outcome]) -> None:
        """Tell people and metrics what was decided and how it went."""
        ...


class Loop(Generic[D]):
    """Run a controller. Nothing is kept between two passes but how long to wait after a failure."""

    def __init__(self, controller: Controller[D], observer: Observer, executor: Executor, clock: Clock,
                 acting: Callable[[], bool] = lambda: True) -> None:
        self.controller = controller
        self.observer = observer
        self.executor = executor
        self.clock = clock
        self.acting = acting
        """Whether this process leads; one that does not looks on."""
        self.passes = 0
        self._failures = 0
        self._log = structlog.get_logger(source=controller.name)

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        while True:
            begun = self.clock.now()
            wake_at = await self.once() if self.acting() else None
            # Changes that come together are decided on together; a slow pass leaves the others more room.
            gap = min(max(SHORTEST_GAP, self.clock.now() - begun), LONGEST_GAP)
            await self.clock.sleep(gap)
            await self.observer.changed(None if wake_at is None else max(0.0, wake_at - self.clock.now()))

    async def once(self) -> float | None:
        """Look, decide and act once; return when to look again unasked."""
        now = self.clock.now()
        try:
            snapshot = self.observer.observe()
            decision = self.controller.decide(snapshot, now)
        except Exception:  # a bug in a decision must not end the operator: it is logged, and tried again
            self._log.exception("The decision failed")
            return now + self._retry()
        outcomes = await self.executor.execute(decision.actions)
        self.passes += 1
        self.controller.report(snapshot, decision, outcomes)
        failed = [outcome for outcome in outcomes if outcome.error and not isinstance(outcome.action, EvictPod)]
        if not failed:
            self._failures = 0
            return decision.wake_at
        again = self.clock.now() + self._retry()
        return again if decision.wake_at is None else min(again, decision.wake_at)

    def _retry(self) -> float:
        self._failures += 1
        return min(FIRST_RETRY * 2.0 ** (self._failures - 1), LAST_RETRY)
