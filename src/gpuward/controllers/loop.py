"""The one loop that every controller runs: look, decide, act, and sleep until something changed or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from gpuward.controllers.failures import Failures, retry_after
from gpuward.controllers.lines import alike, named
from gpuward.controllers.patience import Patience
from gpuward.model.passes import Decision, Outcome, Pass
from gpuward.model.snapshot import Snapshot
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.ports import Clock, Executor, Observer


class Pace(NamedTuple):
    """Bound how often a loop passes: changes that come together are decided on together."""

    gap: float
    """Seconds between two passes at least."""
    rest: float
    """Seconds of rest for each second of deciding, which leave the processor to others; requests are no work of ours."""
    longest: float
    """Seconds of rest at most."""


FAST: Final = Pace(0.005, 1.0, 0.2)
"""Where every moment counts."""
SLOW: Final = Pace(0.1, 19.0, 1.0)
"""Where nothing waits for the decision."""
STANDBY_POLL: Final = 0.25
"""Seconds between two looks whether this process leads now; nothing else wakes one that does not, and a look costs no request."""


D = TypeVar("D", bound=Decision)
Made = TypeVar("Made", bound=Decision, covariant=True)
Listener = Callable[[Pass[PoliciesInForce, D]], None]


class Controller(Protocol[Made]):
    """Decide for one concern."""

    @property
    def name(self) -> str:
        """Return the name of its logger."""
        ...

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Made:
        """Return what to do. Called once per pass, with one reading of the clock."""
        ...


class Shared(msgspec.Struct, frozen=True):
    """Bundle what the loops of one process share."""

    policies: Callable[[Snapshot], PoliciesInForce]
    executor: Executor
    clock: Clock
    acting: Callable[[], bool] = lambda: True
    """Whether this process leads; one that does not looks on."""
    late: Callable[[str, str, float | None], None] = lambda loop, lane, begun: None
    """Told which lanes of a loop have no answer yet, and since when; None once they have one."""
    passed: Callable[[str, float, bool], None] = lambda loop, seconds, crashed: None
    """Told how long each pass of a loop took, its requests included, and whether it crashed."""


class Loop(Generic[D]):
    """Run a controller, and give each pass to whoever listens: logs, metrics, events, the recorder, other loops.

    Nothing is kept between two passes but how long to wait after failures.
    """

    def __init__(self, controller: Controller[D], observer: Observer, shared: Shared, *listeners: Listener[D],
                 pace: Pace = FAST) -> None:
        self.controller = controller
        self.observer = observer
        self.listeners = [*listeners]
        self._shared = shared
        self._clock = shared.clock
        self.pace = pace
        self.alarms: list[Callable[[], float | None]] = []
        """When listeners want to hear of a pass though nothing has changed."""
        self.passes = 0
        self._busy = 0.0
        """Seconds that the last pass decided and told."""
        self._failures = Failures()
        self._patience = Patience(shared.executor, shared.clock.now, partial(shared.late, controller.name))
        self._crashes = 0
        self._log = structlog.get_logger(source=controller.name)

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        try:
            while True:
                if not self._shared.acting():
                    await self._clock.sleep(STANDBY_POLL)
                    continue
                wake_at = await self.once()
                await self._clock.sleep(max(self.pace.gap, min(self._busy * self.pace.rest, self.pace.longest)))
                await self.observer.changed(None if wake_at is None else max(0.0, wake_at - self._clock.now()))
        finally:
            await self._patience.break_off()

    async def once(self) -> float | None:
        """Look, decide and act once; return when to look again unasked."""
        now = self._clock.now()
        try:
            wake_at = await self._pass(now)
        except Exception:  # a bug in a decision must not end the operator: it is logged, and tried again
            self._crashes += 1
            self._log.exception("A pass failed")
            self._passed(now, crashed=True)
            return self._clock.now() + retry_after(self._crashes)
        self._crashes = 0
        self._passed(now)
        return wake_at

    def _passed(self, begun: float, *, crashed: bool = False) -> None:
        self._shared.passed(self.controller.name, max(0.0, self._clock.now() - begun), crashed)

    async def _pass(self, now: float) -> float | None:
        snapshot = self.observer.observe()
        seen: Pass[PoliciesInForce, D] = Pass(snapshot, self._shared.policies(snapshot), now)
        try:
            decision = self.controller.decide(snapshot, seen.policies, now)
        except Exception as error:
            self._tell(msgspec.structs.replace(seen, error=type(error).__name__))
            raise
        self._busy = self._clock.now() - now
        outcomes = await self._patience.execute(self._failures.due(decision.actions, now))
        self.passes += 1
        ended = self._clock.now()
        self._log_failures(outcomes, ended)
        self._tell(msgspec.structs.replace(seen, decision=decision, outcomes=tuple(outcomes)))
        self._busy += self._clock.now() - ended
        # A rest may end while a pass goes on that did not try the lane: it counts from the beginning of the pass.
        times = (decision.wake_at, self._failures.retry_at(now), *(alarm() for alarm in self.alarms))
        return min((at for at in times if at is not None), default=None)

    def _tell(self, seen: Pass[PoliciesInForce, D]) -> None:
        for listener in self.listeners:
            listener(seen)

    def _log_failures(self, outcomes: Sequence[Outcome], ended: float) -> None:
        off = ((type(each.action).__name__, each.error, each.action.lane) for each in outcomes if each.called_off)
        for (kind, reason), lanes in alike(((name, why), lane) for name, why, lane in off).items():
            self._log.info("Called off after a last look", action=kind, **named(lanes, "object"), reason=reason)
        for outcome in self._failures.take(outcomes, ended):
            action = outcome.action
            self._log.warning("Action failed", action=type(action).__name__, object=action.lane, error=outcome.error)
