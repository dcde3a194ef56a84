"""What gpuward remembers about a node's upgrade: one JSON annotation, `gpuward.io/driver-upgrade`.

It is written in the same patch as the change that it belongs to, so a new leader knows all that the old one knew. Example:

    {"state":"pod-deletion-required","since":"2026-01-02T03:04:05.000Z","started":"2026-01-02T03:04:05.000Z",
     "target":"6f9c7d5b4","cordon":"gpuward"}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from gpuward.model.course import Course, StoredCourse, course_of, stored_course
from gpuward.model.reading import MOST, Moment, read_json, seconds
from gpuward.model.reading import format_time as format_time
from gpuward.model.states import State
from gpuward.model.undrainable import GivenUp

AGREEMENT = 2.0
"""Seconds by which the clocks of two leaders may differ though both agree with the API server's, which tells whole seconds."""


UNTOLD_DRIVER: Final = "unknown"
"""Stands for the digest of a driver that is loaded and has none, as those of older operators: it is no driver's."""


class CordonOwner(StrEnum):
    """Say who made a node unschedulable."""

    GPUWARD = "gpuward"
    OTHER = "other"


class Failure(msgspec.Struct, frozen=True, gc=False):
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
    intruded: bool = False
    """Whether it failed for pods alone that came after the node was admitted: who makes them must not stop a rollout."""
    untried: bool = False
    """Whether no attempt so far came to the new driver: an earlier driver pod had yet to go, or the machine was away before the
    new one began."""
    returning: str = ""
    """The uid of a controller for whose pods it failed, as these tolerate the cordon and came back each time."""

    @property
    def concerns_driver(self) -> bool:
        """Tell whether it may be the new driver for which the node failed."""
        return not (self.intruded or self.untried)


class Record(msgspec.Struct, frozen=True, gc=False):
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
    """Revision hash of the driver DaemonSet that the node was last sent to; or its placement, where it is moved to another."""
    driver: str = ""
    """The NVIDIADriver within whose limits the node was admitted: it counts there although it was moved to another one since."""
    cordon: CordonOwner | None = None
    changing: float = 0.0
    """Since when its driver is about to go, by a change of its labels or with the DaemonSet of a host: under our cordon, or under
    somebody else's that stays. Such a node has no upgrade.
    """
    forced: bool = False
    """Whether the driver is restarted or validated anew even if in step: somebody asked for it, or broke an upgrade off."""
    failure: Failure | None = None
    paused: float = 0.0
    """Since when upgrades are off while this one is under way; 0 while they are on. The state's clock stands still meanwhile.
    Of a failed node: since when upgrades are off that took its label."""
    restart: str = ""
    """The driver configuration digest for which only the driver pod is restarted, as its driver is the same: workloads stay."""
    returns: int = 0
    """How often the node had to be emptied again because pods that use its GPUs came back before the driver was replaced."""
    loaded: str = ""
    """The driver configuration digest of the driver pod that was ready last, or UNTOLD_DRIVER where it had none: that driver
    stays loaded while pods use it, also without its pod."""
    lifted: int = 0
    """How often somebody lifted our cordon since the node was admitted."""
    stopping: float = 0.0
    """Since when what offers the node's GPUs was asked to stop, as its driver is about to go; 0 once that may come back."""
    waiting: float = 0.0
    """Since when the node waits until nobody uses its GPUs, also of one that is under way by now; 0 for any other, for one that
    may not start yet whether they are used or not, and where somebody asked for the upgrade by hand."""
    proven: float = 0.0
    """When the node was done first with the driver that it was sent to last, if it was sent to that again since; else 0."""
    idle: float = 0.0
    """Since when nobody uses the GPUs of such a node that waits; 0 while somebody does."""
    domain: str = ""
    """The label, as KEY=VALUE, of the domain that the node was in when it served last."""
    wave_labels: tuple[str, ...] = ()
    """The labels by which waves choose nodes, as KEY=VALUE, as the node had them when it was admitted."""
    gangs: tuple[tuple[str, float], ...] = ()
    """The gangs that had pods here when the node was admitted for this driver, each with when that was last."""
    given_up: GivenUp | None = None
    """That its pods could not be moved, so that it keeps its driver."""
    course: Course | None = None
    """How the upgrade that is under way has gone so far; None where none is, or nothing is known of it."""


def only_remembers(record: Record) -> bool:
    """Tell whether a record holds nothing but what is known of the driver of a node that left the fleet."""
    return record.state is State.UNKNOWN and record.cordon is None


def left_unvalidated(record: Record) -> bool:
    """Tell whether a record only remembers that a node left the fleet before its driver was validated."""
    return only_remembers(record) and record.forced


class _StoredFailure(msgspec.Struct, frozen=True, gc=False):
    state: State
    cause: str
    at: Moment
    attempts: Annotated[int, msgspec.Meta(ge=1)] = 1
    first: Moment | None = None
    driver: str = ""
    begun: Moment | None = None
    intruded: bool = False
    untried: bool = False
    returning: str = ""


class _StoredGivenUp(msgspec.Struct, frozen=True, gc=False):
    at: Moment
    cause: str
    quarantined: bool = False


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    state: State
    since: Moment
    started: Moment | None = None
    pods: tuple[str, ...] | None = None
    target: str = ""
    driver: str = ""
    cordon: CordonOwner | None = None
    changing: Moment | None = None
    forced: bool = False
    failure: _StoredFailure | None = None
    paused: Moment | None = None
    restart: str = ""
    returns: Annotated[int, msgspec.Meta(ge=0)] = 0
    loaded: str = ""
    lifted: Annotated[int, msgspec.Meta(ge=0)] = 0
    domain: str = ""
    stopping: Moment | None = None
    waiting: Moment | None = None
    asked: Moment | None = None
    """The same, as it was called first."""
    idle: Moment | None = None
    proven: Moment | None = None
    wave_labels: tuple[str, ...] = msgspec.field(default=(), name="waveLabels")
    gangs: dict[str, Moment] = {}
    given_up: _StoredGivenUp | None = msgspec.field(default=None, name="givenUp")
    course: StoredCourse | None = None


