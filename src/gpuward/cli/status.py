"""`gpuward status`: how far the fleet is, how the operands stand, and every node with its state and what it waits for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from shlex import quote
from typing import Any

import msgspec
from rich.console import ConsoleDimensions
from rich.console import Group as Lines
from rich.text import Text

from gpuward.cli.connect import connected
from gpuward.cli.garbage import look_as_usual
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look, Picture
from gpuward.cli.overview import missing_rights_of, operand_table, overview, warnings_of
from gpuward.cli.terminal import WIDE, console, draws, say, say_json, styled
from gpuward.cli.unknown import unknown_node
from gpuward.cli.values import values_at
from gpuward.cli.view import node_rows, node_table, whole_table
from gpuward.cli.waiting import Waiting
from gpuward.errors import InputError
from gpuward.model.record import format_time
from gpuward.model.selectors import is_selector, matches
from gpuward.ports import Observer
from gpuward.report.document import document
from gpuward.report.groups import Group
from gpuward.report.held import is_held
from gpuward.report.idle import waiting_for_operator
from gpuward.report.nodes import NodeReport, group_reports, node_reports
from gpuward.report.operands import operand_reports
from gpuward.report.takenup import not_taken_up
from gpuward.upgrade.at_its_time import at_its_time

LEASE_EVERY = 5.0
"""Seconds between two looks at the operator's Lease while nodes are watched."""
LEAST_ROWS = 3
MOST_ENDS = 8
"""Nodes of which it is said what follows when their time is up."""
MOST_DECIDED = 300
"""Nodes of a fleet that is decided about for each of those."""
TABLE_LINES = 3
"""Lines of the table beside its rows, and the one of the prompt."""


class Choice(msgspec.Struct, frozen=True):
    """Hold which nodes are asked for, and how they are shown."""

    output: str = "table"
    nodes: tuple[str, ...] = ()
    selector: str = ""
    failed: bool = False
    held: bool = False

    @property
    def is_structured(self) -> bool:
        """Tell whether a program is to read what is printed."""
        return self.output not in ("table", "wide")

    @property
    def asked_for(self) -> str:
        """Return by what nodes are chosen, as it was given."""
        given = ((self.selector, f"--selector {quote(self.selector)}"), (self.failed, "--failed"), (self.held, "--held"))
        return "".join(f" {option}" for asked, option in given if asked)

    def takes(self, report: NodeReport, picture: Picture) -> bool:
        """Tell whether a node is asked for."""
        node = picture.snapshot.nodes.get(report.node)
        if self.nodes and report.node not in self.nodes:
            return False
        if self.selector and not matches(self.selector, node.labels if node is not None else {}):
            return False
        asked = (self.failed and report.group is Group.FAILED) or (self.held and is_held(report))
        return asked or not (self.failed or self.held)

    def of(self, picture: Picture) -> list[NodeReport]:
        """Return the nodes that are asked for. Raises InputError for a name that no node has."""
        for name in self.nodes:
            if name not in picture.snapshot.nodes:
                raise unknown_node(name, list(picture.snapshot.nodes))
        reports = node_reports(picture.plan, picture.snapshot, picture.drivers)
        if picture.idle:
            reports = [waiting_for_operator(report) for report in reports]
        return [report for report in reports if self.takes(report, picture)]

    def check(self) -> None:
        """Refuse a selector that cannot be read. Raises InputError."""
        if self.selector and not is_selector(self.selector):
            raise InputError("--selector", self.selector, "write one as for kubectl, such as pool=a or 'zone in (x,y)'")


def show_status(kubeconfig: str | None, context: str | None, namespace: str, choice: Choice, *, watch: bool = False,
                wait: Waiting | None = None) -> None:
    """Print how the fleet stands: once, whenever it changes, or when it is done."""
    choice.check()
    if watch or wait is not None:
        look_as_usual()
    asyncio.run(_status(kubeconfig, context, namespace, choice, watch, wait))


async def _status(kubeconfig: str | None, context: str | None, namespace: str, choice: Choice, watch: bool,
                  wait: Waiting | None) -> None:
    async with connected(kubeconfig, context, lists_only=not watch and wait is None) as (client, _):
        look = Look(client, namespace)
        async with look.following() as observer:
            status = _Status(look, choice)
            if wait is None:
                first = await status.picture()
                first.refuse_elsewhere()
                await status.show(observer, watch, first)
                return
            try:
                await wait.over(look, observer)
            finally:
                await status.show(observer, watch=False)


