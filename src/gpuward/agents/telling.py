"""What an agent says: one line per decision, and at its end one line for who looks at the pod."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""Where the kubelet reads a container's last words, by default."""
LONGEST: Final = 4096
"""Bytes of them that it keeps."""
LEFT_OUT: Final = " ... "


def printable(text: str) -> str:
    """Return a text in one line that does nothing to a terminal: processes and programs give themselves names and words."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in " ".join(text.split()))


def within_bytes(text: str, most: int) -> str:
    """Return a text that has at most so many bytes: of a longer one the middle is left out. Its end may say what became of it."""
    whole = text.encode(errors="replace")
    if len(whole) <= most:
        return text
    half = (most - len(LEFT_OUT)) // 2
    return f"{whole[:half].decode(errors='ignore')}{LEFT_OUT}{whole[-half:].decode(errors='ignore')}"


def with_notes(error: BaseException) -> str:
    """Return what an error says, and after it what was done about it."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


@dataclass(slots=True)
class Teller:
    """Print lines with their time. What stays as it is is said once."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    termination_log: Path = TERMINATION_LOG
    _last: str = field(default="", init=False)

    def say(self, line: str) -> None:
        """Print a line, unless it is the one that was said last."""
        if line == self._last:
            return
        self._last = line
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            self.stream.write(f"{now} {printable(line)}\n")  # in one piece, since threads may say something, too
            self.stream.flush()
        except (OSError, ValueError):  # nobody listens any more: the node is given back all the same
            self._fall_silent()

    def _fall_silent(self) -> None:
        # What is left in the stream's buffer would turn the exit code into 120.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def leave(self, line: str) -> None:
        """Print why the agent ends, and leave it where the kubelet reads it, if there is such a place."""
        try:
            if self.termination_log.exists():
                self.termination_log.write_bytes(within_bytes(printable(line), LONGEST).encode())
        except OSError as error:
            self.say(f"the termination message could not be left: {error}")
        self.say(line)

    def leave_defect(self, error: Exception) -> None:
        """Print where an agent failed that should not have, and leave in one line what it was."""
        self.say("".join(traceback.format_exception(error)))
        self.leave(f"defect of gpuward's: {type(error).__name__}: {with_notes(error)}")
