"""Show a plan on a terminal: a table of nodes with their state and what each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from gpuward.cli.terminal import styled
from gpuward.model.explain import sentence
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.states import IN_PROGRESS, State

COLOURS: dict[State | None, str] = {
    State.DONE: "green",
    State.FAILED: "bold red",
    State.UPGRADE_REQUIRED: "yellow",
    None: "red",
}


class Row(NamedTuple):
    """Hold one node as it is shown."""

    node: str
    state: str
    since: str
    reason: str
    colour: str
    urgency: int


def node_rows(plan: Plan, now: float) -> list[Row]:
    """Return a row for each node, those under way first, then those that failed or wait, then the others."""
    rows = [_row(name, status, now) for name, status in plan.nodes.items()]
    return sorted(rows, key=lambda row: (row.urgency, row.node))


def _row(name: str, status: NodeStatus, now: float) -> Row:
    state = status.state
    if state in IN_PROGRESS:
        urgency = 0
    elif status.failed or state is None:
        urgency = 1
    else:
        urgency = 2 if status.hold is not None else 3
    reason = sentence(status.hold) if status.hold else ""
    colour = "cyan" if state in IN_PROGRESS else COLOURS.get(State.FAILED if status.failed else state, "default")
    label = str(State.FAILED) if status.failed else str(state) if state else (status.label or "unknown")
    return Row(name, label, age(now - status.since) if status.since else "", reason, colour, urgency)


def node_table(rows: Sequence[Row], most: int | None = None) -> Table:
    """Return the table; beyond `most` rows the rest is counted in the caption."""
    shown = rows if most is None or len(rows) <= most else rows[:most]
    left = len(rows) - len(shown)
    caption = f"and {left} more nodes" if left else None
    table = Table(caption=caption, caption_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("NODE", "STATE", "SINCE"):
        table.add_column(column, no_wrap=True)
    table.add_column("WAITS FOR", overflow="fold")
    for row in shown:
        table.add_row(styled(row.node), styled(row.state, row.colour), styled(row.since), styled(row.reason))
    return table


def age(seconds: float) -> str:
    """Return a duration as kubectl shows ages: 12s, 3m5s, 2h10m, 4d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    if whole < 172800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86400}d"
