"""Read what others may have written: JSON and times in annotations, of which nobody says what is in them.

Whatever cannot be read is a ValueError, and a time that can be read is one that arithmetic and formatting can go on with.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec

T = TypeVar("T")
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without a zone would be read in the zone of whoever reads it."""

EARLIEST: Final = 0.001
"""The earliest time that is read, in seconds since the epoch: 0 stands for no time at all."""
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""The latest: some centuries can be added to it."""
_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
MOST: Final = 1_000_000
"""The largest count that is read: one more makes no difference, and no number too large to be written."""

MOST_DIGITS: Final = 15


def read_json(text: str | bytes, kind: type[T]) -> T:
    """Return the value that JSON text holds.

    Raises:
        ValueError: the text is no JSON of this type, or nested too deeply; the message says which.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_time(text: str) -> float:
    """Return the seconds since the epoch that RFC 3339 text with a zone stands for.

    Raises:
        ValueError: the text is no such time.
    """
    return seconds(msgspec.convert(text, Moment))


def seconds(moment: datetime) -> float:
    """Return a time in seconds since the epoch, brought to what can be reckoned with.

    Raises:
        ValueError: it is in no year of UTC that can be written.
    """
    try:
        instant = moment.astimezone(UTC).timestamp()
        datetime.fromtimestamp(instant, UTC)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{moment.isoformat()} is outside the years 1 to 9999 of UTC") from error
    return min(max(instant, EARLIEST), LATEST)


def read_count(text: str) -> int:
    """Return a number that Kubernetes counts up from 1; 0 for what is none, or has more digits than such a number ever gets."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else 0


def format_time(instant: float) -> str:
    """Return RFC 3339 text in UTC with milliseconds; a time that nobody will live to see is the last one that can be written."""
    return datetime.fromtimestamp(min(instant, _LAST), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
