"""How often Python looks for garbage: hardly ever in a command that is over in a moment."""

from __future__ import annotations

import gc
from typing import Final

USUAL: Final = gc.get_threshold()
SELDOM: Final = 50_000
"""Objects that are new when it looks. What is imported is most of what a command makes, and none of it is ever garbage: to look
through it as often as usual, and once more at the end, takes a third of the CPU time that `gpuward status` needs to begin."""


def look_seldom() -> None:
    """Look for garbage seldom."""
    gc.set_threshold(SELDOM)


def look_as_usual() -> None:
    """Look for garbage as usual from now on, and never in what is there now: what follows goes on for long."""
    gc.freeze()
    gc.set_threshold(*USUAL)


def leave() -> None:
    """Let the process end without a look through what is left."""
    gc.freeze()
