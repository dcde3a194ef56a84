"""The first line about a cluster: which ClusterPolicy, how many nodes are up to date, or what keeps all from being so."""

from __future__ import annotations

from collections import Counter

from gpuward.labels.discovery import has_gpu, how_to_label
from gpuward.model.abandoned import told_of_abandoned
from gpuward.model.analysis import WaveAnalysis
from gpuward.model.approved_plan import PlanDiffers
from gpuward.model.denials import EvictionForbidden, RefusedElsewhere
from gpuward.model.edits import TemplateEdited
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PolicyView
from gpuward.model.waits import FailureBudgetSpent, Limit, NewDriverFails, WaitsFor
from gpuward.model.waves import Aborted, ApprovalRequired, WaveEmpty, WaveFailed, WaveNotDone
from gpuward.model.windows import WindowShut
from gpuward.operands.decide import has_nfd_labels
from gpuward.operands.rollout import goal, staged
from gpuward.operands.yet_to_go import kept
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import departures, endings, problems_besides, refusal, refusals, unlisted
from gpuward.report.behind import behind_stuck_waves
from gpuward.report.groups import Group, group_of

_STOPS = (Reason.ABORTED, Reason.PLAN_DIFFERS, Reason.FAILURE_BUDGET, Reason.WAVE_FAILED, Reason.WAVE_EMPTY,
          Reason.ANALYSIS_FAILED,
          Reason.ANALYSIS_UNKNOWN, Reason.NEW_DRIVER_FAILS, Reason.REFUSED_ELSEWHERE,
          Reason.EVICTION_FORBIDDEN,
          Reason.TEMPLATE_EDITED, Reason.APPROVAL_REQUIRED, Reason.NO_NODE_MAY_START, Reason.WINDOW_SHUT)
"""Reasons that stop a rollout, the most important first."""
_BAD = (Group.FAILED, Group.HELD, Group.NOT_READY, Group.UNWELL)


