"""`gpuward explain NODE`: why a node's driver upgrade does not go on, and what would help."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import floor
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from gpuward import names
from gpuward.cli.ages import age
from gpuward.cli.aimed import aimed
from gpuward.cli.connect import connected
from gpuward.cli.cordons import cordoned_by
from gpuward.cli.events import UNREAD, said_in, said_or_unread, why_refused
from gpuward.cli.explanation import Explanation, explained
from gpuward.cli.leader import Leader
from gpuward.cli.leavingpods import LeavingPod
from gpuward.cli.look import Look, Picture
from gpuward.cli.overview import REMEMBERED
from gpuward.cli.podwords import PodWords, words_of
from gpuward.cli.readiness import words_of_readiness, words_of_scheduler
from gpuward.cli.terminal import console, printable, say_json, say_sentence, styled
from gpuward.cli.unknown import unknown_node
from gpuward.cli.wrapping import wrapped_command
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.model.cordons import is_driver_managers, is_somebody_elses
from gpuward.model.driver import driver_daemonsets
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold, NodeStatus
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, format_time
from gpuward.model.states import State
from gpuward.model.waits import Failed, RetryLater, Starting
from gpuward.model.withheld import selecting
from gpuward.report.groups import Group
from gpuward.report.idle import FOR_OPERATOR
from gpuward.report.nodes import MOVING, NOTHING_GOES_ON
from gpuward.upgrade.remedies import Remedy, ordinal

MOST_PODS = 20
"""Pods that are listed; the rest is counted."""
PADDING = 4
"""Blanks around each column of a table."""
WORDS = 24
"""Columns in which a sentence of a table is not yet unreadable."""
CORDONS = {
    CordonOwner.GPUWARD: "by the upgrade, which lifts it at its end",
    CordonOwner.OTHER: "by somebody else, before the upgrade: it stays",
}


def explain_node(node: str, kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    """Print why a node waits, and what would help.

    Raises:
        InputError: there is no such node.
    """
    asyncio.run(_explain(node, kubeconfig, context, namespace, output))


async def _explain(name: str, kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    async with connected(kubeconfig, context, lists_only=True) as (client, _):
        look = Look(client, namespace)
        async with look.following():
            leader = await look.leader()
            picture = look.picture(leader)
            picture.refuse_elsewhere()
            if name not in picture.snapshot.nodes:
                raise unknown_node(name, list(picture.snapshot.nodes))
            found = explained(picture, name, knows_budgets=look.knows_budgets)
            event, unready, refused, unplaced, said, cordoned = await asyncio.gather(
                last_event(client, name), words_of_readiness(client, found.node), refused_pods(client, picture, name),
                words_of_scheduler(client, picture.snapshot, name), words_of(client, picture.snapshot, name),
                cordoned_by(client, found.node, found.cordon))
            found = with_event(found, event)
            found = msgspec.structs.replace(
                found, notes=(*found.notes, *unready, *refused, *unplaced), said=said, cordoned_by=cordoned,
                remedies=tuple(_aimed(remedy, kubeconfig, context) for remedy in found.remedies))
            if output == "json":
                say_json(as_json(found, leader))
            else:
                show(found, leader)


def _aimed(remedy: Remedy, kubeconfig: str | None, context: str | None) -> Remedy:
    return msgspec.structs.replace(remedy, commands=tuple(aimed(command, kubeconfig, context) for command in remedy.commands))


async def last_event(client: Client, node: str) -> tuple[float, str]:
    """Return when the operator said last why a node is held, and what: it may know what the cluster does not show."""
    chosen = f"involvedObject.kind=Node,involvedObject.name={node},reason={names.HELD_EVENT_REASON}"
    said = await said_in(client, Selection(resources.EVENTS, namespace="default", fields=chosen))
    return max(((event.at, event.message) for event in said), default=(0.0, ""))


async def refused_pods(client: Client, picture: Picture, name: str) -> tuple[str, ...]:
    """Return why the node's driver or validator pod could not be made, as the DaemonSet controller said last: also of a node
    that failed for that, as long as the pod is missing.
    """
    snapshot, status = picture.snapshot, picture.plan.nodes.get(name)
    if status is None or status.hold is None:
        return ()
    made = selecting(driver_daemonsets(snapshot), snapshot.nodes[name].labels)
    makers = {Reason.DRIVER_POD_MISSING: [(ds.name, ds.namespace) for ds in made],
              Reason.VALIDATOR_MISSING: [(names.VALIDATOR_APP, snapshot.namespace)]}
    found: list[tuple[float, str]] = []
    for daemonset, namespace in makers.get(_missing(picture, name, status, status.hold), []):
        chosen = f"involvedObject.kind=DaemonSet,involvedObject.name={daemonset},reason=FailedCreate"
        said = await said_or_unread(client, Selection(resources.EVENTS, namespace=namespace, fields=chosen))
        if said is None:
            return (f"DaemonSet {daemonset} has made no pod here: {UNREAD}",)
        found += [(event.at, f"DaemonSet {daemonset} could not make a pod {age(picture.now - event.at)} ago: "
                             f"{why_refused(event.message)}") for event in said]
    return (max(found)[1],) if found else ()


def _missing(picture: Picture, name: str, status: NodeStatus, hold: Hold) -> Reason:
    """Return what a node waits for, or did when it failed and would still."""
    if not isinstance(hold.what, Failed | RetryLater):
        return hold.reason
    if status.podless:
        return Reason.DRIVER_POD_MISSING
    there = any(pod.labels.get("app") == names.VALIDATOR_APP for pod in picture.snapshot.pods.get(name, ()))
    in_validation = hold.what.step is State.VALIDATION_REQUIRED
    return Reason.VALIDATOR_MISSING if in_validation and not there else hold.reason


def with_event(found: Explanation, event: tuple[float, str]) -> Explanation:
    """Return an explanation with what the operator said last, unless that was about a state that the node has left since, or
    about another reason than it has now and not one that only the operator's memory knows.
    """
    status = found.status
    if status is None:
        return msgspec.structs.replace(found, event=event)
    told = ({str(status.hold.reason)} if status.hold is not None else set()) | {str(reason) for reason in REMEMBERED}
    past = event[0] < floor(status.since) or event[1].partition(":")[0] not in told
    return found if past else msgspec.structs.replace(found, event=event)


def show(found: Explanation, leader: Leader, out: Console | None = None) -> None:
    """Print an explanation for people."""
    out = out or console()
    for title, text in _facts(found, leader):
        say_sentence(f"{title:<9} {text}", 10, out)
    if found.pods:
        out.print("\nPODS THAT HAVE TO LEAVE")
        _say_pods(out, found.pods)
    if found.notes:
        out.print("\nNOTES")
    for note in found.notes:
        say_sentence(f"  {note}", 4, out)
    if found.said:
        out.print("\nWHAT ITS PODS SAY")
    for words in found.said:
        _say_words(out, words)
    if found.remedies:
        out.print("\nWHAT WOULD HELP")
    for number, remedy in enumerate(found.remedies, 1):
        _say_remedy(out, number, remedy)


def _say_remedy(out: Console, number: int, remedy: Remedy) -> None:
    say_sentence(f"  {number}. {remedy.do}", 5, out)
    say_sentence(f"     -> {remedy.then}", 8, out)
    if remedy.risk:
        say_sentence(f"     warning: {remedy.risk}", 7, out)
    for command in map(printable, remedy.commands):
        indent = "     $ "
        for line in wrapped_command(command, out.width, indent) if out.is_terminal else [indent + command]:
            out.print(styled(line), soft_wrap=True)


def _say_words(out: Console, words: PodWords) -> None:
    """Print what a pod says; a line of its log takes a line here, however long it is."""
    where = f"{words.container} of pod" if words.container else "pod"
    say_sentence(f"  {where} {words.pod}: {words.why}", 4, out)
    for line in words.message.splitlines():
        say_sentence(f"    {line}", 4, out)
    if words.unread:
        say_sentence(f"    its log cannot be read: {words.unread}", 6, out)
    elif words.log:
        out.print("    the end of its log:")
    for line in words.log:
        out.print(styled(f"    | {line}"), no_wrap=True, overflow="ellipsis")


def _facts(found: Explanation, leader: Leader) -> list[tuple[str, str]]:
    now = max(leader.now, found.now)
    operator = f"{leader.message}; {NOTHING_GOES_ON}" if leader.running is False else leader.message
    facts = [("NODE", found.node.name), ("OPERATOR", operator), ("POLICY", found.policy)]
    status = found.status
    if status is None:
        return [*facts, *_unmanaged(found)]
    facts.append(("STATE", _state(found, status, now)))
    if found.driver:
        facts.append(("DRIVER", found.driver))
    if status.hold is not None:
        alone = leader.running is False and found.report is not None and found.report.group in MOVING
        why = f"{FOR_OPERATOR}; once one runs: {sentence(status.hold)}" if alone else sentence(status.hold)
        facts.append(("REASON", f"{status.hold.reason}: {why}"))
        if status.hold.until is not None:
            then = f"; if it still waits then: {found.then}" if found.then else ""
            facts.append(("UNTIL", f"{format_time(status.hold.until)}, {_distance(status.hold.until - now)}{then}"))
    if found.event[1] and not _is_said(found.event[1], status.hold):
        facts.append(("EVENT", f"{age(now - found.event[0])} ago the operator said: {found.event[1]}"))
    if found.next:
        facts.append(("NEXT", f"{' -> '.join(found.next)}, as soon as the operator acts"))
    if status.turn and found.report is not None and found.report.group is Group.WAITING:
        facts.append(("TURN", f"{ordinal(status.turn)} of those that wait to start"))
    if (failure := found.failure) is not None:
        times = f"{failure.attempts} time{'s' if failure.attempts > 1 else ''}"
        facts.append(("FAILED", f"{times}, last {age(now - failure.at)} ago in {failure.state}: {failure.cause}"))
    return [*facts, *_cordoned(found)]


def _is_said(event: str, hold: Hold | None) -> bool:
    """Tell whether the reason says what the operator said, or the same of a pod that has started anew since."""
    if hold is None:
        return False
    again = isinstance(hold.what, Starting) and event.startswith(f"{hold.reason}: ") and hold.what.pod.name in event
    return again or event == f"{hold.reason}: {sentence(hold)}"


def _unmanaged(found: Explanation) -> list[tuple[str, str]]:
    facts = [("STATE", f"not managed: {found.unmanaged}")]
    if found.operand is not None:
        facts.append(("REASON", f"{found.operand.reason}: {sentence(found.operand)}"))
    return [*facts, *_cordoned(found)]


def _cordoned(found: Explanation) -> list[tuple[str, str]]:
    if not found.node.unschedulable:
        return []
    if _is_driver_managers(found):
        told = "by the driver manager: it lifts it once it has made room for the driver, or the operator where none comes"
    elif _is_doubtful(found):
        told = "by gpuward's driver manager, which left a note, or by somebody else since: it stays until somebody lifts it"
    else:
        told = CORDONS[found.cordon] if found.cordon else "by somebody else, not by the upgrade: it stays until somebody lifts it"
    return [("CORDONED", told + (f" ({found.cordoned_by})" if found.cordoned_by else ""))]


def _is_driver_managers(found: Explanation) -> bool:
    """Tell whether the cordon is that of a driver manager, which an upgrade that comes makes its own."""
    return is_driver_managers(found.node) and found.cordon is not CordonOwner.GPUWARD


def _is_doubtful(found: Explanation) -> bool:
    """Tell whether a driver manager's note is all that tells whose the cordon is."""
    noted = names.DRIVER_MANAGER_CORDON in found.node.annotations and found.cordon is not CordonOwner.GPUWARD
    return noted and not is_somebody_elses(found.node)


