"""`gpuward plan`: what the next pass of the operator would do, and in which order all nodes have their turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from gpuward.cli.connect import connected
from gpuward.cli.foresight import Foresight, Wanted, foresee
from gpuward.cli.look import Picture
from gpuward.cli.manifests import not_in_force
from gpuward.cli.overview import warnings_of
from gpuward.cli.savedplan import SavedPlan, Target, differing, read_plan, saved_plan, told_of_saved, write_plan
from gpuward.cli.targets import check_version
from gpuward.cli.terminal import console, printable, say, say_json, say_sentence, styled
from gpuward.cli.view import GAP, NARROW
from gpuward.cli.wrapping import wrapped
from gpuward.errors import InputError
from gpuward.model.listing import listed
from gpuward.model.record import format_time
from gpuward.policy.refused import departures
from gpuward.report.foresight import PlannedNode, counted
from gpuward.report.headline import headline
from gpuward.report.waves import approvals_to_come
from gpuward.report.when import When

TITLES: Final = ("NODE", "DRIVER", "WHEN", "PODS")
INDENT: Final = "     "
HANG: Final = 2
"""Blanks before what is left of a sentence."""
FAILED: Final = 1
"""What the command ends with where a policy cannot be followed: what it shows is the plan under what was valid last."""
CHANGES: Final = 2
"""What the command ends with, if asked to, where something would change; as terraform's."""
_COLOURS: Final = {When.UNDER_WAY: "cyan", When.NOW: "green", When.NEXT: "yellow", When.WAITS: "yellow",
                   When.STOPPED: "yellow", When.HELD: "red"}
_WORDS: Final = {
    When.UNDER_WAY: ("is under way", "are under way"), When.NOW: ("starts now", "start now"),
    When.NEXT: ("has its turn later", "have their turn later"), When.WAITS: ("waits", "wait"),
    When.STOPPED: ("is stopped", "are stopped"), When.HELD: ("is held", "are held"), When.SKIPPED: ("is skipped", "are skipped"),
    When.NEVER: ("has nothing to do", "have nothing to do"),
}


