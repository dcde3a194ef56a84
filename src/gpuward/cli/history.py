"""`gpuward history`: the rollouts that the nodes remember, and one of them node by node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rich.table import Table

from gpuward.cli.ages import age
from gpuward.cli.connect import connected
from gpuward.cli.layout import GAP
from gpuward.cli.rollouts import all_nodes, time_of
from gpuward.cli.terminal import console, say_json, styled
from gpuward.errors import InputError
from gpuward.model.record import format_time
from gpuward.report.rollouts import UNDER_WAY, NodeUpgrade, PastRollout, chosen, past_rollouts

NOTHING: Final = "no node remembers an upgrade"
TITLES: Final = ("ROLLOUT", "POLICY", "FROM", "TO", "BACK FROM", "ASKED BY", "NODES", "FAILED", "TOOK", "EVICTED",
                 "GPU TIME OUT", "WORK LOST")
DROPPED: Final = ("ASKED BY", "POLICY", "WORK LOST", "EVICTED", "FROM", "GPU TIME OUT")
"""Columns that are left out where there is no room, in this order; `gpuward history ROLLOUT` says all of it."""
NODE_TITLES: Final = (
    "NODE", "OUTCOME", "FAILURES", "BEGAN", "OUT", "JOBS", "EVICTION", "DRIVER", "VALIDATION", "EVICTED", "LOST")
NODE_DROPPED: Final = ("BEGAN", "LOST", "EVICTED", "FAILURES", "JOBS")
_SECOND: Final = 19
"""Characters of a time in RFC 3339 to the second."""


def show_history(kubeconfig: str | None, context: str | None, rollout: str, output: str) -> None:
    """Print all rollouts, or one with its nodes. Raises InputError for one that no node remembers."""
    asyncio.run(_history(kubeconfig, context, rollout, output))


async def _history(kubeconfig: str | None, context: str | None, name: str, output: str) -> None:
    async with connected(kubeconfig, context) as (client, _):
        nodes = await all_nodes(client)
        rollouts = past_rollouts(nodes, time_of(client))
    one = chosen(rollouts, name) if name else None
    if name and one is None:
        known = ", ".join(each.name for each in rollouts[:3])
        fix = f"name one that nodes remember, such as {known}" if known else f"leave it out: {NOTHING}"
        raise InputError("ROLLOUT", name, fix)
    if output == "json":
        say_json(one.as_json(nodes=True) if one is not None else {"rollouts": [each.as_json(nodes=False) for each in rollouts]})
        return
    shown = console()
    width = shown.width if shown.is_terminal else None
    if one is None:
        shown.print(rollout_table(rollouts, width) if rollouts else styled(NOTHING))
        return
    for line in summary(one):
        shown.print(styled(line), soft_wrap=width is None)
    shown.print(node_table(one.upgrades, width))


def rollout_table(rollouts: Sequence[PastRollout], width: int | None = None) -> Table:
    """Return the rollouts, one line each, in at most `width` columns."""
    return _table(TITLES, [_row(one) for one in rollouts], DROPPED, width)


def _row(one: PastRollout) -> tuple[str, ...]:
    failed = f"{one.outcomes.get('failed', 0)}" + (f" ({one.failures}x)" if one.failures else "")
    back = f"{one.back}, {one.changed}/{len(one.upgrades)} changed" if one.back else ""
    return (one.name, one.policy, _versions(one), one.to or "?", back, ", ".join(one.asked), str(len(one.upgrades)), failed,
            _took(one), str(one.evicted), gpu_time(one.gpu_seconds), gpu_time(one.lost))


def _versions(one: PastRollout) -> str:
    first = next(iter(one.before), "?")
    return f"{first} +{len(one.before) - 1}" if len(one.before) > 1 else first


def _took(one: PastRollout) -> str:
    return age(one.ended - one.began) if one.ended is not None else UNDER_WAY


def summary(one: PastRollout) -> list[str]:
    """Return what is said of a rollout above its nodes."""
    ended = f" to {format_time(one.ended)}, {_took(one)}" if one.ended is not None else f", {UNDER_WAY}"
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in one.outcomes.items())
    before = ", ".join(f"{version} ({count})" for version, count in one.before.items()) or "not known"
    failures = f"; {one.failures} failure{'s' if one.failures > 1 else ''}" if one.failures else ""
    rows = [
        ("ROLLOUT", f"{one.name} of {one.policy}"),
        ("TIME", f"{format_time(one.began)}{ended}"),
        ("FROM", before),
        ("TO", f"{one.to or 'not known'}{_taken_back(one)}"),
        ("ASKED BY", ", ".join(one.asked) or "not known"),
        ("NODES", f"{len(one.upgrades)}: {outcomes}{failures}"),
        ("PODS", f"{one.evicted} evicted"),
        ("GPU TIME", f"{gpu_time(one.gpu_seconds)} out of service, {gpu_time(one.lost)} of work lost at most"),
    ]
    return [f"{title:<10}{text}" for title, text in rows]


def _taken_back(one: PastRollout) -> str:
    if not one.back:
        return ""
    nodes = len(one.upgrades)
    return f", taken back from {one.back}: {one.changed} of {nodes} node{'s' if nodes > 1 else ''} had been changed"


def node_table(upgrades: Sequence[NodeUpgrade], width: int | None = None) -> Table:
    """Return the nodes of a rollout, one line each, in at most `width` columns."""
    return _table(NODE_TITLES, [_node_row(one) for one in upgrades], NODE_DROPPED, width)


def _node_row(one: NodeUpgrade) -> tuple[str, ...]:
    past = one.past
    failures = f"{past.failures}, last in {past.failed_in or 'an unknown state'}" if past.failures else ""
    jobs, emptied, driver, validated = (age(each) for each in past.spent)
    return (one.node, one.outcome, failures, format_time(past.began)[:_SECOND] + "Z", age(past.out), jobs, emptied, driver,
            validated, str(past.evicted), gpu_time(past.lost))


def gpu_time(seconds: float) -> str:
    """Return GPU-seconds in hours of one GPU."""
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours >= 100 else f"{hours:.1f} h"


def _table(titles: Sequence[str], rows: Sequence[tuple[str, ...]], dropped: Sequence[str], width: int | None) -> Table:
    used = [number for number, title in enumerate(titles) if any(row[number] for row in rows)]

    def taken() -> int:
        return sum(max(len(titles[number]), *(len(row[number]) for row in rows)) + GAP for number in used)

    for title in dropped:
        if width is not None and taken() > width and titles.index(title) in used:
            used.remove(titles.index(title))
    table = Table(box=None, padding=(0, GAP, 0, 0))
    for number in used:
        least = max(len(titles[number]), *(len(row[number]) for row in rows)) if number else None
        table.add_column(titles[number], no_wrap=True, overflow="ellipsis", min_width=least)
    for row in rows:
        table.add_row(*(styled(row[number]) for number in used))
    return table