def _cordon_owner(found: Explanation) -> str | None:
    if not found.node.unschedulable:
        return None
    if _is_driver_managers(found):
        return "driver-manager"
    return str(found.cordon or CordonOwner.OTHER)


def _state(found: Explanation, status: NodeStatus, now: float) -> str:
    """Say how a node stands and since when, and what its state label says where that is something else: a pause takes it."""
    def lasting(since: float) -> str:
        return f" for {age(now - since)}, since {format_time(since)}" if since else ""

    shown, since = (found.report.shown, found.report.since) if found.report is not None else (status.label, status.since)
    if status.label:
        label = "" if shown == status.label else f"; its state label is {status.label}{lasting(status.since)}"
        return f"{shown}{lasting(since)}{label}"
    if not status.failed and not found.policy.endswith("are off"):
        record = found.node.record
        return "none" if record is not None and record.state is not State.UNKNOWN else f"none yet{lasting(status.since)}"
    return f"{shown}{lasting(since)}; it has no label while upgrades are off"


def _distance(seconds: float) -> str:
    return f"in {age(seconds)}" if seconds > 0 else f"{age(-seconds)} ago"


def _say_pods(out: Console, pods: Sequence[LeavingPod]) -> None:
    """Print which pods have to leave, and whether they can: as a table where that fits, else in two lines each."""
    rows = [(pod.name, pod.owner or "none", str(pod.priority), pod.why or "may be evicted") for pod in pods[:MOST_PODS]]
    more = f"and {len(pods) - MOST_PODS} more" if len(pods) > MOST_PODS else ""
    columns = ("POD", "OWNER", "PRIORITY", "")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if sum(widths[:3]) + min(widths[3], WORDS) + 4 * PADDING > out.width:
        for name, owner, priority, why in rows:
            say_sentence(f"  {name} (owner {owner}, priority {priority})", 4, out)
            say_sentence(f"    {why}", 6, out)
        if more:
            say_sentence(f"  {more}", 4, out)
        return
    table = Table(box=None, padding=(0, 2, 0, 2))
    for column in columns[:3]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[3], overflow="fold")
    for row in rows:
        table.add_row(*map(styled, row))
    if more:
        table.add_row(more)
    out.print(table)


