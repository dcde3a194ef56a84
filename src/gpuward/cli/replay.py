"""`gpuward replay`: decide again what a flight recorder recorded, or stop at a moment and explain it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpuward.cli.explain import as_json, show
from gpuward.cli.explanation import explained
from gpuward.cli.leader import Leader
from gpuward.cli.rerun import Rerun, described, picture, rerun
from gpuward.cli.rerun_operands import rerun_operands
from gpuward.cli.summary import Summary
from gpuward.cli.terminal import console, say, say_json
from gpuward.cli.unknown import unknown_node
from gpuward.cli.view import node_rows, node_table
from gpuward.errors import InputError
from gpuward.model.record import format_time
from gpuward.recorder.reading import Moment, OperandMoment, all_moments
from gpuward.recording.frame import Shown
from gpuward.report.nodes import node_reports

MOST_HISTORY = 20
"""Steps of a node that are shown; the newest tell most."""


M = TypeVar("M", Moment, Moment | OperandMoment)


class Stop(msgspec.Struct, frozen=True):
    """Hold where the replay stops, and what became of the node until then."""

    moment: Moment
    history: tuple[tuple[float, Shown | None], ...] = ()


def replay_recording(file: Path, at: str | None, node: str | None, output: str) -> bool:
    """Decide again and print what comes out; tell whether it is the same.

    Raises:
        InputError: the recording does not have what is asked for.
    """
    if at is None and node is None:
        return _check(_all_moments(file), output)
    stop = stop_in(file, at, node)
    again = rerun(stop.moment)
    _explain(again, stop, node, output)
    return not again.differences


def stop_in(file: Path, at: str | None, node: str | None) -> Stop:
    """Return the last decision of a recording up to a time or, without one, the last in which something new was decided about a
    node.

    Raises:
        InputError: the recording does not have what is asked for.
    """
    return _stop(_moments(file), _time(at) if at is not None else None, node)


def _moments(file: Path) -> Iterator[Moment]:
    return _not_empty(file, (moment for moment in _read(file) if isinstance(moment, Moment)))


def _all_moments(file: Path) -> Iterator[Moment | OperandMoment]:
    return _not_empty(file, _read(file))


def _read(file: Path) -> Iterator[Moment | OperandMoment]:
    return all_moments(file, lambda text: say(f"gpuward: {text}", err=True))


def _not_empty(file: Path, seen: Iterable[M]) -> Iterator[M]:
    empty = True
    for moment in seen:
        empty = False
        yield moment
    if empty:
        raise InputError("FILE", str(file), "nothing was decided before it ends: name another recording, or their folder")


def _time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InputError("--at", text, "write a time with its zone as in RFC 3339, such as 2026-01-02T03:04:05Z")
    return moment.timestamp()


def _check(seen: Iterable[Moment | OperandMoment], output: str) -> bool:
    summary = Summary()
    for moment in seen:
        again = rerun(moment) if isinstance(moment, Moment) else rerun_operands(moment)
        summary.add(again)
        if output == "text":
            for text in again.differences:
                say(f"{format_time(moment.at)}  {text}")
    if output == "json":
        say_json(summary.as_json())
    else:
        for text in summary.lines():
            say(text)
    return not summary.differences


def _stop(seen: Iterable[Moment], at: float | None, node: str | None) -> Stop:
    """Return the last decision up to a time or, without one, the last in which something new was decided about the node."""
    stop: Moment | None = None
    begun, known = math.inf, tuple[str, ...]()
    history: list[tuple[float, Shown | None]] = []
    for moment in seen:
        begun, known = min(begun, moment.at), tuple(moment.snapshot.nodes)
        if at is not None and moment.at > at:
            break
        if node is None:
            stop = moment
        elif node in moment.snapshot.nodes or node in moment.shown:
            news = _news(moment, node, history)
            stop = moment if news or at is not None or not history else stop
    if at is not None and at < begun:
        raise InputError("--at", format_time(at), f"the recording begins at {format_time(begun)}")
    if stop is None:
        raise unknown_node(node or "", list(known), "recording")
    return Stop(stop, tuple(history))


def _news(moment: Moment, node: str, history: list[tuple[float, Shown | None]]) -> bool:
    """Tell whether something was decided about a node that was not decided before, and add it to the history."""
    said = moment.shown.get(node)
    if said != (history[-1][1] if history else None):
        history.append((moment.at, said))
        return True
    return any(action.lane == node for action in moment.frame.actions)


def _explain(again: Rerun, stop: Stop, node: str | None, output: str) -> None:
    moment = again.moment
    leader = Leader(f"gpuward {moment.gpuward}, at {format_time(moment.at)}", moment.at)
    if output == "json":
        say_json(_json(again, stop, node, leader))
        return
    for text in again.differences:
        say(f"{format_time(moment.at)}  {text}")
    if node is None:
        say(f"{format_time(moment.at)}  decided by gpuward {moment.gpuward}")
        say("")
        seen = picture(again)
        console().print(node_table(node_rows(node_reports(seen.plan, seen.snapshot, seen.drivers), moment.at)))
    else:
        show(explained(picture(again), node), leader)
    for title, lines in (("WHAT WAS DONE", list(_actions(moment, node))), ("HISTORY", _history(stop))):
        if lines:
            for text in ("", title, *(f"  {line}" for line in lines)):
                say(text)


def _actions(moment: Moment, node: str | None) -> Iterator[str]:
    """Say how each action ended, of one node if it is named."""
    ends = {done.number: done for done in moment.frame.outcomes}
    for number, action in enumerate(moment.frame.actions):
        if node not in (None, action.lane):
            continue
        done = ends.get(number)
        if done is None:
            end = "put off, after failures"
        elif done.error:
            end = f"failed: {done.error}"
        else:
            end = "dropped, after a failure" if done.dropped else "nothing to do" if done.idle else "done"
        yield f"{described(action)}: {end}"


def _history(stop: Stop) -> list[str]:
    left = len(stop.history) - MOST_HISTORY
    lines = [f"{format_time(at)}  {said or 'not managed'}" for at, said in stop.history[-MOST_HISTORY:]]
    return [f"and {left} steps before", *lines] if left > 0 else lines


def _json(again: Rerun, stop: Stop, node: str | None, leader: Leader) -> dict[str, Any]:
    moment = again.moment
    found: dict[str, Any] = {"at": format_time(moment.at), "gpuward": moment.gpuward, "differences": list(again.differences),
                             "actions": list(_actions(moment, node))}
    if node is None:
        rows = {name: {"state": said.state, "reason": said.reason or None} for name, said in moment.shown.items()}
        return found | {"nodes": rows}
    history = [{"at": format_time(at), "state": said.state if said else None, "reason": (said.reason or None) if said else None}
               for at, said in stop.history]
    return found | {"history": history, "explanation": as_json(explained(picture(again), node), leader)}
