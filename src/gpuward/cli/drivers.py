"""`gpuward drivers`: a table of the pools that nodes get their drivers in."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table

from gpuward.cli.connect import connected
from gpuward.cli.look import Look
from gpuward.cli.overview import headline
from gpuward.cli.status import Choice
from gpuward.cli.terminal import console, say_json, say_sentence, styled
from gpuward.model.abandoned import abandoned
from gpuward.model.snapshot import Snapshot
from gpuward.operands.rollout import MOST_NODES
from gpuward.report.groups import Group
from gpuward.report.pools import PoolReport, pool_reports
from gpuward.report.takenup import not_taken_up

GAP = 2
INDENT = 2
_WORD = re.compile(r"\S+ \(\d+\),?|\S+")
"""What is not broken in two: a word, with its count where it has one."""
TITLES = ("FROM", "PRECOMPILED FOR", "NODES", "TARGET", "LOADED", "KERNELS", "PROGRESS", "WAITS FOR")


def show_drivers(kubeconfig: str | None, context: str | None, namespace: str, choice: Choice) -> None:
    """Print the pools of the nodes that are asked for."""
    choice.check()
    asyncio.run(_drivers(kubeconfig, context, namespace, choice))


async def _drivers(kubeconfig: str | None, context: str | None, namespace: str, choice: Choice) -> None:
    async with connected(kubeconfig, context, lists_only=True) as (client, _):
        look = Look(client, namespace)
        async with look.following():
            picture = look.picture(await look.leader())
            picture.refuse_elsewhere()
    chosen = bool(choice.nodes or choice.selector or choice.failed or choice.held)
    pools = pool_reports(choice.of(picture), picture.snapshot, picture.drivers, idle=not chosen)
    if choice.output == "json":
        say_json({"pools": [pool.as_json() for pool in pools]})
        return
    shown = console()
    say_sentence(headline(picture), INDENT, shown)
    for told in not_taken_up(picture.drivers):
        say_sentence(told, INDENT, shown)
    if pools:
        shown.print(pool_table(pools, shown.width))
        for problem in problems_of(pools):
            say_sentence(problem, INDENT, shown)
    else:
        shown.print(styled("no node matches" if chosen else without_pools(picture.snapshot)), soft_wrap=True)


def problems_of(pools: Sequence[PoolReport]) -> list[str]:
    """Return why NVIDIADrivers cannot be followed, each once, and which are gone."""
    refused = dict.fromkeys(f"{pool.owner} cannot be followed: {pool.problem}" for pool in pools if pool.problem)
    return [*refused, *(pool.gone for pool in pools if pool.gone)]


def without_pools(snapshot: Snapshot) -> str:
    """Say that no node has a driver of a pool, and which have one all the same."""
    left = abandoned(snapshot)
    if not left:
        return "no node has a driver that is managed"
    more = f" and {len(left) - MOST_NODES} more" if len(left) > MOST_NODES else ""
    return f"no node has a driver that is served; one is still loaded on {', '.join(left[:MOST_NODES])}{more}"


def pool_table(pools: Sequence[PoolReport], width: int | None = None) -> Table:
    """Return the pools, one line each; a column that is empty for all of them is left out. Where `width` columns are too few for
    its longest words, each value has a line of its own: words are not broken.
    """
    places = Counter((pool.owner, pool.kernel) for pool in pools)
    rows = [_row(pool, alone=places[pool.owner, pool.kernel] == 1) for pool in pools]
    used = [number for number, title in enumerate(TITLES) if any(row[number] for row in rows)]
    least = [max(len(word) for text in (TITLES[number], *(row[number] for row in rows)) for word in _WORD.findall(text) or [""])
             for number in used]
    if width is not None and sum(least) + GAP * len(used) > width:
        return _listed(rows)
    table = Table(box=None, padding=(0, GAP, 0, 0))
    most = [max(len(text) for text in (TITLES[number], *(row[number] for row in rows))) for number in used]
    for number, room in zip(used, most if width is None else _shared(least, most, width - GAP * len(used)), strict=True):
        table.add_column(TITLES[number], overflow="fold", width=room)
    for row in rows:
        table.add_row(*(styled(row[number]) for number in used))
    return table


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Return how wide each column is, between what it needs and what it would fill. A table that Rich shrinks may stay wider
    than the terminal, whose edge then cuts the last column.
    """
    widths = list(least)
    while sum(widths) < room and (short := [at for at, width in enumerate(widths) if width < most[at]]):
        widths[min(short, key=lambda at: widths[at] / most[at])] += 1
    return widths


def _listed(rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for place, row in enumerate(rows):
        if place:
            table.add_row("", "")
        for title, text in zip(TITLES, row, strict=True):
            if text:
                table.add_row(title, styled(text))
    return table


def _row(pool: PoolReport, *, alone: bool) -> tuple[str, ...]:
    """Return the cells of a pool; one that is not `alone` with its name says which operating system it is for."""
    unwell = "".join(f" ({one.nodes} {one.group})" for one in pool.groups if one.group is Group.UNWELL)
    others = [f"{one.nodes} {one.group}" for one in pool.groups if one.group not in (Group.UP_TO_DATE, Group.UNWELL)]
    progress = ", ".join([f"{pool.up_to_date}/{len(pool.nodes)} up to date{unwell}", *others]) if pool.nodes else ""
    built_for = " ".join(filter(None, (pool.kernel, pool.system))) if pool.kernel else ""
    loaded, kernels = _counts(pool.loaded, "none"), _counts(pool.kernels, "unknown")
    system = pool.system if not (alone or pool.kernel) else ""
    owner = " ".join(filter(None, (pool.owner, system and f"on {system}", pool.gone and "(gone)")))
    return owner, built_for, str(len(pool.nodes)), pool.target, loaded, kernels, progress, _waits(pool)


def _waits(pool: PoolReport) -> str:
    return _counts(pool.held, "") or ("cannot be followed" if pool.problem else "")


def _counts(counted: Mapping[str, int], empty: str) -> str:
    return ", ".join(f"{value or empty} ({count})" for value, count in counted.items())
