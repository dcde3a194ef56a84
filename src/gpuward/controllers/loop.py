"""The one loop that every controller runs: look, decide, act, and sleep until something changed or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from gpuward.controllers.failures import Failures, retry_after
from gpuward.model.actions import Action
from gpuward.model.snapshot import Snapshot
from gpuward.ports import Clock, Executor, Observer, Outcome


class Pace(NamedTuple):
    """Bound how often a loop passes: changes that come together are decided on together."""

    gap: float
    """Seconds between two passes at least."""
    rest: float
    """Seconds of rest for each second of deciding, which leave the processor to others; requests are no work of ours."""
    longest: float
    """Seconds of rest at most."""


PROMPT: Final = Pace(0.005, 1.0, 0.2)
"""Where every moment counts."""
LEISURELY: Final = Pace(0.1, 19.0, 1.0)
"""Where nothing waits for the decision."""
STANDBY: Final = 0.25
"""Seconds between two looks whether this process leads now; nothing else wakes one that does not, and a look costs no request."""


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
        """Tell people and metrics what was decided and how it went. Failures are logged already, each once."""
        ...


class Loop(Generic[D]):
    """Run a controller. Nothing is kept between two passes but how long to wait after failures."""

    def __init__(self, controller: Controller[D], observer: Observer, executor: Executor, clock: Clock, *,
                 acting: Callable[[], bool] = lambda: True, pace: Pace = PROMPT) -> None:
        self.controller = controller
        self.observer = observer
        self.executor = executor
        self.clock = clock
        self.acting = acting
        """Whether this process leads; one that does not looks on."""
        self.pace = pace
        self.passes = 0
        self._busy = 0.0
        """Seconds that the last pass decided and told."""
        self._failures = Failures()
        self._crashes = 0
        self._log = structlog.get_logger(source=controller.name)

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        while True:
            if not self.acting():
                await self.clock.sleep(STANDBY)
                continue
            wake_at = await self.once()
            await self.clock.sleep(max(self.pace.gap, min(self._busy * self.pace.rest, self.pace.longest)))
            await self.observer.changed(None if wake_at is None else max(0.0, wake_at - self.clock.now()))

    async def once(self) -> float | None:
        """Look, decide and act once; return when to look again unasked."""
        now = self.clock.now()
        try:
            wake_at = await self._pass(now)
        except Exception:  # a bug in a decision must not end the operator: it is logged, and tried again
            self._crashes += 1
            self._log.exception("A pass failed")
            return self.clock.now() + retry_after(self._crashes)
        self._crashes = 0
        return wake_at

    async def _pass(self, now: float) -> float | None:
        snapshot = self.observer.observe()
        decision = self.controller.decide(snapshot, now)
        self._busy = self.clock.now() - now
        outcomes = await self.executor.execute(self._failures.due(decision.actions, now))
        self.passes += 1
        ended = self.clock.now()
        for outcome in outcomes:
            if outcome.called_off:
                action = outcome.action
                self._log.info("Called off", action=type(action).__name__, object=action.lane, reason=outcome.error)
        for outcome in self._failures.take(outcomes, ended):
            action = outcome.action
            self._log.warning("Action failed", action=type(action).__name__, object=action.lane, error=outcome.error)
        self.controller.report(snapshot, decision, outcomes)
        self._busy += self.clock.now() - ended
        return min((at for at in (decision.wake_at, self._failures.retry_at(ended)) if at is not None), default=None)
