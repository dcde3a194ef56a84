"""The gates of admission that look at what the rest of the fleet does as well; see `node_gates`, which are asked before."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward import names
from gpuward.model.denials import EvictionForbidden, RefusedElsewhere, ReplacementRefused
from gpuward.model.domains import DomainMode, LargeDomain, domains_of
from gpuward.model.obstacles import SeveralBudgets
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.views import NodeView
from gpuward.model.waits import BudgetBlocks, BudgetUsedUp, FailureBudgetSpent, Limit, NewDriverFails, Plain, ProtectedPods
from gpuward.model.windows import WindowShut
from gpuward.upgrade import domains
from gpuward.upgrade.fleet import Candidate, Fleet, Gate, some_nodes
from gpuward.upgrade.forbidden import forbidden_on
from gpuward.upgrade.gang_gate import gang_spared
from gpuward.upgrade.idle_gate import idle_awaited
from gpuward.upgrade.in_use import in_the_way
from gpuward.upgrade.node_gates import NODE_GATES
from gpuward.upgrade.staged import staging_hold
from gpuward.upgrade.wave_gates import growth_limit, plan_differs, rollout_aborted, wave_limit, wave_waits

SETTLING: Final = 4.0
"""Seconds for which nobody starts after a change of drivers or of their policy, whose time is known in whole ones: settings of
the rollout may be written right after it, as by `kubectl apply -f` of a folder."""


def just_changed(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node until the driver that it is to get has been made or changed, and for a moment after that, and after an edit of
    its policy. The clock by which that was noted may be ahead of ours, which is known to a second.
    """
    if node.next_target.awaited:
        return Hold(Plain(Reason.TEMPLATE_SETTLING), node.record.since)
    changes = (node.next_target.created or node.target_since, policy.edited)
    since = max((at for at in changes if at > 0 and abs(fleet.now - at) < SETTLING), default=0.0)
    return Hold(Plain(Reason.TEMPLATE_SETTLING), since, since + SETTLING) if since else None


