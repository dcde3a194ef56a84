"""Find the fewest changes after which a cluster differs in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tools.oracle.played import Verdict, play
from tools.oracle.sequence import REST, Sequence, can_be_followed

PATIENCE: Final = 180.0
"""Real seconds that shrinking may take."""
_NAME: Final = re.compile(r"gpu-\d|-[a-z0-9]{5}\b|'.*'")


def shrink(sequence: Sequence, found: Verdict, patience: float = PATIENCE,
           run: Callable[[Sequence], Verdict] = play) -> tuple[Sequence, Verdict]:
    """Return a smaller sequence with the first difference among its own; the sequence itself if there is none."""
    kind, until = _kind(found.wrong[0]), time.monotonic() + patience
    for smaller in (_fewer, _plainer):
        at = 0
        while time.monotonic() < until and (tried := smaller(sequence, at)) is not None:
            again = run(tried) if tried != sequence and can_be_followed(tried.last) else None
            if again is not None and kind in map(_kind, again.wrong):
                sequence, found = tried, again
                at += smaller is _plainer
            else:
                at += 1
    return sequence, found


def _kind(line: str) -> str:
    """Return what a difference is about, whichever node and value it is."""
    return _NAME.sub("", line)


def _fewer(sequence: Sequence, at: int) -> Sequence | None:
    """Return the sequence without one of its changes, None where there is no such."""
    changes = sequence.changes
    return msgspec.structs.replace(sequence, changes=changes[:at] + changes[at + 1:]) if at < len(changes) else None


def _plainer(sequence: Sequence, at: int) -> Sequence | None:
    """Return the sequence with a rest after one of its changes; beyond them, without what is special about the cluster."""
    changes = sequence.changes
    if at < len(changes):
        rested = msgspec.structs.replace(changes[at], after=REST)
        return msgspec.structs.replace(sequence, changes=(*changes[:at], rested, *changes[at + 1:]))
    return {len(changes): msgspec.structs.replace(sequence, workload=""),
            len(changes) + 1: msgspec.structs.replace(sequence, monitors=False)}.get(at)
