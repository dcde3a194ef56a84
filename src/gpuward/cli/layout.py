"""Tables in which names and commands stay whole, however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from gpuward.cli.terminal import styled
from gpuward.cli.wrapping import wrapped

GAP = 2
NARROW = 32
"""Columns below which a sentence has lines of its own."""
INDENT = 4


def lay_out(titles: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    """Return rows in lines of at most `width` columns. The last cell of each is a sentence: it goes on in its column, or below
    the others where they leave it little room. Where they do not fit beside each other, each has its own line with its title.
    """
    widths = [max(len(title), *(row[number].cell_len for row in rows)) if rows else len(title)
              for number, title in enumerate(titles[:-1])]
    used = sum(widths) + GAP * len(widths)
    if used - GAP > width:
        return list(_listed(titles, rows, width))
    below = width - used < NARROW
    head = [*titles[:-1], *([] if below else titles[-1:])]
    shown = [styled("".join(title.ljust(room + GAP) for title, room in zip(head, [*widths, 0], strict=False)).rstrip(), "bold")]
    for row in rows:
        line = _beside(row[:-1], widths)
        told = row[-1].plain
        lines = wrapped(" " * (INDENT if below else used) + told, width, INDENT if below else used) if told else []
        if lines and not below:
            line.append(lines.pop(0)[used:])
        line.rstrip()
        shown += [line, *map(styled, lines)]
    return shown


def _beside(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, room in zip(cells, widths, strict=True):
        line.append_text(cell).append(" " * (room + GAP - cell.cell_len))
    return line


def _listed(titles: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> Iterator[Text]:
    hang = max(map(len, titles)) + GAP
    for place, row in enumerate(rows):
        if place:
            yield Text()
        for title, cell in zip(titles, row, strict=True):
            first, *further = wrapped(" " * hang + cell.plain, width, hang)
            if cell.plain:
                yield styled(title.ljust(hang), "bold").append(first[hang:], style=cell.style)
                yield from (styled(line) for line in further)
