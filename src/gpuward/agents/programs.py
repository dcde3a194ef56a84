"""Programs that an agent runs, none of which can hold it up: a wedged GPU keeps nvidia-smi from ending even by SIGKILL."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG: Final = 1
LONGEST: Final = 65536
"""Bytes of a program's output that are kept, its last ones."""
LOOK_EVERY: Final = 0.1
"""Seconds. What a program leaves behind may hold its output open: that it has ended is not seen there."""
GRACE: Final = 1.0
"""Seconds for a program that is killed; one that a device holds does not end then, and nobody waits for it."""


@dataclass(slots=True)
class Programs:
    """Run programs, and remember those that could not be killed."""

    _hung: dict[tuple[str, ...], subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _begun: dict[tuple[str, ...], subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    def run(self, called: Sequence[str], env: Mapping[str, str], timeout: float, enter: Callable[[], None] | None,
            ) -> tuple[int | None, bytes]:
        """Return how a program ended, None where its time was up, and what it said.

        Raises:
            OSError, subprocess.SubprocessError: it cannot be started.
        """
        key = tuple(called)
        if (before := self._hung.get(key)) is not None:
            if left := _left(before):  # a second one would hang beside it, and with each look one more
                return None, f"process {left}, which was started for the same before, cannot be killed".encode()
            del self._hung[key]
        until = time.monotonic() + timeout
        child = subprocess.Popen(called, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True, preexec_fn=enter)
        try:
            said = _listen(child, until)
        except BaseException:
            self._hung[key] = child
            _kill(child)  # and wait for it no longer: who is told to end has a second
            raise
        finally:
            if child.stdout is not None:
                child.stdout.close()
        if child.returncode is None:
            _kill(child)
            until = time.monotonic() + GRACE
            while _left(child):
                if time.monotonic() >= until:
                    self._hung[key] = child
                    break
                time.sleep(LOOK_EVERY / 5)
            return None, said
        return child.returncode, said

    def join(self, called: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[int | None, bytes, int]:
        """Return how a program ended that only the kernel can end, what it said, and its process. Where it has not ended in
        time the code is None; the next call with the same words waits on for it.

        Raises:
            OSError, subprocess.SubprocessError: it cannot be started.
        """
        key = tuple(called)
        child = self._begun.get(key)
        if child is None:
            child = self._begun[key] = subprocess.Popen(
                called, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_ends_with_its_parent)
        said = _listen(child, time.monotonic() + timeout)
        if child.returncode is not None:
            del self._begun[key]
            if child.stdout is not None:
                child.stdout.close()
        return child.returncode, said, child.pid


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _left(child: subprocess.Popen[bytes]) -> int:
    """Return a process of a program that is there still, 0 where none is: it may be a script, which ends before what it runs."""
    if child.poll() is None:
        return child.pid
    for each in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{each}/stat", "rb") as file:
            state, _, group, *_ = file.read().rpartition(b")")[2].split()
            if int(group) == child.pid and state not in (b"Z", b"X"):
                return int(each)
    return 0


def _ends_with_its_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _listen(child: subprocess.Popen[bytes], until: float) -> bytes:
    """Return what a program says until it ends or its time is up."""
    assert child.stdout is not None
    said, output, open_ = b"", child.stdout.fileno(), True
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if not open_:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(left)
            break
        if poll.poll(min(left, LOOK_EVERY) * 1000):
            more = os.read(output, LONGEST)
            said, open_ = (said + more)[-LONGEST:], bool(more)
        elif child.poll() is not None:
            break
    child.poll()
    return said