def headline(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> str:
    """Say what is managed, and whether all is well with the policies."""
    active = policies.policy
    if active.view is None:
        none = active.upgrades.absent if snapshot.policies else "no ClusterPolicy"
        told = "no driver is upgraded until one is in force" if plan.nodes else "nothing is managed"
        return f"{none}: {told} (`gpuward check` says what to do)"
    if refusal(policies):
        return refusal(policies, besides=problems_besides(policies))
    if not plan.nodes and (why := unlisted(policies, snapshot)):
        return f"ClusterPolicy {active.view.name}: it is not known how the drivers of nodes stand, as {why}"
    if active.switched_off and not plan.nodes:
        return f"ClusterPolicy {active.view.name}: driver.enabled is false: no drivers are managed{told_of_abandoned(snapshot)}"
    if not plan.nodes:
        return f"ClusterPolicy {active.view.name}: {why_no_nodes(snapshot, active.view)}{told_of_abandoned(snapshot)}"
    mode = "" if plan.auto_upgrade else "; automatic upgrades are off"
    counts = plan.counts
    done = f"{goal(counts)}{_bad(plan)}{staged(counts)}{_stopped(plan, snapshot, policies)}"
    unserved = told_of_abandoned(snapshot) if active.switched_off else ""  # pods that the next nodes are emptied of come to them
    told = "; ".join((f"ClusterPolicy {active.view.name}: {done}{mode}{unserved}", *departures(policies, snapshot)))
    others = (*endings(policies, snapshot), *filter(None, [kept(snapshot)]))
    of_drivers = (*(refused := refusals(policies)), *others)
    if not of_drivers:
        return told
    left = problems_besides(policies) + len(others) - (not refused)
    more = f" (and {left} more problem{'s' if left > 1 else ''})" if left else ""
    return f"{of_drivers[0]}{more}; apart from that {told}"


def further_problems(snapshot: Snapshot, policies: PoliciesInForce) -> tuple[str, ...]:
    """Return what cannot be followed, or is being deleted, besides what the first line names."""
    if policies.policy.view is None:
        return ()
    fields = tuple(map(str, policies.policy.problems))
    refused = refusals(policies)
    others = () if refusal(policies) else (*endings(policies, snapshot), *filter(None, [kept(snapshot)]))
    return (*fields[1:], *(*refused, *others)[1:])


def _bad(plan: Plan) -> str:
    """Count the nodes that somebody has to look at."""
    groups = Counter(map(group_of, plan.nodes.values()))
    stuck = sum(status.hold is not None and status.hold.is_trouble and group_of(status) is Group.UNDER_WAY
                for status in plan.nodes.values())
    under_way = f", {stuck} under way in trouble" if stuck else ""
    return "".join(f", {groups[group]} {group}" for group in _BAD if groups[group]) + under_way


def _stopped(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> str:
    """Say that no more nodes start by themselves, and why, in few words: `gpuward explain` has more of them."""
    held = [(_STOPS.index(hold.reason), name, why) for name, hold in plan.holds.items()
            if (why := _why_stopped(hold.what, plan))] or _behind(plan, snapshot, policies)
    one = "a" if policies.in_force and policies.active[1:] else "the"  # the nodes of other NVIDIADrivers may go on
    parts = {hold.what.part for hold in plan.holds.values() if isinstance(hold.what, NewDriverFails)}
    part = f" for nodes with {min(parts)}" if held and "" not in parts and _STOPS[min(held)[0]] is Reason.NEW_DRIVER_FAILS else ""
    return f"; {one} rollout has stopped{part}: {min(held)[2]}" if held else ""


def _behind(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> list[tuple[int, str, str]]:
    """Return nodes that wait for a wave that somebody has to help, where no other node goes on either."""
    behind = behind_stuck_waves(plan, snapshot, policies)
    goes_on = (name for name, status in plan.nodes.items()
               if name not in behind and group_of(status) in (Group.UNDER_WAY, Group.WAITING))
    if not behind or any(goes_on):
        return []
    return [(0, name, f"wave {hold.what.wave} waits for {listed(hold.what.nodes, MOST_NAMED, of=hold.what.awaited)}")
            for name, hold in plan.holds.items() if name in behind and isinstance(hold.what, WaveNotDone)]


def _why_stopped(what: WaitsFor, plan: Plan) -> str:
    match what:
        case Aborted():
            return f"{what.by or 'somebody'} aborted it"
        case PlanDiffers():
            return "it is not the one of the plan that was approved of"
        case WaveFailed() | WaveEmpty() | WaveAnalysis() | ApprovalRequired():
            return _why_after_wave(what)
        case FailureBudgetSpent():
            return f"{what.failed} of {what.total} nodes failed"
        case NewDriverFails():
            return _why_in_trouble(plan.nodes.get(what.node), what.node)
        case RefusedElsewhere() | EvictionForbidden():
            return _why_refused(what)
        case TemplateEdited():
            return f"{what.by} edits DaemonSet {what.daemonset}"
        case Limit(reason=Reason.NO_NODE_MAY_START):
            return "nodes that are out of service use up maxUnavailable" if what.limit else "maxUnavailable lets no node go"
        case WindowShut(opens=None):
            return "no window is long enough" if what.takes else "its windows never open"
        case _:
            return ""


def _why_in_trouble(status: NodeStatus | None, node: str) -> str:
    if status is not None and status.podless:
        return f"no driver pod is made on {node}"
    return f"the new driver {'is not validated' if _runs(status) else 'does not come up'} on {node}"


def _why_refused(what: RefusedElsewhere | EvictionForbidden) -> str:
    if isinstance(what, EvictionForbidden):
        return f"the operator has no right to evict pods of namespace {what.namespace}"
    return f"the driver pod of {what.node} may not be replaced"


def _runs(status: NodeStatus | None) -> bool:
    """Tell whether a node got as far as the validation of its driver, where the rest of the stack may be what fails."""
    if status is None:
        return False
    tried = status.failure.state if status.failure is not None and status.state not in IN_PROGRESS else status.state
    return tried is State.VALIDATION_REQUIRED


def _why_after_wave(what: WaveFailed | WaveEmpty | WaveAnalysis | ApprovalRequired) -> str:
    if isinstance(what, WaveFailed):
        return f"{what.failed} of {what.total} nodes of wave {what.wave} failed"
    if isinstance(what, WaveEmpty):
        return f"wave {what.wave} has no node any more"
    if isinstance(what, ApprovalRequired):
        return f"wave {what.wave} waits for approval"
    ends = {Reason.ANALYSIS_FAILED: "failed", Reason.ANALYSIS_UNKNOWN: "is not known"}.get(what.reason, "")
    return f"check {what.check} of wave {what.wave} {ends}" if ends else ""


def why_no_nodes(snapshot: Snapshot, policy: PolicyView) -> str:
    """Say what is missing where no node is managed under a ClusterPolicy."""
    if not has_nfd_labels(snapshot):
        return f"no node is managed: no node has labels of node feature discovery; {how_to_label()}"
    if not any(map(has_gpu, snapshot.nodes.values())):
        return "no node is managed: node feature discovery has found no NVIDIA GPU on any node"
    told = f"no node has a driver that is managed in namespace {snapshot.namespace} yet"
    if (policy.body.get("status") or {}).get("namespace"):
        return told
    return f"{told}; no operator has followed the ClusterPolicy, or it lives in another namespace: name that with -n"
