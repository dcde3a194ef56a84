"""Show nodes on a terminal: a table, one line each, of their state, their driver and what each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from gpuward.cli.ages import age
from gpuward.cli.layout import lay_out
from gpuward.cli.terminal import styled
from gpuward.report.groups import Group
from gpuward.report.nodes import NodeReport

COLOURS: dict[Group, str] = {
    Group.FAILED: "bold red",
    Group.HELD: "red",
    Group.NOT_READY: "red",
    Group.UNWELL: "red",
    Group.UNDER_WAY: "cyan",
    Group.STOPPED: "yellow",
    Group.WAITING: "yellow",
    Group.OLDER: "yellow",
    Group.UP_TO_DATE: "green",
}
NARROW = 32
"""Columns that the last one should have: others go where there are fewer."""
GAP = 2


class Row(NamedTuple):
    """Hold one node as it is shown."""

    node: str
    state: str
    driver: str
    since: str
    reason: str
    colour: str
    code: str = ""
    """The reason in a word: what is left of it on a narrow terminal."""


TITLES = ("NODE", "STATE", "DRIVER", "FOR", "WAITS FOR")
DROPPED = ("DRIVER", "FOR")
"""Columns that are left out on a narrow terminal, in this order."""


def node_rows(reports: Sequence[NodeReport], now: float) -> list[Row]:
    """Return a row for each node, in their order."""
    return [
        Row(one.node, one.shown, one.driver, age(now - one.since) if one.since else "-", one.waits,
            COLOURS.get(one.group, "default"), one.reason)
        for one in reports
    ]


def node_table(rows: Sequence[Row], most: int | None = None, width: int | None = None, caption: str = "") -> Table:
    """Return the table, each row on one line of `width` columns; without a width nothing is cut. Beyond `most` rows the rest is
    counted in the caption.
    """
    shown = rows if most is None or len(rows) <= most else rows[:most]
    left = len(rows) - len(shown)
    if left and not caption:
        caption = f"and {left} more node{'s' if left > 1 else ''}"
    table = Table(caption=styled(caption) if caption else None, caption_justify="left", box=None, padding=(0, GAP, 0, 0))
    titles, last = _columns(shown, width)
    for title in titles[:-1]:
        table.add_column(title, no_wrap=True)
    table.add_column(titles[-1], overflow="fold" if width is None else "ellipsis", no_wrap=width is not None)
    for row in shown:
        cells = dict(zip(TITLES, row, strict=False))
        cells["WAITS FOR"] = row.reason if last is None else cut(": ".join(filter(None, (row.code, row.reason))), last)
        table.add_row(*(styled(cells[title], row.colour if title == "STATE" else "") for title in titles))
    return table


def whole_table(rows: Sequence[Row], width: int) -> list[Text]:
    """Return the same in lines of `width` columns in which nothing is cut or left out."""
    titles = [title for title in TITLES if title != "DRIVER" or any(row.driver for row in rows)]
    shown = []
    for row in rows:
        cells = dict(zip(TITLES, row, strict=False))
        shown.append([styled(cells[title], row.colour if title == "STATE" else "") for title in titles])
    return lay_out(titles, shown, width)


def _columns(rows: Sequence[Row], width: int | None) -> tuple[list[str], int | None]:
    """Return the columns that fit, and how wide the last one is."""
    titles = [title for title in TITLES if title != "DRIVER" or any(row.driver for row in rows)]
    if width is None:
        return titles, None

    def left() -> int:
        used = (max([len(title), *(len(row[TITLES.index(title)]) for row in rows)]) + GAP for title in titles[:-1])
        return width - sum(used) - GAP

    for dropped in DROPPED:
        if left() < NARROW and dropped in titles:
            titles.remove(dropped)
    return titles, max(left(), 12)


def cut(text: str, width: int) -> str:
    """Return text in at most `width` characters, cut between two words."""
    if len(text) <= width:
        return text
    head = text[: width - 1]
    at = head.rfind(" ")
    return (head[:at] if at > width // 2 else head).rstrip(" ,;:") + "…"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many more there are: `a, b and 17 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
