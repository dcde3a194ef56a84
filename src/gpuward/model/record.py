"""What gpuward remembers about a node's upgrade: one JSON annotation, `gpuward.io/driver-upgrade`.

It is written in the same patch as the change that it belongs to, so a new leader knows all that the old one knew. Example:

    {"state":"pod-deletion-required","since":"2026-01-02T03:04:05.000Z","started":"2026-01-02T03:04:05.000Z",
     "target":"6f9c7d5b4","cordon":"gpuward"}
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from gpuward.model.states import State


class CordonOwner(StrEnum):
    """Say who made a node unschedulable."""

    GPUWARD = "gpuward"
    OTHER = "other"


class Failure(msgspec.Struct, frozen=True):
    """Remember why a step failed, and which one it was."""

    state: State
    cause: str
    at: float


class Record(msgspec.Struct, frozen=True):
    """Hold gpuward's memory of one node's upgrade. Times are seconds since the epoch."""

    state: State = State.UNKNOWN
    """The label as gpuward last wrote it; a different label was set by somebody else."""
    since: float = 0.0
    """When that state was entered."""
    started: float = 0.0
    """When the node was last admitted."""
    target: str = ""
    """Revision hash of the driver DaemonSet that the node was last sent to."""
    cordon: CordonOwner | None = None
    forced: bool = False
    """Whether somebody asked for this upgrade though the driver is in step: by label, by annotation, or for a safe load."""
    failure: Failure | None = None


class _StoredFailure(msgspec.Struct, frozen=True):
    state: State
    cause: str
    at: datetime


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    state: State
    since: datetime
    started: datetime | None = None
    target: str = ""
    cordon: CordonOwner | None = None
    forced: bool = False
    failure: _StoredFailure | None = None


def encode_record(record: Record) -> str:
    """Return the annotation's JSON text; times have milliseconds and are in UTC."""
    failure = record.failure
    stored: dict[str, Any] = {
        "state": record.state,
        "since": format_time(record.since),
        "started": format_time(record.started) if record.started else None,
        "target": record.target or None,
        "cordon": record.cordon,
        "forced": record.forced or None,
        "failure": failure and {"state": failure.state, "cause": failure.cause, "at": format_time(failure.at)},
    }
    return msgspec.json.encode({key: value for key, value in stored.items() if value is not None}).decode()


def decode_record(text: str) -> Record:
    """Return the record that an annotation holds.

    Raises:
        ValueError: the text is not such a record; the message says where.
    """
    stored = msgspec.json.decode(text, type=_Stored)
    failure = stored.failure
    return Record(
        state=stored.state,
        since=stored.since.timestamp(),
        started=stored.started.timestamp() if stored.started else 0.0,
        target=stored.target,
        cordon=stored.cordon,
        forced=stored.forced,
        failure=Failure(failure.state, failure.cause, failure.at.timestamp()) if failure else None,
    )


def format_time(instant: float) -> str:
    """Return RFC 3339 text in UTC with milliseconds."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
