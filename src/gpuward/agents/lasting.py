"""What is said of something that lasts: after some seconds, and then ever less often."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST: Final = 3.0
"""Seconds after which something is said."""
LONGEST: Final = 60.0
"""Seconds from one line to the next, at most; each takes twice as long as the one before."""


@contextmanager
def told_of(tell: Callable[[str], None], what: Callable[[], str]) -> Iterator[None]:
    """Say what something waits for while it lasts. It may be in a call that nothing else comes out of, so a thread says it."""
    done = threading.Event()

    def keep_telling() -> None:
        lasts, pause = 0.0, FIRST
        while not done.wait(pause):
            lasts, pause = lasts + pause, min(2 * pause, LONGEST)
            tell(f"waiting for the API server, for {lasts:g} s: {what()}")

    try:
        with suppress(RuntimeError):  # a node may have no room for one more thread, and the request is sent all the same
            threading.Thread(target=keep_telling, daemon=True).start()
        yield
    finally:
        done.set()
