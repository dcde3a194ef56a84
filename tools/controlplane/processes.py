"""Processes that outlive who started them: each leaves a file with its number and start time, and a log.

The start time tells a process from a later one that was given the same number, so a file that was left behind harms nobody.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

GRACE = 8.0
"""Seconds that processes are given to end by themselves."""
POLL = 0.05


class ProcessFailed(Exception):
    """Say in one line why the control plane is not as wanted."""


def start(run: Path, name: str, argv: Sequence[str]) -> None:
    """Start a program of its own session, with its output in `<name>.log`."""
    log = run / f"{name}.log"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    files = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    # kwok reads a configuration from its work directory, which would be one in the user's home.
    environment = os.environ | {"KWOK_WORKDIR": str(run / "kwok")}
    try:
        pid = os.posix_spawn(argv[0], list(argv), environment, file_actions=files, setsid=True)
    except OSError as error:
        raise ProcessFailed(f"{name} cannot be started: {error}") from error
    finally:
        os.close(output)
        os.close(nothing)
    (run / f"{name}.argv").write_text(json.dumps(argv))
    (run / f"{name}.pid").write_text(f"{pid} {_started(pid)}\n")


def restart(run: Path, name: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Kill a program that was started here, and start it again as it was started; `meanwhile` is called in between."""
    mark = run / f"{name}.pid"
    if running(run, name) is None:
        raise ProcessFailed(f"{name} does not run")
    began = mark.stat().st_mtime_ns
    if not _ends(run, name, signal.SIGKILL):
        raise ProcessFailed(f"{name} does not end")
    meanwhile()
    start(run, name, json.loads((run / f"{name}.argv").read_text()))
    # Others were started when it was there, and end before it does.
    os.utime(mark, ns=(began, began))


def running(run: Path, name: str) -> int | None:
    """Return the process number of a program that was started here and has not ended."""
    try:
        number, since = (run / f"{name}.pid").read_text().split()
        pid = int(number)
    except (OSError, ValueError):
        return None
    return pid if since == _started(pid) else None


def names(run: Path) -> list[str]:
    """Return the names of all programs that were started here and not stopped, in the order of their start."""
    files = sorted(run.glob("*.pid"), key=lambda path: path.stat().st_mtime_ns)
    return [path.stem for path in files]


def stop_all(run: Path) -> None:
    """End every process that was started here, the last one first: each may still need those that were there before it.

    One that does not end by itself is killed.
    """
    left = [name for name in reversed(names(run)) if not (_ends(run, name, signal.SIGTERM) or _ends(run, name, signal.SIGKILL))]
    if left:
        raise ProcessFailed(f"these do not end: {', '.join(left)}")
    for path in run.glob("*.pid"):
        path.unlink()


def _ends(run: Path, name: str, number: signal.Signals) -> bool:
    if (pid := running(run, name)) is not None:
        os.kill(pid, number)
    until = time.monotonic() + GRACE
    while running(run, name) is not None:
        if time.monotonic() > until:
            return False
        time.sleep(POLL)
    return True


def tail(run: Path, name: str, lines: int = 5) -> str:
    """Return the last lines of a program's output."""
    try:
        return "\n".join((run / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's own unit; empty when there is none or it has ended.

    The fields follow the command, which may contain anything, in brackets: proc_pid_stat(5). A process whose first thread has
    ended still has its ports until the others have, too.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return ""
    return "" if fields[0] in "ZX" and threads <= 1 else fields[19]