def as_json(found: Explanation, leader: Leader) -> dict[str, Any]:
    """Return an explanation for programs."""
    status, failure = found.status, found.failure
    hold = status.hold if status else found.operand
    return {
        "node": found.node.name,
        "operator": leader.as_json(),
        "policy": found.policy,
        "managed": status is not None,
        "unmanaged": found.unmanaged or None,
        "state": (status.label or None) if status else None,
        "driver": found.driver or None,
        "since": format_time(status.since) if status and status.since else None,
        "reason": str(hold.reason) if hold else None,
        "message": sentence(hold) if hold else None,
        "until": format_time(hold.until) if hold and hold.until is not None else None,
        "then": found.then or None,
        "lastEvent": {"at": format_time(found.event[0]), "message": found.event[1]} if found.event[1] else None,
        "next": list(found.next),
        "turn": (status.turn or None) if status else None,
        "attempts": failure.attempts if failure else 0,
        "lastFailure": {"state": str(failure.state), "cause": failure.cause, "at": format_time(failure.at)} if failure else None,
        "cordoned": found.node.unschedulable,
        "cordonOwner": _cordon_owner(found),
        "cordonedBy": found.cordoned_by or None,
        "ready": found.node.ready,
        "record": found.node.annotations.get(names.UPGRADE_RECORD),
        "pods": [{"name": pod.name, "owner": pod.owner or None, "priority": pod.priority, "blocked": pod.why or None}
                 for pod in found.pods],
        "said": [msgspec.to_builtins(words) for words in found.said],
        "notes": list(found.notes),
        "remedies": [{"do": remedy.do, "then": remedy.then, "risk": remedy.risk or None, "commands": list(remedy.commands)}
                     for remedy in found.remedies],
    }
