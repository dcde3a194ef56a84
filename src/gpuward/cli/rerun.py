"""Decide again what was decided at a recorded moment, and say in which way the outcome differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gpuward.cli.look import Picture
from gpuward.controllers.planning import Planner
from gpuward.model.actions import DeletePod, EvictPod, PatchNode
from gpuward.model.owners import Claim
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import PolicyView
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.recorder.reading import Moment
from gpuward.recording.digest import digest
from gpuward.recording.frame import Recorded, Shown, recorded_actions, shown

MOST_NODES = 3
"""Nodes that are named in one line; of a fleet all may differ for one cause."""


class Rerun(msgspec.Struct, frozen=True):
    """Hold a moment and what is decided about it now."""

    moment: Moment
    plan: Plan
    differences: tuple[str, ...]


def rerun(moment: Moment) -> Rerun:
    """Decide again, from nothing but what was recorded."""
    planner, frame = Planner(), moment.frame
    try:
        plan = planner.decide(moment.snapshot, moment.policies, moment.at)
    except Exception as error:  # whatever ends the decision is what replaying has to show
        kind = type(error).__name__
        known = frame.error == kind
        return Rerun(moment, Plan(), () if known else (f"the decision fails now: {kind}: {error}",))
    if frame.error:
        return Rerun(moment, plan, (f"the decision is made now; then it failed: {frame.error}",))
    if frame.troubled or plan.troubles:
        return Rerun(moment, plan, tuple(_troubles(frame.troubled, plan.troubles)))
    same = digest(plan) == frame.digest
    return Rerun(moment, plan, () if same else tuple(_differences(moment, plan)))


def _troubles(then: tuple[str, ...], now: Mapping[str, str]) -> Iterator[str]:
    """Say which NVIDIADrivers differ. The plan for one that is in trouble is the last one, so that it cannot be compared."""
    for name in sorted({*then, *now}):
        policy = f"NVIDIADriver {name}" if name else "the ClusterPolicy"
        if name not in now:
            yield f"{policy} can be decided for now, and could not then"
        elif name not in then:
            yield f"{policy} cannot be decided for now, and could then: {now[name]}"


def _differences(moment: Moment, plan: Plan) -> Iterator[str]:
    now = {name: shown(status) for name, status in plan.nodes.items()}
    differ = [name for name in sorted({*moment.shown, *now}) if moment.shown.get(name) != now.get(name)]
    for name in differ[:MOST_NODES]:
        yield f"{name}: then {_said(moment.shown.get(name))}; now {_said(now.get(name))}"
    if len(differ) > MOST_NODES:
        yield f"and {len(differ) - MOST_NODES} more nodes"
    then, actions = moment.frame.actions, recorded_actions(plan)
    if then != actions:
        lost = [described(action) for action in then if action not in actions]
        made = [described(action) for action in actions if action not in then]
        yield f"actions: then {some(lost)}; now {some(made)}" if lost or made else "actions: in another order"
    elif not differ:
        yield "details of what nodes wait for, of the counts, or of when to look again"


def _said(said: Shown | None) -> str:
    return str(said) if said is not None else "not managed"


def some(texts: list[str]) -> str:
    """Name the first of some things."""
    return ", ".join(texts[:MOST_NODES]) + (f" and {len(texts) - MOST_NODES} more" if len(texts) > MOST_NODES else "") or "none"


def described(action: Recorded) -> str:
    """Return an action in a few words."""
    if isinstance(action, PatchNode):
        states = " -> ".join(str(state) or "no state" for state in action.entered)
        return f"PatchNode {action.node.name}{f' ({states})' if states else ''}"
    if isinstance(action, EvictPod | DeletePod):
        return f"{type(action).__name__} {action.pod}"
    return f"{type(action).__name__} {', '.join((*action.add, *action.drop))}"


def picture(again: Rerun) -> Picture:
    """Return the moment as `gpuward explain` looks at a cluster, each node in the state that its label showed."""
    plan = again.plan.as_labelled(again.moment.snapshot.nodes)
    return Picture(again.moment.snapshot, _drivers(again.moment), plan, again.moment.at)


def _drivers(moment: Moment) -> PoliciesInForce:
    """Return the policies in force. Of custom resources only names and upgrade policies were recorded."""
    named = [policy for policy in moment.policies if policy.driver]
    other = next((policy for policy in moment.policies if not policy.driver), UpgradePolicy())
    active = tuple(ActiveDriver(PolicyView(each.driver), None, (), Claim(each.driver), each) for each in named)
    view = moment.snapshot.policies[0] if moment.snapshot.policies else None
    in_force = len(moment.policies) > 1 or bool(named)
    return PoliciesInForce(ActivePolicy(view, upgrades=other), active, in_force=in_force, known=False)
