"""Decide again what was decided about operands at a recorded moment, and say in which way the outcome differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gpuward.cli.rerun import some
from gpuward.recorder.operands import decide_again
from gpuward.recorder.reading import OperandMoment
from gpuward.recording.operands import Decided, Judged


class OperandRerun(msgspec.Struct, frozen=True):
    """Hold a moment and how what is decided about it now differs."""

    moment: OperandMoment
    differences: tuple[str, ...]
    compared: bool = True
    """False where what was decided depends on what is left out of custom resources."""


def rerun_operands(moment: OperandMoment) -> OperandRerun:
    """Decide again, from nothing but what was recorded."""
    frame = moment.frame
    if not frame.comparable:
        return OperandRerun(moment, (), compared=False)
    try:
        now = decide_again(frame.concern, moment.snapshot, moment.images, moment.at, moment.digests)
    except Exception as error:  # whatever ends the decision is what replaying has to show
        kind = type(error).__name__
        known = frame.error == kind
        return OperandRerun(moment, () if known else (f"operands: the decision fails now: {kind}: {error}",))
    if frame.error:
        return OperandRerun(moment, (f"operands: the decision is made now; then it failed: {frame.error}",))
    return OperandRerun(moment, tuple(_differences(frame.decided, now)))


def _differences(then: Decided, now: Decided) -> Iterator[str]:
    if then == now:
        return
    if then.writes != now.writes:
        lost = [str(write) for write in then.writes if write not in now.writes]
        made = [str(write) for write in now.writes if write not in then.writes]
        yield f"operands: then {some(lost)}; now {some(made)}" if lost or made else "operands: written in another order"
    for name in sorted({*then.verdicts, *now.verdicts}):
        if then.verdicts.get(name) != now.verdicts.get(name):
            yield f"{name}: then {_said(then.verdicts, name)}; now {_said(now.verdicts, name)}"
    for name in sorted({*then.waiting, *now.waiting}):
        if then.waiting.get(name) != now.waiting.get(name):
            yield f"{name}: then it waits for: {then.waiting.get(name, 'nothing')}; now: {now.waiting.get(name, 'nothing')}"


def _said(verdicts: Mapping[str, Judged], name: str) -> str:
    return str(verdicts[name]) if name in verdicts else "nothing was said of it"
