"""What might help a node whose pods should leave and do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.budgets import BudgetView
from gpuward.model.driver import is_driver_pod
from gpuward.model.notice import Acknowledge, NoticeGiven, NoticeUnanswered
from gpuward.model.policy import DrainSettings, PodDeletionSettings
from gpuward.model.rollout import DeviceHolders
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.model.waits import OnBudget
from gpuward.upgrade.notice_gate import pods_told
from gpuward.upgrade.remedies import fixes, policy_fixes, workloads
from gpuward.upgrade.remedies.fixes import Dial, Fix
from gpuward.upgrade.remedies.question import SOON, Candidate, Question
from gpuward.upgrade.remedies.writes import let_evict
from gpuward.upgrade.undrainable import gives_up_within

MOST_PODS = 5
"""Pods that one fix deletes at most; beyond that nobody wants to do it by hand."""
replace = msgspec.structs.replace


def _removal(question: Question, pods: Iterable[PodView]) -> Iterator[Fix]:
    """Remove pods where that can last: no controller starts them again, or not on a node that is cordoned."""
    view, gone = question.view, []
    for pod in list(pods)[:MOST_PODS]:
        if pod.mirror:
            yield fixes.remove_static_pod(view, pod)
        elif pod.of_daemonset:
            yield fixes.leave_daemonset(view, pod)
        elif pod.owner is None or view.unschedulable:
            gone.append(pod)
    if gone:
        yield fixes.delete_pods(gone)


def free_devices(question: Question) -> Iterator[Candidate]:
    """Free the driver of a pod that asks for no GPU."""
    pod = question.pod()
    yield from _removal(question, [pod] if pod else ())
    case, rollout = question.case, question.case.policy.rollout
    ways = ((DeviceHolders.EVICT, "let such pods be evicted like GPU pods",
             "this ends such pods on every node that is upgraded, with what they have not saved"),
            (DeviceHolders.IGNORE, "leave such pods alone",
             "where the old driver does not unload, the new one fails on every node that has such pods"))
    for holders, do, risk in ways:
        changed = replace(rollout, device_holders=holders)
        fix = policy_fixes.change_rollout(case, f"{do} (deviceHolders: {holders})", {"deviceHolders": holders}, changed)
        yield fix.risking(risk)


def acknowledge(question: Question) -> Iterator[Candidate]:
    """Have the owners of a node's pods acknowledge its notice, or wait for them no longer."""
    case, what, rollout = question.case, question.hold.what, question.case.policy.rollout
    if not isinstance(what, NoticeGiven | NoticeUnanswered) or rollout.notice is None:
        return
    if isinstance(what, NoticeGiven) and what.before:  # nobody can answer what was not given
        return
    left = [pod for pod in pods_told(question.node, case.policy) if pod.acknowledged != what.id]
    if len(left) <= MOST_PODS:
        yield fixes.acknowledge(left, what.id)
    if isinstance(what, NoticeUnanswered):
        changed = replace(rollout, notice=replace(rollout.notice, acknowledge=Acknowledge.OPTIONAL))
        fields = {"notice": {"acknowledge": str(Acknowledge.OPTIONAL)}}
        yield policy_fixes.change_rollout(case, "wait for no answers (notice.acknowledge: Optional)", fields, changed).risking(
            "pods are evicted on every node when the time of its notice is up, whatever they have not saved")


def unprotect(question: Question) -> Iterator[Candidate]:
    """Let pods go that the policy does not allow to be evicted."""
    case, policy = question.case, question.case.policy
    drained = policy.drain.enable
    blocked = question.node.to_drain.blocked if drained else question.node.to_evict.blocked
    yield from _removal(question, (held.pod for held in blocked))
    for part, name in (("podDeletion", "pod_deletion"), ("drain", "drain")) if drained else (("podDeletion", "pod_deletion"),):
        rules: PodDeletionSettings | DrainSettings = getattr(policy, name)
        for field, key, loss in (("deleteEmptyDir", "delete_empty_dir", "data in emptyDir volumes is lost"),
                                 ("force", "force", "pods without a controller do not come back")):
            changed = replace(policy, **{name: replace(rules, **{key: True})})
            yield policy_fixes.change_policy(case, f"set {part}.{field}: true", {part: {field: True}}, changed).risking(
                f"on every node that is upgraded {loss}")
    yield from _one_budget(question)
    if not drained:
        changed = replace(policy, drain=replace(policy.drain, enable=True))
        yield policy_fixes.change_policy(case, "set drain.enable: true", {"drain": {"enable": True}}, changed).risking(
            "all pods leave every node that is upgraded, also those that use no GPU")


def _one_budget(question: Question) -> Iterator[Candidate]:
    """Leave a pod that several budgets cover, which the eviction API cannot handle, to one of them."""
    pod = question.pod()
    several = [budget for budget in question.case.snapshot.budgets if pod is not None and budget.covers(pod)]
    if len(several) > 1:
        yield from (fixes.delete_budget(budget) for budget in several)


def _kill(question: Question) -> Iterator[Candidate]:
    """Have pods deleted that stay, unless their node is given up before their time is up."""
    policy = question.case.policy
    if gives_up_within(policy, policy.pod_deletion.timeout_seconds or policy.rollout.deadline(State.POD_DELETION_REQUIRED)):
        return
    case, rollout = question.case, replace(question.case.policy.rollout, kill_at_deadline=True)
    do = "let pods that are still there at the end of podDeletion.timeoutSeconds be deleted, whatever their budgets say"
    yield policy_fixes.change_rollout(case, f"{do} (killAtDeadline)", {"killAtDeadline": True}, rollout).risking(
        "on every node that is upgraded this ends pods that their budgets protect, with what they have not saved")


