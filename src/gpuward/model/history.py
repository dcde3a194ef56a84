"""The last upgrades of a node: one JSON annotation, `gpuward.io/upgrade-history`, the newest first. Example:

    [{"from":"595.91.07","to":"595.91.08","digest":"6f9c7d5b","asked":"kubectl-edit","began":"2026-01-02T03:04:05Z","took":312,
      "spent":[0,12,140,31],"out":312,"gpus":8,"evicted":2,"lost":7200}]

It is written in the same patch as the end of an upgrade, and outlives the operator, its events and the driver. The oldest go
where there is no more room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from gpuward.model.course import MOST_SECONDS, MOST_TEXT, NO_TIME, Course, Seconds, bounded, counted
from gpuward.model.reading import Moment, read_json, seconds
from gpuward.model.states import State

ROOM: Final = 1000
"""Bytes that the history of a node has: 1,000 nodes have less than 1 MiB."""
_MOST_READ: Final = 4 * ROOM
"""Characters of what is read: whatever is longer is not ours."""
_LONGEST_NAME: Final = 253


class Ending(StrEnum):
    """Say how an upgrade of a node ended."""

    DONE = "done"
    FAILED = "failed"
    BACK = "turned back"
    """It went back into service, or left the fleet, before it had the new driver."""


class PastUpgrade(msgspec.Struct, frozen=True, gc=False):
    """Hold one upgrade of one node, with all attempts of it that followed each other. Times are seconds since the epoch."""

    began: float
    ended: float
    policy: str = ""
    """The NVIDIADriver within whose limits it was; empty for the ClusterPolicy."""
    before: str = ""
    """The version of the driver that the node had; empty where that is not known."""
    to: str = ""
    digest: str = ""
    """The beginning of the new driver's configuration digest."""
    asked: str = ""
    """The field manager that asked for it; empty where managedFields did not tell."""
    spent: Seconds = NO_TIME
    """Seconds in which the node waited for jobs, was emptied, got its driver, and was validated; without pauses."""
    out: float = 0.0
    """Seconds in which our cordon kept the node out of service."""
    gpus: int = 0
    evicted: int = 0
    lost: float = 0.0
    """GPU-seconds that evicted pods had run for, which do not go on elsewhere."""
    ending: Ending = Ending.DONE
    failures: int = 0
    failed_in: str = ""
    """The state in which it failed last."""
    back: str = ""
    """The version of the driver that the node was to get before it was sent back to that which it had."""

    @property
    def seconds(self) -> float:
        """Return how long its steps took."""
        return sum(self.spent)


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    began: Moment
    took: Annotated[float, msgspec.Meta(ge=0)]
    policy: str = ""
    before: str = msgspec.field(default="", name="from")
    to: str = ""
    digest: str = ""
    asked: str = ""
    spent: Seconds = NO_TIME
    out: float = 0
    gpus: int = 0
    evicted: int = 0
    lost: float = 0
    ending: Ending = Ending.DONE
    failures: int = 0
    failed_in: State | None = msgspec.field(default=None, name="failedIn")
    back: str = ""


def past_upgrade(course: Course, policy: str, now: float, ending: Ending, failed_in: str = "") -> PastUpgrade:
    """Return what is remembered of an upgrade that ends."""
    return PastUpgrade(
        course.began, now, policy, course.before, course.to, course.digest, course.asked, course.spent,
        course.out_until(now), course.gpus, course.evicted, course.lost, ending,
        int(ending is Ending.FAILED), failed_in, course.back)


def with_upgrade(history: Sequence[PastUpgrade], last: PastUpgrade) -> tuple[PastUpgrade, ...]:
    """Return a history with one more upgrade: one that was tried again after a failure is the same one still."""
    before = history[0] if history else None
    if before is None or before.ending is not Ending.FAILED or not _is_same(before, last):
        return last, *history
    jobs, emptied, driver, validated = (one + other for one, other in zip(before.spent, last.spent, strict=True))
    both = msgspec.structs.replace(
        last, began=before.began, before=before.before or last.before, asked=before.asked or last.asked,
        spent=(jobs, emptied, driver, validated), out=before.out + last.out, gpus=last.gpus or before.gpus,
        evicted=before.evicted + last.evicted, lost=before.lost + last.lost, failures=before.failures + last.failures,
        failed_in=last.failed_in or before.failed_in)
    return both, *history[1:]


def _is_same(before: PastUpgrade, last: PastUpgrade) -> bool:
    return (before.policy, before.to, before.digest) == (last.policy, last.to, last.digest)


def kept_out(history: Sequence[PastUpgrade], more: float) -> tuple[PastUpgrade, ...]:
    """Return a history whose last upgrade kept its node out of service for some seconds more, after it had failed."""
    if not history or history[0].ending is not Ending.FAILED:
        return tuple(history)
    return msgspec.structs.replace(history[0], out=history[0].out + max(0.0, more)), *history[1:]


def encode_history(history: Iterable[PastUpgrade]) -> str | None:
    """Return the annotation's JSON text, None where nothing is left to say: the oldest upgrades go where there is no room."""
    parts: list[str] = []
    room = ROOM - 2
    for each in history:
        part = msgspec.json.encode(_stored(each)).decode("utf-8")
        room -= len(part.encode()) + 1
        if room < 0:
            break
        parts.append(part)
    return f"[{','.join(parts)}]" if parts else None


def _stored(past: PastUpgrade) -> _Entry:
    began = datetime.fromtimestamp(int(past.began), UTC)
    jobs, emptied, driver, validated = (round(each) for each in past.spent)
    texts = (past.before, past.to, past.digest, past.asked, past.back)
    before, to, digest, asked, back = (text[:MOST_TEXT] for text in texts)
    return _Entry(
        began, max(0, round(past.ended - int(past.began))), past.policy[:_LONGEST_NAME], before, to, digest, asked,
        (jobs, emptied, driver, validated), round(past.out), past.gpus, past.evicted, round(past.lost), past.ending,
        past.failures, State(past.failed_in) if past.failed_in else None, back)


def decode_history(text: str) -> tuple[PastUpgrade, ...]:
    """Return the history that an annotation holds, the newest first: times and counts are brought to what can be reckoned with.

    Raises:
        ValueError: the text is no such history; the message says why.
    """
    if len(text) > _MOST_READ:
        raise ValueError(f"it has more than {_MOST_READ} characters")
    return tuple(map(_past, read_json(text, list[_Entry])))


def history_of(text: str | None) -> tuple[PastUpgrade, ...]:
    """Return the history that an annotation holds; garbage is as good as none."""
    try:
        return decode_history(text) if text else ()
    except ValueError:
        return ()


def _past(entry: _Entry) -> PastUpgrade:
    began = seconds(entry.began)
    jobs, emptied, driver, validated = map(bounded, entry.spent)
    texts = (entry.before, entry.to, entry.digest, entry.asked, entry.back)
    before, to, digest, asked, back = (text[:MOST_TEXT] for text in texts)
    return PastUpgrade(
        began, began + min(entry.took, MOST_SECONDS), entry.policy[:_LONGEST_NAME], before, to, digest, asked,
        (jobs, emptied, driver, validated),
        bounded(entry.out), counted(entry.gpus), counted(entry.evicted), bounded(entry.lost), entry.ending,
        counted(entry.failures), str(entry.failed_in or ""), back)
