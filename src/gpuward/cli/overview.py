"""What `gpuward status` shows above the nodes: the policy, the operator, how far the fleet is, and the operands."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

from rich.text import Text

from gpuward import names
from gpuward.cli.ages import age
from gpuward.cli.events import UNREAD
from gpuward.cli.layout import lay_out
from gpuward.cli.leader import Leader
from gpuward.cli.look import Picture
from gpuward.cli.terminal import printable, styled
from gpuward.cli.view import COLOURS, cut
from gpuward.cli.wrapping import wrapped, wrapped_command
from gpuward.model.reasons import Reason
from gpuward.model.rights import REMEDY
from gpuward.operands.rollout import CONDITION, rollout_of
from gpuward.operands.status import MISSING, RIGHTS_MISSING
from gpuward.operands.unnoted import UNNOTED
from gpuward.report import headline as report
from gpuward.report.nodes import GroupReport
from gpuward.report.operands import OperandReport, moving_nodes
from gpuward.report.takenup import not_taken_up
from gpuward.report.warned import warnings
from gpuward.report.waves import wave_lines

BAR = 30
"""Characters of the progress bar."""
INDENT = "  "
HANG = 10
"""Columns of a line's title, such as `operands`."""
ALLOW = "to allow it: "
REMEMBERED = (Reason.EVICTION_REFUSED, Reason.WRITE_REFUSED, Reason.WRITE_UNANSWERED, Reason.REPLACEMENT_REFUSED,
              Reason.REFUSED_ELSEWHERE, Reason.EVICTION_FORBIDDEN, Reason.LEDGER_REFUSED, Reason.TEMPLATE_EDITED,
              Reason.IMAGE_MISSING)
"""Reasons that only the operator's memory knows."""


def overview(picture: Picture, leader: Leader, groups: Sequence[GroupReport], operands: Sequence[OperandReport],
             width: int | None, *, whole: bool = False) -> list[Text]:
    """Return the lines, none wider than `width`: but for the first one they are cut, unless the `whole` of them is wanted."""
    first = printable(headline(picture))
    lines = [(line, "") for line in (wrapped(first, width, len(INDENT)) if width is not None else [first])]
    lines.append((leader.message, ""))
    lines += [(f"problem: {told}", "red") for told in further_problems_of(picture)]
    lines += [(told, "yellow") for told in picture.unsupported]
    lines += [(told, "yellow") for told in _unknown_workloads(picture)]
    lines += [(f"warning: {told}", "yellow") for told in (*not_taken_up(picture.drivers), *warnings_of(picture))]
    lines += [(f"{_told(leader)}: {told}", "red") for told in said_by_operator(picture)]
    for missing in missing_rights_of(picture):
        told, _, command = missing.partition(REMEDY)  # a command that is cut is of no use: it has a line of its own
        lines += [(f"rights    {told}", "red"), (f"{INDENT}{ALLOW}{command}", "red")]
    if picture.plan.nodes:
        lines.append((_bar(picture), ""))
        lines += [(line, "") for told in wave_lines(picture.plan) for line in _between_waves(printable(told), width)]
        lines += [(f"{INDENT}{told}", "") for told in (picture.plan.estimate.parts() if picture.plan.estimate else ())]
        lines += [(f"{INDENT}{group}", COLOURS.get(group.group, "")) for group in groups]
    lines += _operands(operands, picture)
    return [styled(line, style) for text, style in lines for line in _fitting(printable(text), width, whole=whole)]


def _fitting(text: str, width: int | None, *, whole: bool) -> list[str]:
    if width is None:
        return [text]
    label, allow, command = text.partition(ALLOW)
    if allow and len(text) > width:
        return [label + ALLOW.rstrip(), *wrapped_command(command, width, INDENT * 2)]
    return wrapped(text, width, HANG if text[:HANG].endswith("  ") else len(INDENT) * 2) if whole else [cut(text, width)]