def finish_jobs(question: Question) -> Iterator[Candidate]:
    """End jobs that may finish first, or their time."""
    yield from _removal(question, question.node.jobs)
    case, wait = question.case, question.case.policy.wait_for_completion
    seconds = max(1, int(question.now - question.hold.since))
    policy = replace(case.policy, wait_for_completion=replace(wait, timeout_seconds=seconds))
    do = f"set waitForCompletion.timeoutSeconds to {seconds}, which have passed: jobs on all nodes get no more than that"
    yield policy_fixes.change_policy(case, do, {"waitForCompletion": {"timeoutSeconds": seconds}}, policy).risking(
        "jobs that have run longer on a node that is upgraded are ended, with what they have not saved")


def more_budget(question: Question) -> Iterator[Candidate]:
    """Give room to the disruption budgets that the hold is about."""
    pods = [pod for pod in question.node.to_evict.pods if not pod.deleting]
    staying = pods + [pod for pod in question.node.to_drain.pods if pod not in pods and not pod.deleting]
    for budget in _budgets(question):
        covered = [pod for pods in question.case.snapshot.pods.values() for pod in pods if budget.covers(pod)]
        unready = [pod for pod in covered if not (pod.ready or pod.finished or pod.deleting)]
        if unready and budget.healthy + len(unready) - budget.desired > budget.allowed:
            yield fixes.get_ready(budget, unready, staying)
        yield Dial(budget.allowed + 1, len(covered) + 1, _raised(budget, staying))


def unblock(question: Question) -> Iterator[Candidate]:
    """Give room to a budget that would never let a pod go."""
    yield from more_budget(question)
    yield from _kill(question)


def _raised(budget: BudgetView, pods: list[PodView]) -> Callable[[int], Fix]:
    return lambda allowed: fixes.raise_budget(budget, pods, allowed)


def _budgets(question: Question) -> list[BudgetView]:
    """Return the budgets that the hold is about: the one that it names, or those over its pod."""
    budgets, what, pod = question.case.snapshot.budgets, question.hold.what, question.pod()
    if isinstance(what, OnBudget):
        return [budget for budget in budgets if budget.ref == what.budget]
    return [budget for budget in budgets if pod is not None and budget.covers(pod)]


def push_out(question: Question) -> Iterator[Candidate]:
    """Get a pod out whose eviction is refused."""
    yield from let_evict(question)
    yield from more_budget(question)
    pod = question.pod()
    for fix in _removal(question, [pod] if pod else ()):
        yield fix.told(f"{fix.do}, which asks no disruption budget")


def end_pods(question: Question) -> Iterator[Candidate]:
    """End pods that should have ended by now: nothing but their grace periods takes time."""
    evictable = question.node.to_drain if question.node.state is State.DRAIN_REQUIRED else question.node.to_evict
    overdue = [pod for pod in evictable.pods if pod.deleting
               and question.now >= question.hold.since + pod.grace + (0.0 if pod.kept(question.now) else SOON)]
    if overdue:
        yield fixes.end_pods(overdue[:MOST_PODS])


def after_giving_up(question: Question) -> Iterator[Candidate]:
    """Get a node on that was given up as its pods could not be moved, or leave it out."""
    leaving = [*question.node.to_evict.pods, *(held.pod for held in question.node.to_evict.blocked)]
    if ending := [pod for pod in leaving if pod.deleting]:
        yield fixes.end_pods(ending)
    yield from _removal(question, (pod for pod in leaving if not pod.deleting))
    again = fixes.request_upgrade(question.view, "have it tried again now, once its pods can go")
    yield again.retold(f"gpuward retry {quote(question.view.name)}").risking(fixes.evicts(leaving))
    do = "leave it out of the upgrade: it serves with its driver"
    skipped = fixes.label_node(question.view, names.UPGRADE_SKIP, "true", do)
    yield skipped.retold(f"gpuward skip {quote(question.view.name)}")


def keep_away(question: Question) -> Iterator[Fix]:
    """Keep workloads away that put pods back on the cordoned node."""
    evictable = question.node.to_drain if question.node.state is State.DRAIN_REQUIRED else question.node.to_evict
    for pod in evictable.pods:
        if pod.comes_back and pod.owner is not None:
            owner = pod.owner
            yield from workloads.keep_away(owner, [one for one in evictable.pods if one.is_owned_by(owner.uid)])
            return


def end_or_keep_away(question: Question) -> Iterator[Candidate]:
    """Get pods to end for good."""
    yield from keep_away(question)
    yield from end_pods(question)


def one_driver_pod(question: Question) -> Iterator[Candidate]:
    """Leave one driver pod on the node."""
    snapshot = question.case.snapshot
    drivers = [pod for pod in snapshot.pods.get(question.view.name, ()) if is_driver_pod(pod, snapshot.namespace)]
    others = [pod for pod in drivers if pod != question.node.driver and not pod.deleting]
    for pod in sorted(others, key=lambda pod: (not pod.orphan, pod.created))[:MOST_PODS]:
        fix = fixes.delete_pods([pod])
        yield fix.told(f"{fix.do}, which {'no DaemonSet owns' if pod.orphan else 'is the older one'}").risking(
            "a driver pod that ends unloads the driver, unless pods use it: GPU pods that start meanwhile have none")
