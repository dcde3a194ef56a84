"""What might help a node that is held, reason by reason, cheapest and least dangerous first. Whether it helps is tried later.

Reasons that are missing here wait for something that nobody needs to do, or that cannot be tried on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from gpuward import names
from gpuward.model.plan import Hold, Plan, Reason
from gpuward.model.policy import Drain, PodDeletion
from gpuward.model.rollout import DeviceHolders
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import BudgetView, NodeView, PodView
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.gathering import is_driver_pod
from gpuward.upgrade.remedies import fixes
from gpuward.upgrade.remedies.fixes import Case, Dial, Fix

Candidate = Fix | Dial
MOST_PODS = 5
"""Pods that one fix deletes at most; beyond that nobody wants to do it by hand."""
MOST_NODES = 2
"""Other nodes that a person is sent to."""
replace = msgspec.structs.replace


class Question(msgspec.Struct, frozen=True):
    """Hold whose hold it is, and on what facts it was decided."""

    node: NodeFacts
    hold: Hold
    case: Case
    plan: Plan
    now: float

    @property
    def view(self) -> NodeView:
        """Return the node."""
        return self.node.node

    def pod(self) -> PodView | None:
        """Return the pod that the hold names."""
        named = self.hold.args.get("pod")
        return next((pod for pod in self.case.snapshot.pods.get(self.view.name, ()) if str(pod.ref) == named), None)


def candidates(question: Question) -> Iterable[Candidate]:
    """Return what might help."""
    find = _CANDIDATES.get(question.hold.reason)
    return find(question) if find is not None else ()


# Settings and labels.


def _unskip(question: Question) -> Iterator[Candidate]:
    yield fixes.label_node(question.view, names.UPGRADE_SKIP, None, "remove the skip label")


def _unpause(question: Question) -> Iterator[Candidate]:
    policy = replace(question.case.policy, auto_upgrade=True)
    yield fixes.change_policy(question.case, "set autoUpgrade: true", {"autoUpgrade": True}, policy)


def _become_ready(question: Question) -> Iterator[Candidate]:
    yield fixes.repair(question.view)


def _forgive(question: Question) -> Iterator[Candidate]:
    case, total = question.case, len(question.plan.nodes)
    yield fixes.resume(case, question.now)
    rollout = case.policy.rollout

    def allow(nodes: int) -> Fix:
        changed = replace(rollout, failure_budget=replace(rollout.failure_budget, nodes=nodes))
        do = f"raise failureBudget.nodes to {nodes}"
        return fixes.change_rollout(case, do, {"failureBudget": {"nodes": nodes}}, changed)

    yield Dial(rollout.failure_budget.nodes + 1, total, allow)


def _try_again(question: Question) -> Iterator[Candidate]:
    yield fixes.start_anew(question.view, "let it be tried again now, once the cause is mended")


def _relabel(question: Question) -> Iterator[Candidate]:
    yield fixes.label_node(question.view, names.UPGRADE_STATE, None, "remove the state label: gpuward sets the right one")
    yield fixes.start_anew(question.view, "ask for an upgrade of this node")


def _take_back(question: Question) -> Iterator[Candidate]:
    yield fixes.start_anew(question.view, "take the node back from the maintenance operator")


def _take_template(question: Question) -> Iterator[Candidate]:
    yield fixes.request_upgrade(question.view, "ask for an upgrade of this node, which replaces its driver pod")


# Limits of the fleet.


def _more_unavailable(question: Question) -> Iterator[Candidate]:
    case = question.case
    others = [case.snapshot.nodes[name] for name in sorted(question.plan.nodes) if name in case.snapshot.nodes]
    idle = [node for node in others if node.name != question.view.name and node.state not in IN_PROGRESS]
    for node in [node for node in idle if not node.ready and not node.unschedulable][:MOST_NODES]:
        yield fixes.repair(node)
    cordoned = [node for node in idle if node.unschedulable and node.ready and node.state is not State.FAILED]
    for node in cordoned[:MOST_NODES]:
        yield fixes.uncordon(node)
    total = len(question.plan.nodes)
    yield Dial(case.policy.max_unavailable.of(total) + 1, total, lambda count: fixes.set_max_unavailable(case, count))


def _more_parallel(question: Question) -> Iterator[Candidate]:
    case, total = question.case, len(question.plan.nodes)
    yield Dial(case.policy.max_parallel_upgrades + 1, total, lambda count: fixes.set_max_parallel(case, count))


# Pods that should leave.


def _removal(question: Question, pods: Iterable[PodView]) -> Iterator[Fix]:
    """Remove pods where that can last: no controller starts them again, or not on a node that is cordoned."""
    view, gone = question.view, []
    for pod in list(pods)[:MOST_PODS]:
        if pod.mirror:
            yield fixes.remove_static_pod(view, pod)
        elif pod.owner is not None and pod.owner.kind == "DaemonSet":
            yield fixes.leave_daemonset(view, pod)
        elif pod.owner is None or view.unschedulable:
            gone.append(pod)
    if gone:
        yield fixes.delete_pods(gone)


def _free_devices(question: Question) -> Iterator[Candidate]:
    pod = question.pod()
    yield from _removal(question, [pod] if pod else ())
    case, rollout = question.case, question.case.policy.rollout
    for holders, do in ((DeviceHolders.EVICT, "let such pods be evicted like GPU pods"),
                        (DeviceHolders.IGNORE, "leave such pods alone, at the risk that the old driver does not unload")):
        changed = replace(rollout, device_holders=holders)
        yield fixes.change_rollout(case, f"{do} (deviceHolders: {holders})", {"deviceHolders": holders}, changed)


def _unprotect(question: Question) -> Iterator[Candidate]:
    case, policy = question.case, question.case.policy
    drained = policy.drain.enable
    blocked = question.node.draining.blocked if drained else question.node.leaving.blocked
    yield from _removal(question, (held.pod for held in blocked))
    for part, name in (("podDeletion", "pod_deletion"), ("drain", "drain")) if drained else (("podDeletion", "pod_deletion"),):
        rules: PodDeletion | Drain = getattr(policy, name)
        for field, key, loss in (("deleteEmptyDir", "delete_empty_dir", "data in emptyDir volumes is lost"),
                                 ("force", "force", "pods without a controller do not come back")):
            changed = replace(policy, **{name: replace(rules, **{key: True})})
            yield fixes.change_policy(case, f"set {part}.{field}: {loss}", {part: {field: True}}, changed)
    yield from _one_budget(question)
    if not drained:
        changed = replace(policy, drain=replace(policy.drain, enable=True))
        yield fixes.change_policy(case, "set drain.enable: all pods leave", {"drain": {"enable": True}}, changed)


def _one_budget(question: Question) -> Iterator[Candidate]:
    """Leave a pod that several budgets cover, which the eviction API cannot handle, to one of them."""
    pod = question.pod()
    several = [budget for budget in question.case.snapshot.budgets if pod is not None and budget.covers(pod)]
    if len(several) > 1:
        yield from (fixes.delete_budget(budget) for budget in several)


def _kill(question: Question) -> Iterator[Candidate]:
    case, rollout = question.case, replace(question.case.policy.rollout, kill_at_deadline=True)
    do = "let pods that are still there at the end of podDeletion.timeoutSeconds be deleted, whatever their budgets say"
    yield fixes.change_rollout(case, f"{do} (killAtDeadline)", {"killAtDeadline": True}, rollout)


def _finish_jobs(question: Question) -> Iterator[Candidate]:
    yield from _removal(question, question.node.jobs)
    case, wait = question.case, question.case.policy.wait_for_completion
    seconds = max(1, int(question.now - question.hold.since))
    policy = replace(case.policy, wait_for_completion=replace(wait, timeout_seconds=seconds))
    do = f"set waitForCompletion.timeoutSeconds to {seconds}, which have passed: jobs on all nodes get no more than that"
    yield fixes.change_policy(case, do, {"waitForCompletion": {"timeoutSeconds": seconds}}, policy)


def _more_budget(question: Question) -> Iterator[Candidate]:
    pods = [pod for pod in question.node.leaving.pods if not pod.deleting]
    staying = pods + [pod for pod in question.node.draining.pods if pod not in pods and not pod.deleting]
    for budget in _budgets(question):
        covered = [pod for pods in question.case.snapshot.pods.values() for pod in pods if budget.covers(pod)]
        yield Dial(budget.allowed + 1, len(covered) + 1, _raised(budget, staying))


def _unblock(question: Question) -> Iterator[Candidate]:
    yield from _more_budget(question)
    yield from _kill(question)


def _raised(budget: BudgetView, pods: list[PodView]) -> Callable[[int], Fix]:
    return lambda allowed: fixes.raise_budget(budget, pods, allowed)


def _budgets(question: Question) -> list[BudgetView]:
    """Return the budgets that the hold is about: the one that it names, or those over its pod."""
    budgets, named, pod = question.case.snapshot.budgets, question.hold.args.get("budget"), question.pod()
    if named is not None:
        return [budget for budget in budgets if str(budget.ref) == named]
    return [budget for budget in budgets if pod is not None and budget.covers(pod)]


def _push_out(question: Question) -> Iterator[Candidate]:
    yield from _more_budget(question)
    pod = question.pod()
    for fix in _removal(question, [pod] if pod else ()):
        yield Fix(f"{fix.do}, which asks no disruption budget", fix.change, fix.command)


def _one_driver_pod(question: Question) -> Iterator[Candidate]:
    snapshot = question.case.snapshot
    drivers = [pod for pod in snapshot.pods.get(question.view.name, ()) if is_driver_pod(pod, snapshot.namespace)]
    others = [pod for pod in drivers if pod != question.node.driver and not pod.deleting]
    for pod in sorted(others, key=lambda pod: (not pod.orphan, pod.created))[:MOST_PODS]:
        fix = fixes.delete_pods([pod])
        yield Fix(f"{fix.do}, which {'no DaemonSet owns' if pod.orphan else 'is the older one'}", fix.change, fix.command)


_CANDIDATES: dict[Reason, Callable[[Question], Iterator[Candidate]]] = {
    Reason.SKIPPED: _unskip,
    Reason.PAUSED: _unpause,
    Reason.NODE_NOT_READY: _become_ready,
    Reason.FAILURE_BUDGET: _forgive,
    Reason.HELD_DEVICES: _free_devices,
    Reason.PROTECTED_PODS: _unprotect,
    Reason.BUDGET_BLOCKS: _unblock,
    Reason.BUDGET_USED_UP: _more_budget,
    Reason.UNAVAILABLE_LIMIT: _more_unavailable,
    Reason.PARALLEL_LIMIT: _more_parallel,
    Reason.JOBS_RUNNING: _finish_jobs,
    Reason.EVICTION_REFUSED: _push_out,
    Reason.FAILED: _try_again,
    Reason.RETRY_LATER: _try_again,
    Reason.UNKNOWN_STATE: _relabel,
    Reason.TWO_DRIVER_PODS: _one_driver_pod,
    Reason.MAINTENANCE: _take_back,
    Reason.METADATA_BEHIND: _take_template,
}