class _Status:
    def __init__(self, look: Look, choice: Choice) -> None:
        self.look = look
        self.choice = choice
        self.console = console()
        self.leader = Leader("", 0.0)
        self._asked = float("-inf")

    async def picture(self) -> Picture:
        """Return the cluster as it is now."""
        await self._ask()
        return self.look.picture(self.leader)

    async def show(self, observer: Observer, watch: bool, first: Picture | None = None) -> None:
        """Print the plan, once or whenever it changes. The first time it is that of a picture, if there is one already."""
        if watch and not self.choice.is_structured and draws(self.console):
            await self._live(observer)
        await self._print(first or await self.picture())
        while watch:
            await observer.changed(None)
            observer.observe()
            await self._print(await self.picture())

    async def _live(self, observer: Observer) -> None:
        from rich.live import Live  # here, as few watch

        with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                observer.observe()
                live.update(Lines(*self._screen(await self.picture())), refresh=True)
                await observer.changed(1.0)

    async def _print(self, picture: Picture) -> None:
        if not self.choice.is_structured:
            for part in self._screen(picture):
                self.console.print(part, soft_wrap=isinstance(part, Text))
            return
        reports = self.choice.of(picture)
        if self.choice.output == "name":
            for report in reports:
                say(f"node/{report.node}")
            return
        told = as_json(picture, self.leader, reports)
        if self.choice.output == "json":
            say_json(told)
        else:
            say(values_at(self.choice.output, told))

    def _screen(self, picture: Picture) -> list[Any]:
        now = max(self.leader.now + time.monotonic() - self._asked, picture.now)
        return screen(picture, self.leader, self.choice, now, self.console.size if self.console.is_terminal else None)

    async def _ask(self) -> None:
        if time.monotonic() >= self._asked + LEASE_EVERY:
            self.leader = await self.look.leader()
            self._asked = time.monotonic()


def screen(picture: Picture, leader: Leader, choice: Choice, now: float, size: ConsoleDimensions | None = None) -> list[Any]:
    """Return what is shown, of the size of a terminal: one line for each node, those first that need somebody. Without a size, or
    where `wide` is asked for, all of it; above the nodes nothing is cut where all of it fits.
    """
    wide = choice.output == "wide"
    operands = operand_reports(picture.snapshot, picture.drivers)
    every = node_reports(picture.plan, picture.snapshot, picture.drivers)
    width = size.width if size is not None else None
    chosen, groups = choice.of(picture), group_reports(every, idle=picture.idle)
    lines: list[Any] = list(overview(picture, leader, groups, operands, width, whole=True))
    if not wide and size is not None and len(lines) + _height(chosen) > size.height:
        lines = list(overview(picture, leader, groups, operands, width))
    if wide and operands:
        lines += ["", *operand_table(operands, width or WIDE)]
    if not chosen:
        return [*lines, *([styled(f"no node matches{choice.asked_for}: what is told above is about all nodes")] if every else [])]
    rows = node_rows(_with_ends(chosen, picture), now)
    if wide:
        return [*lines, "", *whole_table(rows, width or WIDE)]
    most = max(LEAST_ROWS, size.height - len(lines) - TABLE_LINES - 1) if size is not None else None
    return [*lines, "", node_table(rows, most, width, _caption(chosen, most))]


def _height(reports: Sequence[NodeReport]) -> int:
    """Return how many lines all these nodes take, with the empty one above them and the prompt below."""
    return TABLE_LINES + 1 + len(reports) if reports else 1


def _with_ends(reports: Sequence[NodeReport], picture: Picture) -> list[NodeReport]:
    """Return the nodes with what follows for the first ones of them when the time comes until which they wait: at the end of the
    line, where there is room. For each the fleet is decided about once more.
    """
    if len(picture.plan.nodes) > MOST_DECIDED:
        return list(reports)
    under_way = [one for one in reports if one.group is Group.UNDER_WAY and one.until is not None][:MOST_ENDS]
    ends = {one.node: at_its_time(picture.snapshot, picture.upgrades(one.node), one.node, picture.plan)
            for one in under_way}
    return [_with_end(one, ends.get(one.node, "")) for one in reports]


def _with_end(one: NodeReport, then: str) -> NodeReport:
    if one.until is None or not then:
        return one
    told = f"{one.message}; if still so at {format_time(one.until)[11:19]}: {then.partition(',')[0]}"
    return msgspec.structs.replace(one, message=told)


def _caption(reports: Sequence[NodeReport], most: int | None) -> str:
    """Say which nodes are not shown."""
    hidden = Counter(report.group for report in reports[most:]) if most is not None else Counter[Group]()
    if not hidden:
        return ""
    told = ", ".join(f"{hidden[group]} {group}" for group in Group if group in hidden)
    return f"and {sum(hidden.values())} more: {told}; -o wide shows all"


def as_json(picture: Picture, leader: Leader, reports: Sequence[NodeReport] | None = None) -> dict[str, Any]:
    """Return what is known for programs; of the nodes in `reports` alone, if they are given."""
    told = document(picture.plan, picture.snapshot, picture.drivers, leader.as_json(), reports, picture.elsewhere)
    return told | {"problems": [*told["problems"], *missing_rights_of(picture), *picture.unsupported],
                   "warnings": [*not_taken_up(picture.drivers), *warnings_of(picture)]}
