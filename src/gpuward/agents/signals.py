"""The signals that tell an agent to end, kept until it can act on them. This is imported before all else, so it needs little."""

from __future__ import annotations

import signal
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def hold_signals() -> None:
    """Keep what tells the agent to end.

    Without a handler a process ends at once, and the first one of a container does not hear of it at all.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def release_signals() -> None:
    """Take what was kept, and what comes from now on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def await_signal() -> None:
    """Wait until one is kept. A handler could miss one that comes just before it begins to wait."""
    signal.sigwait(ENDING)