def _between_waves(text: str, width: int | None) -> list[str]:
    """Break a line about waves between them, and within one only where it does not fit a line of its own."""
    if width is None or len(text) <= width:
        return [text]
    hang = HANG if text[:HANG].endswith("  ") else len(INDENT) * 2
    first, *others = text.split("; ")
    lines = [first]
    for wave in others:
        if len(f"{lines[-1]}; {wave};") <= width:
            lines[-1] += f"; {wave}"
        else:
            lines[-1] += ";"
            lines.append(" " * hang + wave)
    return [line for each in lines for line in wrapped(each, width, hang)]


def headline(picture: Picture) -> str:
    """Say what is managed, and whether all is well with the policies."""
    return picture.elsewhere or report.headline(picture.plan, picture.snapshot, picture.drivers)


def further_problems_of(picture: Picture) -> tuple[str, ...]:
    """Return what else is wrong with the policies than the first line says."""
    return () if picture.elsewhere else report.further_problems(picture.snapshot, picture.drivers)


def said_by_operator(picture: Picture) -> list[str]:
    """Return what the operator says in the ClusterPolicy's status and nobody can work out from the cluster alone: writes that are
    refused are in its memory. What it said before the last edit is left out.
    """
    view = picture.active.view
    if view is None:
        return []
    found = (view.body.get("status") or {}).get("conditions") or ()
    conditions = {one.get("type"): one for one in found if one.get("observedGeneration") in (None, view.generation)}
    error, upgrade = conditions.get("Error", {}), conditions.get(CONDITION, {})
    told, message = [], str(error.get("message") or "")
    if error.get("status") == "True":
        _, title, lacking = message.partition(MISSING)  # the states before it, and their pods, are those of the operands below
        told += ([f"{title}{lacking}"] if title else []) if error.get("reason") == "OperandNotReady" else [message]
    of_upgrade = str(upgrade.get("message") or "")
    reason = upgrade.get("reason")
    differs = upgrade.get("status") != "True" and reason != rollout_of(picture.plan).reason
    if reason == str(Reason.INVALID_POLICY) and picture.active.problems:
        differs = False  # the first line says what is wrong with the ClusterPolicy
    if of_upgrade and (differs or UNNOTED in of_upgrade or any(each in of_upgrade for each in _unseen(picture))):
        told.append(f"{upgrade.get('reason')}: {of_upgrade}")
    return [each for each in told if not any(str(problem) in each for problem in picture.active.problems)]


def _unseen(picture: Picture) -> list[Reason]:
    """Return the reasons that only the operator knows; that a budget refuses now the nodes' own lines tell as well."""
    seen = any(hold.reason is Reason.EVICTION_REFUSED for hold in picture.plan.holds.values())
    return [each for each in REMEMBERED if not (seen and each is Reason.EVICTION_REFUSED)]


def warnings_of(picture: Picture) -> tuple[str, ...]:
    """Return what people should know of the limits that they have set, and of GPUs that nobody serves."""
    return warnings(picture.drivers, picture.plan, picture.snapshot, picture.now)


def _told(leader: Leader) -> str:
    """Say that the operator says something, or when one did where none runs."""
    if leader.running is not False:
        return "the operator says"
    ago = f", which ran until {age(leader.now - leader.renewed)} ago, said" if leader.renewed is not None else " said"
    return f"the last operator{ago}"


def missing_rights_of(picture: Picture) -> list[str]:
    """Return what the operator says that it may not, in the ClusterPolicy's status."""
    view = picture.active.view
    status: dict[str, Any] = (view.body.get("status") or {}) if view is not None else {}
    return [str(one.get("message") or "") for one in status.get("conditions") or () if one.get("type") == RIGHTS_MISSING]


def _unknown_workloads(picture: Picture) -> list[str]:
    """Say which nodes have a label for their workload that says nothing: it counts as if it were not there."""
    workloads, nodes = picture.active.workloads, picture.snapshot.nodes
    found = sorted(name for name, node in nodes.items() if workloads.unknown(node)) if workloads is not None else []
    if not found or workloads is None:
        return []
    more = f" (and {len(found) - 1} more node{'s' if len(found) > 2 else ''} alike)" if found[1:] else ""
    return [f"node {found[0]}: {workloads.unknown(nodes[found[0]])}{more}"]