class Connection:
    """Say which cluster is meant."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str) -> None:
        self.kubeconfig, self.context, self.namespace = kubeconfig, context, namespace


def show_plan(connection: Connection, wanted: Wanted, output: str, *, detailed: bool, save: Target | None = None,
              check: Path | None = None) -> None:
    """Print the plan; exit with 2 where something would change, if that is asked for. Write it to a file, or hold it against one.

    Raises:
        InputError: an option cannot be used.
    """
    check_version(wanted.version)
    if save is not None:
        save.check()
    saved = read_plan("--check", check) if check is not None else None
    found = asyncio.run(_foreseen(connection, wanted))
    if saved is not None:
        _check(saved, found)
        return
    if output == "json":
        say_json(as_json(found))
    else:
        _show(found)
    if save is not None:
        plan = saved_plan(found)
        if found.picture.drivers.policy.view is None:
            raise InputError("--save", str(save.path), "leave it out: nothing is managed, and there is no plan to write")
        write_plan(plan, save)
        for line in told_of_saved(plan, save.path) if output != "json" else ():
            say(line)
    if found.written.problems:
        sys.exit(FAILED)
    if detailed and changes(found):
        sys.exit(CHANGES)


def _check(saved: SavedPlan, found: Foresight) -> None:
    told = list(differing(saved, saved_plan(found)))
    for line in told or ["The plan is the one of the file."]:
        say(line)
    if told:
        sys.exit(CHANGES)


async def _foreseen(connection: Connection, wanted: Wanted) -> Foresight:
    async with connected(connection.kubeconfig, connection.context, lists_only=True) as (client, _):
        return await foresee(client, wanted, connection.namespace)


def changes(found: Foresight) -> bool:
    """Tell whether anything would be written or any node would get another driver."""
    return bool(found.differences) or any(one.when is not When.NEVER for one in found.nodes)


def as_json(found: Foresight) -> dict[str, Any]:
    """Return the plan for programs."""
    count = counted(found.nodes)
    return {
        "operator": found.operator, "at": format_time(found.picture.now), "changes": changes(found),
        "counts": {key: count[when] for when, key in _KEYS.items()},
        "writes": [{"verb": one.verb, "kind": one.kind, "namespace": one.ref.namespace or None, "name": one.ref.name}
                   for one in found.differences],
        "approvals": [{"wave": wave, "driver": driver or None} for driver, wave in approvals(found)],
        "problems": [*found.written.problems, *found.picture.plan.troubles.values()],
        "warnings": [*_warned(found.picture)],
        "nodes": [_node(one) for one in found.nodes],
    }


def approvals(found: Foresight) -> list[tuple[str, str]]:
    """Return the waves, by NVIDIADriver and name, that are going to ask for an approval."""
    return approvals_to_come(found.picture.plan, found.picture.drivers.upgrades)


_KEYS: Final = {When.UNDER_WAY: "underWay", When.NOW: "startsNow", When.NEXT: "later", When.WAITS: "waits",
                When.STOPPED: "stopped", When.HELD: "held", When.SKIPPED: "skipped", When.NEVER: "nothing"}


def _node(one: PlannedNode) -> dict[str, Any]:
    return {
        "name": one.node, "when": _KEYS[one.when], "place": one.place or None, "driver": one.driver or None,
        "pool": one.pool or None, "reason": one.reason or None, "message": one.message or None,
        "until": format_time(one.until) if one.until is not None else None, "behind": list(one.behind),
        "pod": one.pod or None, "budget": one.budget or None, "leavingPods": one.pods,
    }


def _show(found: Foresight) -> None:
    for line in lines(found):
        say_sentence(line, HANG)
    planned = [one for one in found.nodes if one.when is not When.NEVER]
    if planned:
        shown = console()
        for part in plan_table(planned, shown.width):
            shown.print(part)


def _warned(picture: Picture) -> tuple[str, ...]:
    return (*not_in_force(picture.snapshot), *departures(picture.drivers, picture.snapshot), *warnings_of(picture))


def lines(found: Foresight) -> Iterator[str]:
    """Yield what there is to say of all nodes together."""
    count = {when: number for when, number in counted(found.nodes).items() if number}
    told = ", ".join(f"{number} {_WORDS[when][number != 1]}" for when, number in count.items())
    nodes = f"{len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'}"
    picture = found.picture
    yield f"{nodes}: {told}." if told else (
        f"There is nothing to do: {headline(picture.plan, picture.snapshot, picture.drivers)}")
    yield found.operator
    yield from (f"problem: {problem}" for problem in (*found.written.problems, *picture.plan.troubles.values()))
    yield from (f"warning: {told}" for told in _warned(picture))
    for driver, wave in approvals(found):
        whose, option = (f" of NVIDIADriver {driver}", f" --driver {quote(driver)}") if driver else ("", "")
        yield f"wave {wave}{whose} asks for an approval once it is done: later waves wait for `gpuward approve{option}`"
    if found.differences:
        named = listed([f"{one.verb} {one.name}" for one in found.differences if one.kind != "Node"])
        labelled = sum(one.kind == "Node" for one in found.differences)
        more = f"{labelled} node{'' if labelled == 1 else 's'} would get other labels" if labelled else ""
        yield f"written first: {'; '.join(filter(None, (named, more)))}{_shown_by(found.wanted)}"


def _shown_by(wanted: Wanted) -> str:
    """Name the command that shows what changes in objects; there is none for a version that no policy asks for yet."""
    files = "".join(f" --policy {quote(file)}" for file in wanted.policies)
    return "" if wanted.version else f". `gpuward diff{files}` shows what"


def plan_table(nodes: Sequence[PlannedNode], width: int) -> list[Table | Text]:
    """Return the nodes, one line each; where `width` columns leave too few for what they wait for, that has lines of its own."""
    rows = [(str(one.place or ""), one.node, one.driver, str(one.when), str(one.pods)) for one in nodes]
    widths = [max(map(len, column)) for column in zip(("", *TITLES), *rows, strict=True)]
    if sum(widths) + GAP * len(widths) + NARROW <= width:
        return [_table(nodes)]
    shown = [_line(("", *TITLES), widths)]
    for one, row in zip(nodes, rows, strict=True):
        told = wrapped(INDENT + printable(one.message), width, len(INDENT)) if one.message else []
        shown += [_line(row, widths, _COLOURS.get(one.when, "")), *(styled(line) for line in told)]
    return [*shown]


def _line(cells: Sequence[str], widths: Sequence[int], colour: str = "") -> Text:
    number, *rest = (cell.ljust(room) for cell, room in zip(cells, widths, strict=True))
    padded = (" " * GAP).join([number.strip().rjust(widths[0]), *rest]).rstrip()
    return styled(padded, colour)


def _table(nodes: Sequence[PlannedNode]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    for title in TITLES:
        table.add_column(title, no_wrap=True)
    table.add_column("WAITS FOR", overflow="fold")
    for one in nodes:
        row = (one.place or "", one.node, one.driver, one.when, one.pods, one.message)
        table.add_row(*(styled(cell, _COLOURS.get(one.when, "") if cell is one.when else "") for cell in row))
    return table