def failure_budget(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node once too many have failed, but for those that failed themselves or that somebody asked for by hand."""
    if not fleet.failed:
        return None
    limit = policy.rollout.failure_budget.of(fleet.total)
    failed_itself = node.record.failure is not None and not node.retargeted
    if len(fleet.failed) <= limit or failed_itself or node.record.forced or node.requested:
        return None
    return Hold(FailureBudgetSpent(len(fleet.failed), limit, fleet.total, some_nodes(fleet.failed)), node.record.since)


def new_driver_fails(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while the driver that it would get is in trouble on another one and runs on none, until a person lets it go on;
    so, too, while the driver pod of the first one may not be replaced by it.

    Nodes that failed themselves, or that somebody asked for by hand, are tried all the same.
    """
    trouble = fleet.troubles.get(node.target)
    if trouble is None or trouble.node == node.node.name:
        return None
    failed_itself = node.record.failure is not None and not node.retargeted
    if failed_itself or node.record.forced or node.requested or (node.in_step and not in_the_way(node)):
        return None
    if isinstance(trouble.why, ReplacementRefused):
        return Hold(RefusedElsewhere(trouble.why.pod, trouble.node, trouble.why.message), trouble.since, trouble.until)
    part = _part(node.node) if len(fleet.targets) > 1 else ""
    return Hold(NewDriverFails(trouble.node, trouble.why, part), trouble.since)


def _part(node: NodeView) -> str:
    """Say to which part of the fleet a node belongs whose driver comes from a DaemonSet of its own."""
    kernel, system = node.labels.get(names.DRIVER_KERNEL), node.labels.get(names.DRIVER_OS)
    return f"kernel {kernel}" if kernel else system or ""


def eviction_forbidden(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose pods the operator has no right to evict, as another one has found out: it would be cordoned for nothing.

    The one that found out, and one that somebody asked for by hand, are tried all the same; so are all where pods are to be
    killed at the deadline.
    """
    if not fleet.forbidden or node.restart_only or policy.rollout.kill_at_deadline or node.record.forced or node.requested:
        return None
    leaving = (*node.to_evict.pods, *(node.to_drain.pods if policy.drain.enable else ()))
    found = next((fleet.forbidden[pod.namespace] for pod in leaving if pod.namespace in fleet.forbidden), None)
    if found is None or forbidden_on(node, policy.rollout.resumed_at):
        return None
    return Hold(EvictionForbidden(found.namespace, found.node, found.message), found.since, found.until)


def window_shut(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node outside the windows of the rollout, unless it is out of service already and has nothing to lose, has begun in
    one and failed, or somebody asked for that very node by hand.
    """
    state, wave = fleet.windows_of(node.node.name)
    if state.opened or not keeps_to_windows(node, fleet):
        return None
    return Hold(WindowShut(state.changes, state.zone, state.shuts, state.takes, wave), node.record.since, state.changes)


def keeps_to_windows(node: Candidate, fleet: Fleet) -> bool:
    """Tell whether a node may start in its windows alone. For one that goes elsewhere those of its wave there hold."""
    if node.node.name in fleet.waves.leaving or node.record.forced or node.requested:
        return False
    # The driver of a node that was not Ready for a moment is loaded still, and its pod not yet heard of again.
    return (node.serves or _may_serve(node) or not node.to_evict.empty) and (node.record.failure is None or node.retargeted)


def image_not_staged(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node until the images of its next driver are on it, where these are to be brought there before its turn."""
    if node.next_images is None or not has_to_pull(node):
        return None
    return staging_hold(node.next_images, policy, node.record.since)


def has_to_pull(node: Candidate) -> bool:
    """Tell whether a node would be out of service for as long as it pulls images: not one that is out of it already and has
    nothing to lose, that has the very driver, or that only loses one.
    """
    if node.restart_only or node.in_step or node.removing:
        return False
    return node.serves or _may_serve(node) or not node.to_evict.empty


def eviction_budget(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose pods a budget would not let go now: cordoning it would only take away room for their replacements.

    A budget that is used up is slow: it has room again when pods that went are back. One that would let nobody go even then is
    a matter for people, unless pods are to be killed at the deadline.
    """
    if not fleet.budgets or not node.to_evict.pods or node.restart_only:
        return None
    for pod in node.to_evict.pods:
        budgets = fleet.budgets_of(pod)
        if len(budgets) > 1 and not policy.rollout.kill_at_deadline:
            several = SeveralBudgets(tuple(budget.ref for budget in budgets))
            return Hold(ProtectedPods(pod.ref, 1, several), node.record.since)
        for budget in budgets:
            if budget.lets_go(pod):
                continue
            if budget.never:
                if policy.rollout.kill_at_deadline:
                    continue
                return Hold(BudgetBlocks(pod.ref, budget.ref, budget.desired, budget.expected, budget.failure), node.record.since)
            claimed = fleet.claims.get(budget.ref, 0)
            if budget.allowed <= claimed:
                return Hold(BudgetUsedUp(pod.ref, budget.ref, budget.allowed, claimed), node.record.since)
    return None


def domain_limit(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while taking it out of service would disturb too much of its domain, or one domain too many; one that is out
    already disturbs nothing more.
    """
    settings = policy.rollout.domains
    if settings is None or (node.node.name in fleet.unavailable and not _may_serve(node)):
        return None
    found = domains.in_the_way(settings, fleet.domains, node.node.name, domains_of(node.node, node.record, settings.key))
    if found is not None and fleet.announced:
        found = msgspec.structs.replace(found, noticed=sum(name in fleet.announced for name in found.nodes))
    return None if found is None else Hold(found, node.record.since)


def _large(node: Candidate, fleet: Fleet, policy: UpgradePolicy, limit: int) -> LargeDomain | None:
    settings = policy.rollout.domains
    if settings is None or settings.mode is not DomainMode.WHOLE:
        return None
    return fleet.domains.large(domains_of(node.node, node.record, settings.key), limit)


def max_unavailable(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while taking it out of service would leave too few; one that is out already takes nothing more away.

    One that may be in service though it counts as out is held by the others alone.
    """
    limit = policy.max_unavailable.of(fleet.total)
    is_out = node.node.name in fleet.unavailable
    if len(fleet.unavailable) - is_out < limit or (is_out and not _may_serve(node)):
        return None
    used = fleet.unavailable - {node.node.name} if is_out else fleet.unavailable
    large, gang = _large(node, fleet, policy, limit), fleet.gangs.large(node, limit) if fleet.gangs.sizes else None
    noticed = len(used & fleet.announced)
    told = Limit(Reason.UNAVAILABLE_LIMIT, len(used), limit, some_nodes(used), fleet.elsewhere, large, gang, noticed)
    if limit <= 0 or used <= fleet.stuck:
        told = msgspec.structs.replace(told, reason=Reason.NO_NODE_MAY_START)
    return Hold(told, node.record.since)


def maintenance_unseen(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose maintenance cannot be asked for."""
    held = fleet.unasked and not node.restart_only
    return Hold(Plain(Reason.MAINTENANCE_UNSEEN), node.record.since) if held else None


def _may_serve(node: Candidate) -> bool:
    if node.node.ready is not True or node.unschedulable:
        return False
    unheard = node.driver is not None and node.driver.unheard and not node.driver.deleting
    return node.to_evict.may_run or node.driver_beside or unheard


def max_parallel(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while the rollout already disrupts as many nodes as it may at once."""
    if policy.max_parallel_upgrades and len(fleet.in_progress) >= policy.max_parallel_upgrades:
        used, limit = fleet.in_progress, policy.max_parallel_upgrades
        large, gang = _large(node, fleet, policy, limit), fleet.gangs.large(node, limit) if fleet.gangs.sizes else None
        noticed = len(used & fleet.announced)
        told = Limit(Reason.PARALLEL_LIMIT, len(used), limit, some_nodes(used), fleet.elsewhere, large, gang, noticed)
        return Hold(told, node.record.since)
    return None


_PERMITTING: tuple[Gate, ...] = (
    rollout_aborted,
    plan_differs,
    failure_budget,
    new_driver_fails,
    eviction_forbidden,
    maintenance_unseen,
    wave_waits,
    idle_awaited,
    window_shut,
    gang_spared,
    image_not_staged,
)
# What nodes wait for anyhow goes on while a change settles, and is what people read.
PERMITTING_GATES: tuple[Gate, ...] = (*_PERMITTING, just_changed)
"""Those that say whether a node may start at all, however much room the limits have."""
FLEET_GATES: tuple[Gate, ...] = (
    *_PERMITTING,
    eviction_budget,
    domain_limit,
    max_unavailable,
    wave_limit,
    max_parallel,
    growth_limit,
    just_changed,
)
"""In the order in which they are asked."""
GATES = NODE_GATES + FLEET_GATES
