"""Lines that fit a terminal: sentences end at words, and commands where a shell goes on reading."""

from __future__ import annotations

import re
import textwrap

_WORDS = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_COMMAND = re.compile(r"(?:^|(?<=: ))(?=(?:kubectl|gpuward|helm|sed) )")
"""Where a text turns into a command, which goes on to its end."""
_NARROW = 40
"""Columns below which nothing is wrapped."""


def wrapped(text: str, width: int, hang: int) -> list[str]:
    """Return a sentence in lines that are not wider than `width` columns, those after the first one indented by `hang`.

    A word that is wider stays whole.
    """
    if len(text) <= width or width < _NARROW:
        return [text]
    words = text.lstrip()
    return textwrap.wrap(words, width, initial_indent=text[:len(text) - len(words)], subsequent_indent=" " * hang,
                         break_long_words=False, break_on_hyphens=False)


def wrapped_command(command: str, width: int, indent: str) -> list[str]:
    """Return a command in lines that are not wider than `width` columns, and that are the same command once they are copied: all
    but the last one end in a backslash, and none within quotes.
    """
    words = _WORDS.findall(command)
    if len(indent) + len(command) <= width or width < _NARROW or " ".join(words) != command:
        return [indent + command]
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 3 <= width:  # with a blank before it, and blank and backslash after it
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(" " * (len(indent) + 2) + word)
    return lines


def wrapped_advice(text: str, width: int, indent: str) -> list[str]:
    """Return what to do in lines that are not wider than `width` columns; a command that ends it begins a line."""
    if len(indent) + len(text) <= width or width < _NARROW:
        return [indent + text]
    prose, command = text, ""
    if found := _COMMAND.search(text):
        prose, command = text[:found.start()].rstrip(), text[found.start():]
    lines = wrapped(indent + prose, width, len(indent)) if prose else []
    further = " " * len(indent) if prose else indent
    return [*lines, *(wrapped_command(command, width, further) if command else [])]
