"""Print what a rehearsal came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.table import Table

from gpuward.cli.ages import age
from gpuward.cli.terminal import console, say, say_sentence, styled
from gpuward.model.listing import listed
from gpuward.model.reasons import Reason
from gpuward.model.record import format_time
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Manifest
from gpuward.rehearse.results import Blocker, NodeRun, Rehearsal, Run, Spread, Trial, blockers

MOST_BLOCKERS: Final = 10
_COLOURS: Final = {True: "red", False: ""}


def show(found: Rehearsal, manifest: Manifest, assumed: Assumptions) -> None:
    """Print it for people."""
    for line in summary(found, manifest):
        say_sentence(line, 2)
    touched = [node for node in found.first.nodes if node.changes]
    if touched:
        console().print(_table(touched))
    for title, lines in (("HELD UP BY", _held(found.first)), ("NODES THAT DO NOT GET THEIR DRIVER", _left(found.first)),
                         ("WHAT WOULD CHANGE IT", _trials(found.trials)), ("ASSUMED", assumed_lines(found, assumed))):
        told = list(lines)
        if told:
            say("")
            say(title)
        for line in told:
            say_sentence(f"  {line}", 4 + len(line) - len(line.lstrip()))


def summary(found: Rehearsal, manifest: Manifest) -> Iterator[str]:
    """Yield what the rollout comes to as a whole."""
    first, at = found.first, manifest.at
    runs = len(found.runs)
    times = "once" if runs == 1 else f"{runs} times"
    yield f"rehearsed {times} by the operator's own loops, on a copy of the cluster as of {format_time(at)}"
    yield from found.problems
    if first.nothing:
        yield f"there is nothing to do: {first.nothing}"
        return
    if not first.changes:
        asked = "by what was valid last" if found.problems else "that they should have"
        yield f"nothing would change: all {len(first.nodes)} nodes have the driver {asked}"
        return
    begun = [node.started for node in first.nodes if node.started is not None]
    lasts = Spread.of(run.lasted for run in found.runs)
    told = f"{age(lasts.p50)}" if runs == 1 else f"{age(lasts.p50)} in half of the runs, {age(lasts.p90)} in nine of ten"
    done = sum(node.done is not None for node in first.nodes)
    yield f"{done} of {len(first.nodes)} nodes have the driver that they should have in the end; that takes {told}"
    if begun:
        yield f"the first node starts after {age(min(begun))}, and it is over at {format_time(at + lasts.p50)}"
    if first.at_horizon:
        yield "it was broken off there: --horizon lets it go on"
    if runs > 1 and begun:
        yield f"{found.same_order} of {runs} runs take the nodes in the order below"
    yield (f"at most {_count(first.most_out, 'node')} out of service at once by it, for {_spread(found, 'hours_out')} GPU-hours "
           "together")
    if first.evicted:
        back = f"; nothing runs in place of {first.not_back} in the end" if first.not_back else ""
        yield f"{_count(first.evicted, 'GPU pod')} evicted: {_spread(found, 'hours_waiting')} GPU-hours until others run{back}"
        yield f"evicted pods had run for {first.hours_undone:.1f} GPU-hours, lost where they keep no checkpoints"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'} {'is' if number == 1 else 'are'}"


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


def _spread(found: Rehearsal, field: str) -> str:
    of = Spread.of(getattr(run, field) for run in found.runs)
    return f"{of.p50:.1f}" if len(found.runs) == 1 or f"{of.p50:.1f}" == f"{of.p90:.1f}" else f"{of.p50:.1f} to {of.p90:.1f}"


def _table(nodes: list[NodeRun]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    for title in ("NODE", "STARTS", "DONE", "OUT", "PODS"):
        table.add_column(title, no_wrap=True)
    table.add_column("WAITED FOR", overflow="fold")
    for number, node in enumerate(nodes, 1):
        waits = ", ".join(f"{one.reason}{f' ({one.whom})' if one.whom else ''} {age(one.seconds)}"
                          for one in node.waited if one.reason == Reason.NOTICE_GIVEN or not Reason(one.reason).in_passing)
        cells = (number if node.started is not None else "", node.name, _started(node), _moment(node.done), age(node.out),
                 node.evicted, waits)
        table.add_row(*(styled(cell, _COLOURS[node.done is None]) for cell in cells))
    return table


def _started(node: NodeRun) -> str:
    return "-" if node.started is None and node.done is not None else _moment(node.started)


def _moment(at: float | None) -> str:
    return "never" if at is None else age(at)


def _held(run: Run) -> Iterator[str]:
    found = [one for one in blockers(run) if one.whom]
    for one in found[:MOST_BLOCKERS]:
        yield f"{one.whom}: {_nodes(one.nodes)} for {age(one.seconds)} together ({one.reason})"


def _left(run: Run) -> Iterator[str]:
    for node in run.left:
        yield f"{node.name}: {node.reason or 'its time was up'}{f': {node.message}' if node.message else ''}"
        yield from (f"  {remedy}" for remedy in node.remedies)


def _trials(trials: tuple[Trial, ...]) -> Iterator[str]:
    for one in trials:
        freed = f", and {listed(one.freed, 3)} {'gets its' if len(one.freed) == 1 else 'get their'} driver" if one.freed else ""
        yield (f"{one.do} -> {age(one.lasted)} instead of {age(one.before)}, with at most {_nodes(one.most_out)} out of service "
               f"at once{freed}")


def assumed_lines(found: Rehearsal, assumed: Assumptions) -> Iterator[str]:
    """Yield what is taken for granted: of how long things take, and that people approve of waves that ask for it."""
    for one in found.first.approvals:
        whose = f" of NVIDIADriver {one.driver}" if one.driver else ""
        when = f"{age(assumed.approval)} after it asks for that" if assumed.approval else "at once when it asks for that"
        yield f"wave {one.wave}{whose} is approved of {when}, {age(one.given)} after the beginning"
    if found.guessed:
        yield "variables, commands and credentials in the files with policies are taken for those of the capture, which has none"
    yield f"a driver takes {age(assumed.driver)}, and its validation {age(assumed.validation)}"
    yield f"an evicted pod takes {age(assumed.eviction)} to end, and any pod {age(assumed.start)} to start"
    yield f"one in ten of these takes {assumed.spread:g} times as long"
    yield "each check of a wave passes: nothing is asked of a Prometheus"
    if any(one.reason == Reason.MAINTENANCE_AWAITED for node in found.first.nodes for one in node.waited):
        yield ("NodeMaintenances are installed, and the maintenance operator lets every node go on at once: its own limits are "
               "not known here")
    yield f"pods of Jobs run for {age(assumed.job)} where their Job has no activeDeadlineSeconds"
    but = f" but {', '.join(found.missing)}, which the cluster cannot pull now" if found.missing else ""
    yield f"all images can be pulled{but}, drivers load, and nobody else changes anything"


def as_json(found: Rehearsal, manifest: Manifest, assumed: Assumptions) -> dict[str, Any]:
    """Return it for programs. Moments are seconds since the capture."""
    first = found.first
    return {
        "at": format_time(manifest.at), "changes": first.changes, "nothingToDo": first.nothing or None,
        "problems": list(found.problems), "missingImages": list(found.missing),
        "runs": len(found.runs), "sameOrder": found.same_order,
        "assumed": msgspec.to_builtins(assumed), "seconds": _percentiles(found, "lasted"),
        "gpuHoursOut": _percentiles(found, "hours_out"), "gpuHoursWaiting": _percentiles(found, "hours_waiting"),
        "gpuHoursUndone": _percentiles(found, "hours_undone"), "evictedPods": first.evicted, "podsNotBack": first.not_back,
        "mostOut": first.most_out, "atHorizon": first.at_horizon,
        "firstStart": min((node.started for node in first.nodes if node.started is not None), default=None),
        "over": format_time(manifest.at + first.lasted),
        "nodes": [_node(node) for node in first.nodes],
        "heldUpBy": [_blocker(one) for one in blockers(first) if one.whom],
        "approvals": [{"wave": one.wave, "driver": one.driver or None, "asked": round(one.asked, 1), "given": round(one.given, 1)}
                      for one in first.approvals],
        "trials": [msgspec.to_builtins(one) for one in found.trials],
        "realSeconds": [round(run.took, 1) for run in found.runs],
    }


def _percentiles(found: Rehearsal, field: str) -> dict[str, float]:
    of = Spread.of(getattr(run, field) for run in found.runs)
    return {"p50": round(of.p50, 3), "p90": round(of.p90, 3)}


def _blocker(one: Blocker) -> dict[str, Any]:
    return {"reason": one.reason, "whom": one.whom, "nodes": one.nodes, "seconds": round(one.seconds, 1)}


def _node(node: NodeRun) -> dict[str, Any]:
    return {
        "name": node.name, "gpus": node.gpus, "starts": node.started, "done": node.done, "out": round(node.out, 1),
        "evictedPods": node.evicted, "failed": node.failed, "reason": node.reason or None, "message": node.message or None,
        "waited": [{"reason": one.reason, "whom": one.whom or None, "seconds": round(one.seconds, 1)} for one in node.waited],
        "spans": [{"phase": str(span.phase), "begin": round(span.begin, 1), "end": round(span.end, 1)} for span in node.spans],
        "remedies": list(node.remedies),
    }
