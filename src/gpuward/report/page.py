"""What the operator's page shows, as a JSON document: how the fleet stands, which nodes ended lately, and commands for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from shlex import quote
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.record import format_time
from gpuward.model.rights import missing_rights
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.operands.rollout import held_up, rollout_of, without_drivers, without_policy
from gpuward.policy.annotated import annotation
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.report.document import document
from gpuward.report.groups import Group, group_of
from gpuward.report.headline import headline
from gpuward.report.waves import wave_items

_RESUMABLE = frozenset({Reason.FAILURE_BUDGET, Reason.NEW_DRIVER_FAILS})
"""What `gpuward resume` ends."""


class Ended(msgspec.Struct, frozen=True):
    """Remember how the upgrade of a node ended."""

    node: str
    at: float
    failed: bool
    seconds: float | None = None
    """How long it took from the node's admission; None where that is not known."""


class RolloutHistory(msgspec.Struct, frozen=True):
    """Hold what one process has seen since it leads."""

    since: float
    finished: int = 0
    failed: int = 0
    last: Sequence[Ended] = ()
    """The newest first."""
    held: tuple[str, str] = ("", "")
    """Why nodes are not even upgraded to the driver that people ask for: a reason and a sentence, of the operands' decision."""


class Leading(msgspec.Struct, frozen=True):
    """Say which process answers, and which one leads; the holder of the Lease is empty where that is not known."""

    process: str
    leads: bool
    holder: str = ""
    own: bool = False
    """Whether the Lease is this process's own: another one may run on the same host, and so have the same name."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the page."""
        return {"process": self.process, "leads": self.leads, "holder": self.holder or None, "own": self.own}


def page_document(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce, leading: Leading, history: RolloutHistory,
                  failing: float = 0.0) -> dict[str, Any]:
    """Return the document of the process that leads. `failing` is since when no upgrade could be decided, 0 where all is well."""
    plan = plan.as_labelled(snapshot.nodes)
    rollout, told = held_up(rollout_of(plan), *history.held), document(plan, snapshot, policies, leading.as_json())
    rollout = without_drivers(rollout, snapshot) if policies.policy.switched_off else rollout
    rollout = without_policy(rollout) if policies.policy.view is None else rollout
    missing = missing_rights(policies.policy.rollout.lacks(snapshot), snapshot.namespace)
    return {
        **told,
        "problems": [*told["problems"], *filter(None, [missing])],
        "namespace": snapshot.namespace,
        "failingSince": format_time(failing) if failing else None,
        "headline": headline(plan, snapshot, policies),
        "rollout": {"status": rollout.status, "reason": rollout.reason, "message": rollout.message},
        "waveLines": wave_items(plan),
        "history": {
            "since": format_time(history.since), "finished": history.finished, "failed": history.failed,
            "last": [{"node": one.node, "at": format_time(one.at), "failed": one.failed,
                      "seconds": None if one.seconds is None else round(one.seconds)} for one in history.last],
        },
        "commands": [{"does": does, "command": command} for does, command in _commands(plan, snapshot, policies)],
    }


def waiting_document(leading: Leading, namespace: str) -> dict[str, Any]:
    """Return the document of a process that does not lead, or has not decided anything yet."""
    return {"operator": leading.as_json(), "namespace": namespace, "nodes": None}


def _commands(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> list[tuple[str, str]]:
    """Return what each command does, and the command."""
    found = [*_switches(policies)]
    if any(hold.reason in _RESUMABLE for hold in plan.holds.values()):
        found.append(("Let the rollout go on: failures up to now no longer count", "gpuward resume"))
    if any(hold.reason is Reason.APPROVAL_REQUIRED for hold in plan.holds.values()):
        found.append(("Approve of the waves that are done", "gpuward approve"))
    if any(hold.reason is Reason.ABORTED for hold in plan.holds.values()):
        found.append(("Let the rollout that was aborted go on", "gpuward resume"))
    place = "" if snapshot.namespace == names.DEFAULT_NAMESPACE else f" -n {quote(snapshot.namespace)}"
    if troubled := _first(plan):
        found.append((f"Say what {troubled} waits for, and what would help", f"gpuward explain {quote(troubled)}{place}"))
    return [*found, ("Watch the rollout in a terminal", f"gpuward status --watch{place}")]


def _switches(policies: PoliciesInForce) -> list[tuple[str, str]]:
    if policies.in_force:
        return [_switch("nvidiadriver", each.view, each.upgrades.auto_upgrade) for each in policies.active]
    view = policies.policy.view
    return [_switch("clusterpolicy", view, policies.policy.upgrades.auto_upgrade, "driver")] if view else []


def _switch(kind: str, view: PolicyView, on: bool, *within: str) -> tuple[str, str]:
    """Return how to turn upgrades off or on. `gpuward resume` ends the pauses of `gpuward pause` alone."""
    whose = "" if within else f" of NVIDIADriver {view.name}"
    option = "" if within else f" --driver {quote(view.name)}"
    if on:
        return f"Pause upgrades{whose}: no more nodes start", f"gpuward pause{option}"
    if annotation(view.body, names.PAUSED_AT):
        return f"End the pause{whose}", f"gpuward resume{option}"
    spec: dict[str, Any] = {"upgradePolicy": {"autoUpgrade": True}}
    for field in within:
        spec = {field: spec}
    body = json.dumps({"spec": spec}, separators=(",", ":"))
    return f"Turn upgrades{whose} on", f"kubectl patch {kind} {quote(view.name)} --type merge -p '{body}'"


def _first(plan: Plan) -> str:
    """Return the node that somebody should look at first."""
    order = {group: number for number, group in enumerate(Group)}
    found = ((order[group], name) for name, status in plan.nodes.items() if (group := group_of(status)) is not Group.UP_TO_DATE)
    return min(found, default=(0, ""))[1]
