"""What might help a node that is held, reason by reason, cheapest and least dangerous first. Whether it helps is tried later.

Reasons that are missing here wait for something that nobody needs to do, or that cannot be tried on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import msgspec

from gpuward import names
from gpuward.model.domains import DomainLimit
from gpuward.model.driver_images import ImageMissing
from gpuward.model.plan import NodeStatus
from gpuward.model.reasons import Reason
from gpuward.model.staging import OnFailure
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.waits import NewDriverFails
from gpuward.model.windows import WindowShut
from gpuward.model.workloads import is_for_virtual_machines
from gpuward.upgrade.remedies import fixes, policy_fixes, waves
from gpuward.upgrade.remedies.behind import after_troubles, look_at, out_of_service, quarantined
from gpuward.upgrade.remedies.driver_pod import (
    empty_for_driver,
    let_driver_pod_come,
    make_driver_pod,
    make_others_pods,
    make_validator_pod,
    mend_driver_pod,
    mend_validator_pod,
    place_driver_pod,
    start_driver_pod,
    stop_device_plugin,
    stop_driver_pod,
)
from gpuward.upgrade.remedies.fixes import Dial, Fix
from gpuward.upgrade.remedies.holders import start_holder
from gpuward.upgrade.remedies.mig import apply_layout
from gpuward.upgrade.remedies.operand_pod import mend_operand
from gpuward.upgrade.remedies.owners import be_rightly_selected, be_selected, follow_driver
from gpuward.upgrade.remedies.pods import (
    acknowledge,
    after_giving_up,
    end_or_keep_away,
    finish_jobs,
    free_devices,
    keep_away,
    more_budget,
    one_driver_pod,
    push_out,
    unblock,
    unprotect,
)
from gpuward.upgrade.remedies.question import Candidate, Question
from gpuward.upgrade.remedies.rollback import take_back, take_back_untried
from gpuward.upgrade.remedies.writes import accept_writes, let_evict, let_replace
from gpuward.upgrade.validation_off import lacking

MOST_ENDING = 5
"""Pods that a person is to get to end."""
MOST_NODES = 2
"""Other nodes that a person is sent to."""
_EMPTYING = (State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED)
replace = msgspec.structs.replace
UNPAUSE = "set autoUpgrade: true"


def candidates(question: Question) -> Iterator[Candidate]:
    """Return what might help."""
    yield from _serve_alone(question)
    find = _CANDIDATES.get(question.hold.reason)
    yield from find(question) if find is not None and not (find is _try_again and question.case.policy.absent) else ()


# Settings and labels.


def _serve_alone(question: Question) -> Iterator[Candidate]:
    """Ask for a node that has no driver pod before its turn: its GPUs are served by nobody meanwhile."""
    node = question.node
    if node.driver is None and node.withheld and node.state is State.UPGRADE_REQUIRED and question.hold.reason.concerns_fleet:
        do = "upgrade this node before its turn: no driver pod serves its GPUs until then"
        yield fixes.request_upgrade(question.view, do).risking(_evicts(question))


def _unskip(question: Question) -> Iterator[Candidate]:
    yield fixes.label_node(question.view, names.UPGRADE_SKIP, None, "remove the skip label").risking(_evicts(question))


def _unpause(question: Question) -> Iterator[Candidate]:
    case, risk = question.case, "upgrades start: node after node, pods that use GPUs are evicted"
    machines = case.policy.workloads is not None and case.policy.workloads.enabled
    if case.policy.switches.off or not machines:
        fix = policy_fixes.change_policy(case, UNPAUSE, {"autoUpgrade": True}, replace(case.policy, auto_upgrade=True))
        yield replace(fix, change=partial(policy_fixes.switched_on, off="")).risking(risk)
    if not machines or not case.policy.switches.machines:
        return
    if not any(map(is_for_virtual_machines, case.snapshot.nodes.values())):
        yield policy_fixes.end_machines(case).risking(risk)
    elif not case.policy.switches.off and question.node.driver is not None and question.node.to_evict.empty:
        fix = fixes.delete_pods([question.node.driver])
        yield fix.told(f"{fix.do} by hand: its DaemonSet makes one with the driver that the node should have").risking(
            "GPU pods that start meanwhile have no driver: cordon the node before, and uncordon it after that")


def _evicts(question: Question) -> str:
    """Say which pods an upgrade of the node ends."""
    leaving = question.node.to_evict
    return fixes.evicts([*leaving.pods, *(held.pod for held in leaving.blocked)])


def _unbar(question: Question) -> Iterator[Candidate]:
    yield fixes.request_upgrade(question.view, "upgrade this node now").risking(_evicts(question))
    what = question.hold.what
    if isinstance(what, WindowShut) and what.wave:
        yield waves.take_windows(question, what.wave)
        return
    rollout = replace(question.case.policy.rollout, windows=())
    do = "take the windows from the RolloutPolicy"
    yield policy_fixes.change_rollout(question.case, do, {"windows": None}, rollout).risking(
        "all nodes start, node after node; write down the windows before")


def _wait_no_more(question: Question) -> Iterator[Candidate]:
    yield fixes.request_upgrade(question.view, "upgrade this node now").risking(_evicts(question))
    rollout = replace(question.case.policy.rollout, opportunistic=None)
    yield policy_fixes.change_rollout(
        question.case, "take opportunistic from the RolloutPolicy", {"opportunistic": None}, rollout).risking(
        "all nodes start, node after node, and their pods are evicted")


def _spare_no_more(question: Question) -> Iterator[Candidate]:
    yield fixes.request_upgrade(question.view, "upgrade this node now").risking(_evicts(question))
    rollout = replace(question.case.policy.rollout, gangs=None)
    yield policy_fixes.change_rollout(
        question.case, "take gangs from the RolloutPolicy", {"gangs": None}, rollout).risking(
        "nodes start one by one, and a distributed run is evicted with each of its own")


def _evict(question: Question) -> Iterator[Candidate]:
    """Have pods evicted for a driver that is to go, or end them. What an NVIDIADriver said that is gone nobody can edit."""
    case, leaving = question.case, question.node.to_evict
    switches, evicting = case.policy.switches, replace(case.policy, free_only=False)
    if not (case.policy.gone or switches.machines):
        yield policy_fixes.change_policy(case, UNPAUSE, {"autoUpgrade": True}, evicting)
    elif not (case.policy.gone or switches.off or any(map(is_for_virtual_machines, case.snapshot.nodes.values()))):
        fix = policy_fixes.end_machines(case)
        yield replace(fix, change=lambda facts: fix.change(replace(facts, policy=evicting)))
    users = {pod.uid: pod for pod in (*leaving.pods, *(held.pod for held in leaving.blocked), *question.node.jobs)}
    yield Fix(f"end the pods that use its GPUs, or wait for their end: {len(users)} in all",
              partial(fixes.without, gone=fixes.places(users.values())))


def _become_ready(question: Question) -> Iterator[Candidate]:
    yield fixes.repair(question.view)


def _forgive(question: Question) -> Iterator[Candidate]:
    case, total = question.case, len(question.plan.nodes)
    yield policy_fixes.resume(case, question.now)
    rollout = case.policy.rollout

    def allow(nodes: int) -> Fix:
        changed = replace(rollout, failure_budget=replace(rollout.failure_budget, nodes=nodes))
        do = f"raise failureBudget.nodes to {nodes}"
        return policy_fixes.change_rollout(case, do, {"failureBudget": {"nodes": nodes}}, changed)

    yield Dial(rollout.failure_budget.nodes + 1, total, allow)
    yield from take_back(question)


def _find_image(question: Question) -> Iterator[Candidate]:
    yield from take_back(question)
    if isinstance(question.hold.what, ImageMissing):
        yield fixes.push_image(question.hold.what.image)


def _do_without_images(question: Question) -> Iterator[Candidate]:
    rollout = question.case.policy.rollout
    changed = replace(rollout, prestage=replace(rollout.prestage, on_failure=OnFailure.IGNORE))
    yield policy_fixes.change_rollout(
        question.case, "set prestage.onFailure: Ignore", {"prestage": {"onFailure": str(OnFailure.IGNORE)}}, changed
    ).risking("nodes pull their images while they are out of service, and fail where these cannot be pulled at all")
    yield from take_back(question)


def _go_on(question: Question) -> Iterator[Candidate]:
    what = question.hold.what
    status = question.plan.nodes.get(what.node) if isinstance(what, NewDriverFails) else None
    podless = status is not None and status.podless
    if isinstance(what, NewDriverFails) and podless:
        yield look_at(what.node, "on which no driver pod is made")
    elif isinstance(what, NewDriverFails) and status is not None and _is_unvalidated(status):
        yield look_at(what.node, "whose driver is loaded, and not validated")
    yield from let_replace(question)
    if not podless:
        yield from take_back(question)
    yield policy_fixes.resume(question.case, question.now)


def _keep_away(question: Question) -> Iterator[Candidate]:
    yield from _try_again(question) if question.node.state is State.FAILED else keep_away(question)


def _is_unvalidated(status: NodeStatus) -> bool:
    """Tell whether the driver of a node in trouble came up, and something after it did not: another may fare the same."""
    return status.failure is not None and status.failure.state is State.VALIDATION_REQUIRED


def _again(question: Question, do: str) -> Fix:
    """Return the fix that has a node tried again. While upgrades are off that is refused: they are turned on first."""
    again = fixes.try_again(question.view, do).risking(_evicts(question))
    on = None if question.case.policy.auto_upgrade else next(_unpause(question), None)
    return again if not isinstance(on, Fix) else on.followed_by(again)


def _try_again(question: Question) -> Iterator[Candidate]:
    failure = question.node.record.failure
    if failure is not None and failure.state in _EMPTYING:
        again = _again(question, "let it be tried again now")
        yield from (fix.followed_by(again) for fix in (*let_evict(question), *keep_away(question)))
        if ending := [pod for pod in question.node.to_evict.pods if pod.deleting]:
            yield fixes.end_pods(ending[:MOST_ENDING]).followed_by(again)
    status = question.plan.nodes.get(question.view.name)
    if status is not None and status.podless:
        yield from make_driver_pod(question)
    elif failure is not None and failure.state is State.VALIDATION_REQUIRED:
        yield from (mend_validator_pod if question.node.live_validators else make_validator_pod)(question)
    yield _again(question, "let it be tried again now, once the cause is mended")
    if failure is not None and failure.concerns_driver:
        yield from take_back_untried(question)


def _relabel(question: Question) -> Iterator[Candidate]:
    yield fixes.label_node(question.view, names.UPGRADE_STATE, None, "remove the state label: gpuward sets the right one")
    yield fixes.start_anew(question.view, "ask for an upgrade of this node").risking(_evicts(question))


def _mend_label(question: Question) -> Iterator[Candidate]:
    yield fixes.label_node_with(question.view, {names.DEPLOY_DRIVER: "true"}, "say by its label that it is to have a driver")


def _say_kernel(question: Question) -> Iterator[Candidate]:
    if question.view.kernel:
        yield fixes.label_node_with(question.view, {names.NFD_KERNEL: question.view.kernel}, "say the kernel that it runs")


def _let_validate(question: Question) -> Iterator[Candidate]:
    for label in lacking(question.view):
        yield fixes.label_node(question.view, label, None, "let the node have what validates its driver")


def _take_back(question: Question) -> Iterator[Candidate]:
    yield fixes.start_anew(question.view, "take the node back from the maintenance operator").risking(_evicts(question))


def _take_template(question: Question) -> Iterator[Candidate]:
    do = "ask for an upgrade of this node, which replaces its driver pod"
    yield fixes.request_upgrade(question.view, do).risking(_evicts(question))


def _start_holder(question: Question) -> Iterator[Candidate]:
    return start_holder(question, _evicts(question))


# Limits of the fleet.


def _more_unavailable(question: Question) -> Iterator[Candidate]:
    case = question.case
    others = [case.snapshot.nodes[name] for name in sorted(question.plan.nodes) if name in case.snapshot.nodes]
    idle = [node for node in others if node.name != question.view.name and node.state not in IN_PROGRESS]
    for node in [node for node in idle if not node.ready and not node.unschedulable][:MOST_NODES]:
        yield fixes.repair(node)
    yield from islice(make_others_pods(question, question.plan.nodes), MOST_NODES)
    unvalidated = [node for node in idle if node.unschedulable and (hold := question.plan.holds.get(node.name)) is not None
                   and hold.reason is Reason.VALIDATION_OFF]
    for node in unvalidated[:MOST_NODES]:
        for label in lacking(node):
            yield fixes.label_node(node, label, None, f"let node {node.name} have what validates its driver")
    cordoned = [node for node in idle if node.unschedulable and node.ready and node.state is not State.FAILED]
    for node in cordoned[:MOST_NODES]:
        yield fixes.uncordon(node)
    yield from out_of_service(question)
    total = len(question.plan.nodes)
    low = case.policy.max_unavailable.of(total) + 1
    yield Dial(low, total, lambda count: policy_fixes.set_max_unavailable(case, count, total))
    yield from _more_of_both(question)


def _more_parallel(question: Question) -> Iterator[Candidate]:
    case, total = question.case, len(question.plan.nodes)
    yield Dial(case.policy.max_parallel_upgrades + 1, total, lambda count: policy_fixes.set_max_parallel(case, count, total))
    yield from _more_of_both(question)


def _more_of_both(question: Question) -> Iterator[Candidate]:
    case, total = question.case, len(question.plan.nodes)
    unavailable, parallel = case.policy.max_unavailable.of(total), case.policy.max_parallel_upgrades
    def finer(count: int) -> Dial:
        return Dial(unavailable + 1, total, lambda other: policy_fixes.raise_both(case, other, count, total))

    if parallel:
        coarse = partial(policy_fixes.raise_both, case, total, total=total)
        yield Dial(parallel + 1, total, lambda count: coarse(parallel=count), last_resort=True, then=finer)


def _more_of_domain(question: Question) -> Iterator[Candidate]:
    case, what, domains = question.case, question.hold.what, question.case.policy.rollout.domains
    if not isinstance(what, DomainLimit) or domains is None:
        return
    yield from quarantined(question, what.nodes)
    out = [case.snapshot.nodes[name] for name in what.nodes if name in case.snapshot.nodes]
    idle = [node for node in out if node.state not in IN_PROGRESS]
    yield from (fixes.repair(node) for node in idle if not node.ready)
    yield from make_others_pods(question, what.nodes)
    yield from (fixes.uncordon(node) for node in idle if node.ready and node.unschedulable and node.state is not State.FAILED)

    def allow(count: int) -> Fix:
        changed = replace(case.policy.rollout, domains=replace(domains, max=count))
        return policy_fixes.change_rollout(case, f"raise max of domains to {count}", {"domains": {"max": count}}, changed)

    yield Dial(domains.max + 1, max(domains.max + 1, len(question.plan.nodes)), allow)


_CANDIDATES: dict[Reason, Callable[[Question], Iterator[Candidate]]] = {
    Reason.SKIPPED: _unskip,
    Reason.PAUSED: _unpause,
    Reason.NODE_NOT_READY: _become_ready,
    Reason.FAILURE_BUDGET: _forgive,
    Reason.NEW_DRIVER_FAILS: _go_on,
    Reason.REFUSED_ELSEWHERE: _go_on,
    Reason.EVICTION_FORBIDDEN: let_evict,
    Reason.IMAGE_MISSING: _find_image,
    Reason.STAGING_FAILED: _do_without_images,
    Reason.DRIVER_KEPT: _evict,
    Reason.WINDOW_SHUT: _unbar,
    Reason.IDLE_AWAITED: _wait_no_more,
    Reason.GANG_AWAITED: after_troubles(_spare_no_more),
    Reason.GANG_SPARED: _spare_no_more,
    Reason.NOTICE_GIVEN: acknowledge,
    Reason.NOTICE_UNANSWERED: acknowledge,
    Reason.PLAN_DIFFERS: waves.another_plan,
    Reason.ABORTED: waves.resume,
    Reason.WAVE_FAILED: waves.look_at_failures,
    Reason.WAVE_EMPTY: waves.go_on_without_a_wave,
    Reason.WAVE_NOT_DONE: waves.go_without,
    Reason.WAVE_SOAKING: waves.end_soak,
    Reason.ANALYSIS_FAILED: waves.after_analysis,
    Reason.ANALYSIS_UNKNOWN: waves.without_analysis,
    Reason.ANALYSIS_RUNNING: waves.promote,
    Reason.APPROVAL_REQUIRED: waves.approve,
    Reason.WAVE_LIMIT: waves.widen,
    Reason.GROWTH_LIMIT: waves.grow,
    Reason.HELD_DEVICES: free_devices,
    Reason.PROTECTED_PODS: unprotect,
    Reason.UNDRAINABLE: after_giving_up,
    Reason.QUARANTINED: after_giving_up,
    Reason.BUDGET_BLOCKS: unblock,
    Reason.BUDGET_USED_UP: more_budget,
    Reason.DOMAIN_LIMIT: after_troubles(_more_of_domain),
    Reason.DOMAIN_BROKEN: _more_of_domain,
    Reason.UNAVAILABLE_LIMIT: after_troubles(_more_unavailable),
    Reason.NO_NODE_MAY_START: after_troubles(_more_unavailable),
    Reason.PARALLEL_LIMIT: after_troubles(_more_parallel),
    Reason.NOT_SELECTED: be_selected,
    Reason.DRIVER_REFUSED: follow_driver,
    Reason.WRONG_DRIVER_TYPE: be_rightly_selected,
    Reason.DRIVER_LABEL_UNKNOWN: _mend_label,
    Reason.KERNEL_UNKNOWN: _say_kernel,
    Reason.VALIDATION_OFF: _let_validate,
    Reason.DRIVER_POD_MISSING: make_driver_pod, Reason.DRIVER_REPELLED: let_driver_pod_come,
    Reason.DRIVER_UNPLACED: place_driver_pod,
    Reason.DRIVER_STOPPING: stop_driver_pod,
    Reason.DEVICE_PLUGIN_STOPPING: stop_device_plugin, Reason.DOES_NOT_STOP: stop_device_plugin,
    Reason.REPLACEMENT_REFUSED: let_replace,
    Reason.DRIVER_STARTING: start_driver_pod,
    Reason.DRIVER_FAILING: mend_driver_pod,
    Reason.DRIVER_IN_USE: empty_for_driver,
    Reason.VALIDATOR_MISSING: make_validator_pod,
    Reason.VALIDATOR_STARTING: mend_validator_pod,
    Reason.OPERAND_FAILING: mend_operand,
    Reason.MIG_NOT_APPLIED: apply_layout,
    Reason.JOBS_RUNNING: finish_jobs,
    Reason.EVICTING: end_or_keep_away,
    Reason.COMES_BACK: _keep_away,
    Reason.KILLING: end_or_keep_away,
    Reason.EVICTION_REFUSED: push_out,
    Reason.FAILED: _try_again,
    Reason.RETRY_LATER: _try_again,
    Reason.UNKNOWN_STATE: _relabel,
    Reason.TWO_DRIVER_PODS: one_driver_pod,
    Reason.MAINTENANCE: _take_back,
    Reason.WRITE_REFUSED: accept_writes,
    Reason.METADATA_BEHIND: _take_template,
    Reason.OPERANDS_STARTING: _start_holder,
}