def encode_record(record: Record) -> str:
    """Return the annotation's JSON text; times have milliseconds and are in UTC."""
    failure = record.failure
    stored: dict[str, Any] = {
        "state": record.state,
        "since": format_time(record.since),
        "started": format_time(record.started) if record.started else None,
        "pods": record.pods,
        "target": record.target or None,
        "driver": record.driver or None,
        "cordon": record.cordon,
        "changing": format_time(record.changing) if record.changing else None,
        "forced": record.forced or None,
        "failure": failure and _stored(failure),
        "paused": format_time(record.paused) if record.paused else None,
        "restart": record.restart or None,
        "returns": record.returns or None,
        "loaded": record.loaded or None,
        "lifted": record.lifted or None,
        "domain": record.domain or None,
        "stopping": format_time(record.stopping) if record.stopping else None,
        "waiting": format_time(record.waiting) if record.waiting else None,
        "idle": format_time(record.idle) if record.idle else None,
        "proven": format_time(record.proven) if record.proven else None,
        "waveLabels": record.wave_labels or None,
        "gangs": {gang: format_time(at) for gang, at in record.gangs} or None,
        "givenUp": record.given_up and _stored_given_up(record.given_up),
        "course": record.course and stored_course(record.course),
    }
    return msgspec.json.encode({key: value for key, value in stored.items() if value is not None}).decode()


def _stored_given_up(found: GivenUp) -> dict[str, Any]:
    stored = {"at": format_time(found.at), "cause": found.cause}
    return stored | ({"quarantined": True} if found.quarantined else {})


def _stored(failure: Failure) -> dict[str, Any]:
    stored = {"state": failure.state, "cause": failure.cause, "at": format_time(failure.at), "attempts": failure.attempts}
    times = {key: format_time(at) for key, at in (("first", failure.first), ("begun", failure.begun)) if at}
    more = {"driver": failure.driver, "intruded": failure.intruded, "untried": failure.untried, "returning": failure.returning}
    return stored | times | {key: value for key, value in more.items() if value}


def decode_record(text: str) -> Record:
    """Return the record that an annotation holds; times and counts are brought to what can be reckoned with.

    Raises:
        ValueError: the text is not such a record; the message says where.
    """
    stored = read_json(text, _Stored)
    failure, waiting = stored.failure, stored.waiting or stored.asked
    return Record(
        state=stored.state,
        since=seconds(stored.since),
        started=seconds(stored.started) if stored.started else 0.0,
        pods=stored.pods,
        target=stored.target,
        driver=stored.driver,
        cordon=stored.cordon,
        changing=seconds(stored.changing) if stored.changing else 0.0,
        forced=stored.forced,
        failure=_failure(failure) if failure else None,
        paused=seconds(stored.paused) if stored.paused else 0.0,
        restart=stored.restart,
        returns=min(stored.returns, MOST),
        loaded=stored.loaded,
        lifted=min(stored.lifted, MOST),
        domain=stored.domain,
        stopping=seconds(stored.stopping) if stored.stopping else 0.0,
        waiting=seconds(waiting) if waiting else 0.0,
        idle=seconds(stored.idle) if stored.idle else 0.0,
        proven=seconds(stored.proven) if stored.proven else 0.0,
        wave_labels=stored.wave_labels,
        gangs=tuple((gang, seconds(at)) for gang, at in stored.gangs.items()),
        given_up=_given_up(stored.given_up) if stored.given_up is not None else None,
        course=course_of(stored.course) if stored.course is not None else None,
    )


def _given_up(stored: _StoredGivenUp) -> GivenUp:
    return GivenUp(seconds(stored.at), stored.cause, stored.quarantined)


def not_ahead(record: Record, now: float) -> Record:
    """Return a record whose times are past: what was written by a clock that was ahead counts from now on."""
    failure, course, given_up = record.failure, record.course, record.given_up
    failed = (failure.at, failure.first, failure.begun) if failure else ()
    latest = max(record.since, record.started, record.paused, record.changing, record.stopping, record.waiting, record.idle,
                 record.proven, *failed, *(at for _, at in record.gangs), given_up.at if given_up else 0.0,
                 *((course.began, course.out) if course else ()))
    if latest <= now + AGREEMENT:
        return record
    if failure is not None:
        at, first, begun = (min(moment, now) for moment in (failure.at, failure.first, failure.begun))
        failure = msgspec.structs.replace(failure, at=at, first=first, begun=begun)
    return msgspec.structs.replace(
        record, since=min(record.since, now), started=min(record.started, now), paused=min(record.paused, now), failure=failure,
        waiting=min(record.waiting, now), idle=min(record.idle, now), proven=min(record.proven, now),
        changing=min(record.changing, now), stopping=min(record.stopping, now),
        gangs=tuple((gang, min(at, now)) for gang, at in record.gangs),
        course=course and course.not_ahead(now),
        given_up=given_up and msgspec.structs.replace(given_up, at=min(given_up.at, now)),
    )


def _failure(stored: _StoredFailure) -> Failure:
    first, begun = (seconds(moment) if moment else 0.0 for moment in (stored.first, stored.begun))
    attempts, at = min(stored.attempts, MOST), seconds(stored.at)
    return Failure(
        stored.state, stored.cause, at, attempts, first, stored.driver, begun, stored.intruded, stored.untried,
        stored.returning)