def _bar(picture: Picture) -> str:
    counts = picture.plan.counts
    if counts.removing and counts.removing == counts.total:
        every = counts.removing + counts.removed
        full = BAR * counts.removed // every
        return f"drivers   [{'#' * full}{'-' * (BAR - full)}] removed from {counts.removed} of {every} nodes"
    total = counts.total - counts.removing
    full = BAR * counts.up_to_date // max(total, 1)
    return f"drivers   [{'#' * full}{'-' * (BAR - full)}] {counts.up_to_date} of {total} up to date"


def _operands(operands: Sequence[OperandReport], picture: Picture) -> list[tuple[str, str]]:
    """Name the operands that are not as they should be; the others are counted. Drivers that wait for their turn are told of
    with their nodes.
    """
    if not operands:
        return []
    waiting = [one for one in operands if one.is_waiting]
    moving = moving_nodes(picture.plan)
    explained = [one for one in waiting if one.is_explained_by(*moving) and _unmade(one, picture) in ("", UNREAD)]
    waiting = [one for one in waiting if one not in explained]
    but = ", apart from nodes that are being upgraded, or wait to be" if any(one.unplaced for one in explained) else (
        ", apart from nodes that are being upgraded" if explained else "")
    hosts = [(f"{INDENT}{one.name} {one.ready}/{one.desired}  {one.waits}", "") for one in operands
             if one.awaits_users or (one.held_up is not None and one in explained)]
    if not waiting:
        return [(f"operands  all {len(operands)} ready{but}", ""), *hosts]
    ready = f"operands  {len(operands) - len(waiting)} of {len(operands)} ready{but}"
    unknown = not any(node.gpu_present for node in picture.snapshot.nodes.values())
    if unknown and len(waiting) > 1 and len({one.waits for one in waiting}) == 1 and not any(
            one.desired or one.stuck for one in waiting):
        return [(f"{ready}: {waiting[0].waits}", "red")]
    return [(ready, ""),
            *((f"{INDENT}{one.name} {one.ready}/{one.desired}  {_why_waiting(one, picture)}", "red") for one in waiting),
            *hosts, *_where_to_look(waiting, picture)]


def _why_waiting(one: OperandReport, picture: Picture) -> str:
    unmade = _unmade(one, picture)
    held = f"{one.waits}; " if one.held_up is not None and one.stuck is not None else ""
    return f"{held}{one.stuck or one.waits}{unmade and f'; {unmade}'}"


def _unmade(one: OperandReport, picture: Picture) -> str:
    """Say why pods of an operand that are missing are not made, or why that is not known."""
    return next((picture.unmade[name] for name in one.daemonsets if name in picture.unmade), "") if one.missing else ""


def _where_to_look(waiting: Sequence[OperandReport], picture: Picture) -> list[tuple[str, str]]:
    """Name the command that says more of the first pod that is in trouble, and can be read."""
    stuck = (one.stuck for one in waiting if one.stuck is not None and one.stuck.in_trouble and not one.stuck.silent)
    node = next((pod.node for pod in stuck if (view := picture.snapshot.nodes.get(pod.node)) is not None and view.ready), "")
    if not node:
        return []
    place = "" if picture.snapshot.namespace == names.DEFAULT_NAMESPACE else f" -n {quote(picture.snapshot.namespace)}"
    return [(f"{INDENT}gpuward explain {quote(node)}{place} has its last words and what would help", "")]


def operand_table(operands: Sequence[OperandReport], width: int) -> list[Text]:
    """Return all operands, one line each where `width` columns are enough."""
    rows = [(one.name, f"{one.ready}/{one.desired}", ", ".join(one.daemonsets),
             f"{one.waits}; {one.stuck}" if one.stuck and one.waits else one.waits) for one in operands]
    return lay_out(("OPERAND", "READY", "DAEMONSET", "WAITS FOR"), [[styled(cell) for cell in row] for row in rows], width)
