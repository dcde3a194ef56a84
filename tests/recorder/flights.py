"""Recordings of rollouts that were really played."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from gpuward.controllers.planning import Planner
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.recorder.reading import Moment, OperandMoment, all_moments, moments
from gpuward.recorder.recorder import Recorder, entry_of
from gpuward.recorder.ring import Limits
from gpuward.recording.digest import digest
from gpuward.recording.frame import Entry
from gpuward.sandbox.samples import IMAGES
from tests.journeys.stage import Stage

PLENTY = 100_000
"""Passes that may wait to be recorded: in virtual time they come faster than any disk writes."""


class Flight:
    """Record the operator of a stage, also beyond its restart, and keep the passes themselves to compare."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpuward-flight-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.limits = limits
        self.passes: list[Entry] = []
        self._recorder: Recorder | None = None

    def board(self, stage: Stage) -> None:
        """Begin to record, in the operator that a stage has now."""
        self.land()
        recorder = self._recorder = Recorder(self.folder, "1.2.3", self.limits, room=PLENTY, images=IMAGES)
        stage.operator.upgrades.listeners += [self._note, recorder.note]
        stage.operator.operands.listeners.append(recorder.note_policies)
        stage.operator.drivers.listeners.append(recorder.note_drivers)

    def _note(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        if (entry := entry_of(seen)) is not None:
            self.passes.append(entry)

    def land(self) -> None:
        """Write all that waits."""
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def moments(self) -> list[Moment]:
        """Return what was recorded of upgrades; what cannot be read fails the test."""
        return [moment for moment in self.all_moments() if isinstance(moment, Moment)]

    def operands(self) -> list[OperandMoment]:
        """Return what was recorded of operands; what cannot be read fails the test."""
        return [moment for moment in self.all_moments() if isinstance(moment, OperandMoment)]

    def all_moments(self) -> list[Moment | OperandMoment]:
        """Return all that was recorded; what cannot be read fails the test."""
        self.land()
        notes: list[str] = []
        found = list(all_moments(self.folder, notes.append))
        assert notes == []
        return found


def read(path: Path) -> list[Moment]:
    """Return what recordings hold, all of it."""
    notes: list[str] = []
    found = list(moments(path, notes.append))
    assert notes == []
    return found


def again(moment: Moment) -> Plan:
    """Decide again what was decided at a moment."""
    return Planner().decide(moment.snapshot, moment.policies, moment.at)


def differing(found: list[Moment]) -> list[float]:
    """Return the times at which another plan comes out than was recorded."""
    return [moment.at for moment in found if digest(again(moment)) != moment.frame.digest]

