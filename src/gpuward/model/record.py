"""What gpuward remembers about a node's upgrade: one JSON annotation, `gpuward.io/driver-upgrade`.

It is written in the same patch as the change that it belongs to, so a new leader knows all that the old one knew. Example:

    {"state":"pod-deletion-required","since":"2026-01-02T03:04:05.000Z","started":"2026-01-02T03:04:05.000Z",
     "target":"6f9c7d5b4","cordon":"gpuward"}
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from gpuward.model.states import State


class CordonOwner(StrEnum):
    """Say who made a node unschedulable."""

    GPUWARD = "gpuward"
    OTHER = "other"


class Failure(msgspec.Struct, frozen=True):
    """Remember why a step failed last, which one it was, and how often the upgrade has failed since somebody asked for it."""

    state: State
    cause: str
    at: float
    attempts: int = 1
    first: float = 0.0
    """When the first of several attempts failed; 0 where there was only one."""
    driver: str = ""
    """The uid of the driver pod that the node had then; empty where that is not known."""
    begun: float = 0.0
    """When the first attempt that failed had begun; 0 where that is not known."""


class Record(msgspec.Struct, frozen=True):
    """Hold gpuward's memory of one node's upgrade. Times are seconds since the epoch."""

    state: State = State.UNKNOWN
    """The label as gpuward last wrote it; a different label was set by somebody else."""
    since: float = 0.0
    """When that state was entered."""
    started: float = 0.0
    """When the node was last admitted."""
    pods: tuple[str, ...] | None = None
    """The uids of the driver and validator pods that the node had then, or when it was done: others have come since. None where
    that is not known, and `started` has to do, although our clock and the one that pods are dated by need not agree."""
    target: str = ""
    """Revision hash of the driver DaemonSet that the node was last sent to."""
    cordon: CordonOwner | None = None
    forced: bool = False
    """Whether the driver is restarted or validated anew even if in step: somebody asked for it, or broke an upgrade off."""
    failure: Failure | None = None
    paused: float = 0.0
    """Since when upgrades are off while this one is under way; 0 while they are on. The state's clock stands still meanwhile."""
    restart: str = ""
    """The driver configuration digest for which only the driver pod is restarted, as its driver is the same: workloads stay."""
    returns: int = 0
    """How often the node had to be emptied again because pods that use its GPUs came back before the driver was replaced."""


_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without a zone would be read in the zone of whoever reads it."""


class _StoredFailure(msgspec.Struct, frozen=True):
    state: State
    cause: str
    at: _Moment
    attempts: Annotated[int, msgspec.Meta(ge=1)] = 1
    first: _Moment | None = None
    driver: str = ""
    begun: _Moment | None = None


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    state: State
    since: _Moment
    started: _Moment | None = None
    pods: tuple[str, ...] | None = None
    target: str = ""
    cordon: CordonOwner | None = None
    forced: bool = False
    failure: _StoredFailure | None = None
    paused: _Moment | None = None
    restart: str = ""
    returns: Annotated[int, msgspec.Meta(ge=0)] = 0


def encode_record(record: Record) -> str:
    """Return the annotation's JSON text; times have milliseconds and are in UTC."""
    failure = record.failure
    stored: dict[str, Any] = {
        "state": record.state,
        "since": format_time(record.since),
        "started": format_time(record.started) if record.started else None,
        "pods": record.pods,
        "target": record.target or None,
        "cordon": record.cordon,
        "forced": record.forced or None,
        "failure": failure and _stored(failure),
        "paused": format_time(record.paused) if record.paused else None,
        "restart": record.restart or None,
        "returns": record.returns or None,
    }
    return msgspec.json.encode({key: value for key, value in stored.items() if value is not None}).decode()


def _stored(failure: Failure) -> dict[str, Any]:
    stored = {"state": failure.state, "cause": failure.cause, "at": format_time(failure.at), "attempts": failure.attempts}
    times = {key: format_time(at) for key, at in (("first", failure.first), ("begun", failure.begun)) if at}
    return stored | times | ({"driver": failure.driver} if failure.driver else {})


def decode_record(text: str) -> Record:
    """Return the record that an annotation holds.

    Raises:
        ValueError: the text is not such a record; the message says where.
    """
    try:
        stored = msgspec.json.decode(text, type=_Stored)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    failure = stored.failure
    return Record(
        state=stored.state,
        since=_seconds(stored.since),
        started=_seconds(stored.started) if stored.started else 0.0,
        pods=stored.pods,
        target=stored.target,
        cordon=stored.cordon,
        forced=stored.forced,
        failure=_failure(failure) if failure else None,
        paused=_seconds(stored.paused) if stored.paused else 0.0,
        restart=stored.restart,
        returns=stored.returns,
    )


def _failure(stored: _StoredFailure) -> Failure:
    first, begun = (_seconds(moment) if moment else 0.0 for moment in (stored.first, stored.begun))
    return Failure(stored.state, stored.cause, _seconds(stored.at), stored.attempts, first, stored.driver, begun)


def _seconds(moment: datetime) -> float:
    try:
        seconds = moment.astimezone(UTC).timestamp()
        format_time(seconds)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{moment.isoformat()} is outside the years 1 to 9999 of UTC") from error
    return seconds


def format_time(instant: float) -> str:
    """Return RFC 3339 text in UTC with milliseconds."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
