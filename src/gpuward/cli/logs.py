"""Log lines as NVIDIA's operator writes them: one JSON object a line with level, ts, logger and msg, and our fields after."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import structlog

from gpuward.cli.terminal import as_json, printable
from gpuward.errors import InputError

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "panic": 50}
TIMES: Final[dict[str, Callable[[float], Any]]] = {
    "epoch": lambda now: now,
    "millis": lambda now: now * 1e3,
    "nano": lambda now: int(now * 1e9),
    "iso8601": lambda now: datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
    "rfc3339": lambda now: datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "rfc3339nano": lambda now: datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z"),
}
"""The time encodings that `--zap-time-encoding` knows."""

Event = MutableMapping[str, Any]


def configure(write: Callable[[str], object], now: Callable[[], float], *, level: str = "info", times: str = "rfc3339",
              readable: bool = False) -> None:
    """Send all log lines to `write`, each with its line end.

    `level` is one of LEVELS or a number as zap has it (larger: more is logged); `readable` writes text instead of JSON.

    Raises:
        InputError: the level or the time encoding is not known.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _stamp(now, known_times(times)),
            _as_text if readable else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold(level)),
        logger_factory=lambda *_: _Writer(write),
        cache_logger_on_first_use=False,
    )


def known_times(encoding: str) -> Callable[[float], Any]:
    """Return how an encoding writes a time.

    Raises:
        InputError: there is no such encoding.
    """
    if encoding not in TIMES:
        raise InputError("--zap-time-encoding", encoding, f"use one of {', '.join(TIMES)}")
    return TIMES[encoding]


def threshold(level: str) -> int:
    """Return the number of a level from which on lines are logged.

    Raises:
        InputError: there is no such level.
    """
    if level in LEVELS:
        return LEVELS[level]
    if level.isdigit() and int(level) > 0:
        return LEVELS["debug"]
    raise InputError("--zap-log-level", level, f"use one of {', '.join(LEVELS)}, or a number above 0 for more detail")


def _stamp(now: Callable[[], float], encode: Callable[[float], Any]) -> Callable[[Any, str, Event], Event]:
    def add(_: Any, __: str, event: Event) -> Event:
        head = {"level": event.pop("level", "info"), "ts": encode(now())}
        if "source" in event:
            head["logger"] = event.pop("source")
        return {**head, "msg": event.pop("event", ""), **event}

    return add


def _as_json(_: Any, __: str, event: Event) -> str:
    return as_json(event)


def _as_text(_: Any, __: str, event: Event) -> str:
    rest = {key: value for key, value in event.items() if key not in ("level", "ts", "logger", "msg")}
    fields = f"\t{as_json(rest)}" if rest else ""
    told = printable(event["msg"])
    return f"{event['ts']}\t{event['level'].upper()}\t{event.get('logger', '')}\t{told}{fields}"


class _Writer:
    """Hand finished lines on; every level is a method, as structlog wants it."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def msg(self, line: str) -> None:
        self._write(line + "\n")

    debug = info = warning = error = critical = exception = log = msg


def to_stream(stream: TextIO) -> Callable[[str], object]:
    """Return a writer to a stream that flushes each line."""

    def write(line: str) -> None:
        stream.write(line)
        stream.flush()

    return write
