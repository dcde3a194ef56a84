"""The windows of a RolloutPolicy, as people write them, and what the upgrade decision follows of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Meta

from gpuward.crd.durations import Duration, parse_duration
from gpuward.crd.facts import DEFAULTED, Spec, cel
from gpuward.errors import PolicyError
from gpuward.model.windows import UTC_NAME, Window

MOST_WINDOWS: Final = 32
LONGEST: Final = 31 * 24 * 3600.0
"""Seconds that a window with a schedule may last each time."""
FIELDS_OF_SCHEDULE: Final = 5

WindowKind = Literal["Allow", "Deny"]
WindowTime: TypeAlias = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$")]

ONE_FORM: Final = cel(
    "has(self.schedule) == has(self.duration) && has(self.start) == has(self.end) && has(self.schedule) != has(self.start)",
    "a window has a schedule and a duration, or a start and an end",
)
_FORMS: Final = "write schedule and duration, or start and end"


class RolloutWindow(Spec, frozen=True, kw_only=True):
    """Say when nodes may start, or may not: by a schedule and how long it lasts each time, or once from a start to an end."""

    kind: Annotated[WindowKind, DEFAULTED] = "Allow"
    schedule: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    duration: Duration | None = None
    start: WindowTime | None = None
    end: WindowTime | None = None
    time_zone: Annotated[str, DEFAULTED, Meta(min_length=1, max_length=64)] = UTC_NAME


def window_problems(field: str, window: RolloutWindow) -> Iterator[PolicyError]:
    """Yield everything in a window that cannot be followed; `field` is where it is written."""
    try:
        followed(field, window)
    except PolicyError as problem:
        yield problem


def followed(field: str, window: RolloutWindow) -> Window:
    """Return a window as it is followed.

    Raises:
        PolicyError: it cannot be.
    """
    allows, zone = window.kind == "Allow", _zone(f"{field}.timeZone", window.time_zone)
    if window.schedule is not None and window.duration is not None and window.start is None and window.end is None:
        duration = parse_duration(f"{field}.duration", window.duration, PolicyError)
        if not 0 < duration <= LONGEST:
            raise PolicyError(f"{field}.duration", window.duration, "write one between 1s and 744h, or a start and an end")
        schedule = _schedule(f"{field}.schedule", window.schedule, zone)
        return Window(allows, schedule, duration, zone=window.time_zone)
    if window.start is not None and window.end is not None and window.schedule is None and window.duration is None:
        start, end = moment(f"{field}.start", window.start, zone), moment(f"{field}.end", window.end, zone)
        if end <= start:
            raise PolicyError(f"{field}.end", window.end, f"write a time after the start, {window.start}")
        return Window(allows, start=start, end=end, zone=window.time_zone)
    there = [name for name in ("schedule", "duration", "start", "end") if getattr(window, name) is not None]
    raise PolicyError(field, f"with {', '.join(there)}" if there else "with none of them", _FORMS)


def _zone(field: str, name: str) -> ZoneInfo:
    try:
        if re.fullmatch(r"UTC|[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", name) and name not in ("Local", "Factory"):
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no such zone, or one that is not readable
        pass
    raise PolicyError(field, name, "write the IANA name of a time zone, such as Europe/Berlin, or UTC")


def _schedule(field: str, text: str, zone: ZoneInfo) -> str:
    wish = "write five fields as for cron: minute, hour, day of month, month, day of week, such as 0 22 * * SAT"
    schedule = " ".join(text.split())
    if len(schedule.split()) != FIELDS_OF_SCHEDULE:
        raise PolicyError(field, text, wish)
    try:
        first = next(CronSim(schedule, datetime(2024, 1, 1, tzinfo=zone)), None)
    except (CronSimError, ValueError) as error:
        wrong = str(error).removeprefix("Bad ").replace("-", " ")
        raise PolicyError(field, text, f"correct its {wrong}: minute 0-59, hour 0-23, day of month 1-31 of a month that has it, "
                          "month 1-12 or JAN-DEC, day of week 0-7 or SUN-SAT") from None
    if first is None:
        raise PolicyError(field, text, "write a schedule that a day of the calendar meets")
    return schedule


def moment(field: str, text: str, zone: tzinfo) -> float:
    """Return a time, in seconds since 1970; one that does not say how far from UTC it is is read in a time zone.

    Raises:
        PolicyError: it is none.
    """
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        where = "UTC" if zone is UTC else "the window's timeZone"
        wish = f"write a time such as 2026-12-24T18:00, in {where}, or 2026-12-24T17:00Z"
        raise PolicyError(field, text, wish) from None
