"""Record passes on a thread of its own: the loop hands over references to frozen facts, and never waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.operands.decide import Reconciliation
from gpuward.operands.nvidiadriver.decide import Driving
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.pods import covers
from gpuward.recorder.operands import pass_of_drivers, pass_of_policies, told
from gpuward.recorder.ring import Limits, Ring
from gpuward.recording.frame import Done, Entry
from gpuward.recording.journal import Journal
from gpuward.recording.operands import OperandPass

ROOM: Final = 64
"""Passes that may wait to be recorded. Those that find no room are counted in the next frame, which holds their changes too."""
_PATIENCE: Final = 10.0
"""Seconds that the end of the process waits for what is not written yet."""


class Recorder:
    """Record passes until something goes wrong: then there is one warning and no recorder, and nothing else changes."""

    def __init__(self, folder: Path, version: str, limits: Limits | None = None, *, room: int = ROOM,
                 private: bool = False, images: Mapping[str, str] | None = None) -> None:
        """Take the variables that name images, by which operands are decided."""
        self._images = images or {}
        self._folder = folder
        self._limits = limits or Limits()
        self._private = private
        self._journal = Journal(version, self._images)
        self._waiting: queue.Queue[Entry | OperandPass | None] = queue.Queue(room)
        self._missed = 0
        self._off = False
        self._log = structlog.get_logger(source="recorder")
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def note(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass over, to be recorded soon, unless nothing could be decided yet. Never waits."""
        if (entry := entry_of(seen)) is not None:
            self.take(entry)

    def note_policies(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicies over, to be recorded soon. Never waits."""
        self.take(pass_of_policies(seen))

    def note_drivers(self, seen: Pass[PoliciesInForce, Driving]) -> None:
        """Take a pass over the NVIDIADrivers over, to be recorded soon. Never waits."""
        self.take(pass_of_drivers(seen))

    def take(self, entry: Entry | OperandPass) -> None:
        """Take over what is to be recorded of a pass. Never waits and never fails."""
        if self._off:
            return
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._missed += 1

    def close(self) -> None:
        """Write what waits and end."""
        if not self._off:
            try:
                self._waiting.put(None, timeout=_PATIENCE)
            except queue.Full:
                return
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        try:
            self._record_all(Ring(self._folder, self._limits, private=self._private))
        except Exception as error:  # whatever it is, the operator goes on without a recorder
            self._off = True
            self._forget()
            self._log.warning("The flight recorder is off", folder=str(self._folder), error=f"{type(error).__name__}: {error}")

    def _forget(self) -> None:
        """Let go of the facts of passes that nobody will record any more."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()

    def _record_all(self, ring: Ring) -> None:
        try:
            while (seen := self._waiting.get()) is not None:
                missed, self._missed = self._missed, 0
                self._journal.missed(missed)
                if not self._journal.wants(seen):
                    continue
                more = told(seen, self._images) if isinstance(seen, OperandPass) else None
                if ring.is_full:
                    ring.begin(self._journal.begin(seen, more))
                else:
                    ring.add(self._journal.add(seen, more))
        finally:
            ring.close()


def entry_of(seen: Pass[PoliciesInForce, Plan]) -> Entry | None:
    """Return what is recorded of a pass; None for one in which not all pods that matter were known yet."""
    if not covers(seen.snapshot.followed, seen.policies.upgrades):
        return None
    policy, plan = seen.policies.policy.view, seen.decision or Plan()
    return Entry(
        seen.policies.as_decided_on(seen.snapshot), seen.policies.upgrades, seen.at, policy.name if policy else "", plan,
        _done(plan, seen.outcomes),
        seen.error, tuple(plan.troubles),
    )


def _done(plan: Plan, outcomes: Sequence[Outcome]) -> tuple[Done, ...]:
    """Return how the actions of a plan ended, by their numbers in it."""
    numbers = {id(action): number for number, action in enumerate(plan.actions)} if outcomes else {}
    return tuple(
        Done(numbers[id(outcome.action)], outcome.error, outcome.dropped, outcome.idle)
        for outcome in outcomes if id(outcome.action) in numbers
    )
