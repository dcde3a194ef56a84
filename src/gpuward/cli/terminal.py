"""What goes to a terminal. All text passes `printable` here, as much of it comes from a cluster or from a recording.

A tenant who may create pods chooses names, annotations and messages; a recording's author chooses everything. With control
characters in them they could rewrite what the screen shows.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import click

from gpuward.cli.wrapping import wrapped
from gpuward.errors import ApiError, Unreachable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDE = 250
"""Columns of a table that goes to a file or another program."""


def printable(text: object) -> str:
    """Return text without anything that a terminal obeys instead of showing: such characters are shown as Python escapes.

    They are the control characters (line ends too), C1, overrides of the writing direction, what has no width, separators of
    lines, and halves of surrogate pairs, which cannot be written at all.
    """
    shown = str(text)
    return shown if shown.isprintable() else "".join(map(_visible, shown))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def say(text: object, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(printable(text), err=err)


def say_json(data: Any) -> None:
    """Print data for programs."""
    click.echo(as_json(data))


def as_json(data: Any) -> str:
    """Return exact JSON without anything that a terminal obeys: it has escapes of its own, which Python leaves out for DEL."""
    return json.dumps(data, default=str).replace("\x7f", "\\u007f")


def styled(text: object, style: str = "") -> Text:
    """Return text for rich, which neither it nor the terminal takes for markup."""
    from rich.text import Text  # here, as help and the version do without it

    return Text(printable(text), style=style)


def in_words(error: BaseException) -> str:
    """Return an error in one line, and whether the API server refused or nobody answered there."""
    text = " ".join(str(error).split())
    if isinstance(error, ApiError):
        return f"the API server refused ({error.status} {error.reason}): {text}"
    return f"the API server cannot be reached: {text}" if isinstance(error, Unreachable) else text


def console() -> Console:
    """Return a console that does not fold lines where nobody looks at a terminal. Give it `styled` texts only.

    With NO_COLOR it writes no bold text either, which rich leaves in.
    """
    from rich.console import Console

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    shown = Console(highlight=False, markup=False, emoji=False, color_system=colours)
    return shown if shown.is_terminal else Console(highlight=False, markup=False, emoji=False, color_system=colours, width=WIDE)


def draws(shown: Console) -> bool:
    """Tell whether a picture can be drawn over the one before: rich shows nothing of it on a terminal that cannot (TERM=dumb)."""
    return shown.is_terminal and not shown.is_dumb_terminal


def say_sentence(text: object, hang: int, out: Console | None = None) -> None:
    """Print a sentence, on a terminal in lines that end at words, those after the first one indented by `hang`; whoever reads it
    elsewhere may look for it as a whole.
    """
    out = out or console()
    shown = printable(text)
    for line in wrapped(shown, out.width, hang) if out.is_terminal else [shown]:
        out.print(styled(line), soft_wrap=True)


def say_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error that nobody expected; it may quote what a cluster said."""
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        print(printable(line), file=sys.stderr)
