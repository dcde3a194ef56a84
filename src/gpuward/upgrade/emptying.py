"""The steps that take a node out of service: cordon, wait for jobs, evict what uses its GPUs, drain."""

from __future__ import annotations

from gpuward import names
from gpuward.model.actions import EventText, EvictPod
from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.snapshot import Refusal
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.finishing import finish, rolled_back
from gpuward.upgrade.leaving import Leaving
from gpuward.upgrade.step import Move, Step, Wait, step

FIRST_RETRY = 2.0
"""Seconds until a refused eviction is tried again; it doubles up to LAST_RETRY."""
LAST_RETRY = 30.0
_DOUBLINGS = 10
"""More than it takes to get to LAST_RETRY; a pod that is refused for a day would overflow the power."""

DRAIN_INSTEAD = "Pod deletion failed but drain is enabled in spec. Will attempt a node drain"
PODS_DELETED = "Deleted workload pods on the node for the driver upgrade"
PODS_STAYED = "Failed to delete workload pods on the node for the driver upgrade, "
DRAIN_BEGUN = "Scheduling drain of the node"
DRAINED = "Successfully drained the node"
DRAIN_FAILED = "Failed to drain the node, "


def cordon_owner(node: NodeFacts) -> CordonOwner:
    """Say whose cordon the node will carry: ours, unless somebody else's is there already."""
    if not node.unschedulable:
        return CordonOwner.GPUWARD
    if names.INITIALLY_UNSCHEDULABLE in node.node.annotations:
        return CordonOwner.OTHER
    return CordonOwner.GPUWARD if node.record.cordon is CordonOwner.GPUWARD else CordonOwner.OTHER


def cordon_annotations(node: NodeFacts, owner: CordonOwner) -> dict[str, str | None]:
    """Return NVIDIA's memory of a foreign cordon, so that NVIDIA's operator could take over, or forget an earlier one."""
    if owner is CordonOwner.OTHER:
        return {names.INITIALLY_UNSCHEDULABLE: "true"}
    return {names.INITIALLY_UNSCHEDULABLE: None} if names.INITIALLY_UNSCHEDULABLE in node.node.annotations else {}


@step(State.CORDON_REQUIRED)
def cordon(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Cordon the node, noting whose cordon it is, and start the clock of the jobs that may finish first."""
    if rolled_back(node):
        return finish(node)
    owner = cordon_owner(node)
    annotations = cordon_annotations(node, owner)
    if node.jobs and policy.wait_for_completion.timeout_seconds:
        annotations[names.WAIT_FOR_JOBS_SINCE] = str(int(now))
    return Move(State.WAIT_FOR_JOBS_REQUIRED, cordon=owner, annotations=annotations)


@step(State.WAIT_FOR_JOBS_REQUIRED)
def wait_for_jobs(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Wait for the pods that the policy lets finish, for ever or until its timeout."""
    if rolled_back(node):
        return finish(node)
    timeout = policy.wait_for_completion.timeout_seconds
    noted = node.jobs_since
    since = noted if noted and noted <= now else node.record.since
    if node.jobs and (not timeout or now < since + timeout):
        until = since + timeout if timeout else None
        args = {"pod": str(node.jobs[0].ref), "pods": len(node.jobs)}
        return Wait(Hold(Reason.JOBS_RUNNING, args, since, until), retry_at=until)
    cleared = {names.WAIT_FOR_JOBS_SINCE: None} if names.WAIT_FOR_JOBS_SINCE in node.node.annotations else {}
    return Move(State.POD_DELETION_REQUIRED, annotations=cleared)


@step(State.POD_DELETION_REQUIRED)
def delete_pods(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Evict the GPU pods; when one may not go, or time is up, drain the node if the policy allows it, else fail."""
    if rolled_back(node):
        return finish(node)
    waited = node.node.upgrade_label == State.POD_DELETION_REQUIRED
    if node.leaving.empty:
        return Move(State.POD_RESTART_REQUIRED, events=(EventText(PODS_DELETED),) if waited else ())
    cause = _obstacle(node, node.leaving, policy.pod_deletion.timeout_seconds, now)
    if cause is None:
        return _evict(node, node.leaving, policy.pod_deletion.timeout_seconds, now)
    complaint = EventText(PODS_STAYED + cause, warning=True)
    if policy.drain.enable:
        return Move(State.DRAIN_REQUIRED, events=(complaint, EventText(DRAIN_INSTEAD, warning=True), EventText(DRAIN_BEGUN)))
    return fail(node, cause, now, (complaint,))


@step(State.DRAIN_REQUIRED)
def drain(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Evict everything that a drain takes, if the policy wants one; fail when something may not go or time is up."""
    if rolled_back(node):
        return finish(node)
    if not policy.drain.enable:
        return Move(State.POD_RESTART_REQUIRED)
    if node.draining.empty:
        return Move(State.POD_RESTART_REQUIRED, events=(EventText(DRAINED),))
    cause = _obstacle(node, node.draining, policy.drain.timeout_seconds, now)
    if cause is None:
        return _evict(node, node.draining, policy.drain.timeout_seconds, now)
    return fail(node, cause, now, (EventText(DRAIN_FAILED + cause, warning=True),))


def fail(node: NodeFacts, cause: str, now: float, events: tuple[EventText, ...] = ()) -> Move:
    """Set the node to failed, remembering the step and its cause; a node whose driver was not touched serves on."""
    ours = node.record.cordon is CordonOwner.GPUWARD and not node.cordon_is_foreign
    undisturbed = node.state in UNDISTURBED and node.untouched
    clocks = {names.VALIDATION_SINCE: None} if names.VALIDATION_SINCE in node.node.annotations else {}
    return Move(
        State.FAILED,
        annotations=clocks,
        failure=Failure(node.state, cause, now),
        uncordon=ours and undisturbed,
        events=events,
    )


def _obstacle(node: NodeFacts, leaving: Leaving, timeout: int, now: float) -> str | None:
    """Say what makes the eviction impossible, or that its time is up; None while it may go on."""
    if leaving.blocked:
        return "; ".join(f"pod {blocked.pod.ref} cannot be evicted: {blocked.why}" for blocked in leaving.blocked)
    if timeout and now >= node.record.since + timeout and node.node.upgrade_label == node.state:
        pods = ", ".join(_why_still_there(pod, node.refusals.get(pod.uid)) for pod in leaving.pods)
        return f"after {timeout} s there still are: {pods}"
    return None


def _why_still_there(pod: PodView, refusal: Refusal | None) -> str:
    if pod.deleting:
        return f"{pod.ref} (terminating)"
    return f"{pod.ref} ({refusal.message})" if refusal else str(pod.ref)


def _evict(node: NodeFacts, leaving: Leaving, timeout: int, now: float) -> Wait:
    """Ask for the eviction of every pod that is not on its way yet and whose last refusal is old enough."""
    until = node.record.since + timeout if timeout else None
    staying = [pod for pod in leaving.pods if not pod.deleting]
    due = [pod for pod in staying if _retry_at(node.refusals.get(pod.uid)) <= now]
    waits = [at for pod in staying if (at := _retry_at(node.refusals.get(pod.uid))) > now]
    refused = next((pod for pod in staying if pod.uid in node.refusals), None)
    if refused is not None:
        refusal = node.refusals[refused.uid]
        args = {"pod": str(refused.ref), "message": refusal.message, "attempts": refusal.count}
        hold = Hold(Reason.EVICTION_REFUSED, args, node.record.since, until)
    else:
        args = {"pods": len(leaving.pods), "pod": str(leaving.pods[0].ref)}
        hold = Hold(Reason.EVICTING, args, node.record.since, until)
    times = [*waits, *([until] if until is not None else [])]
    return Wait(
        hold,
        actions=tuple(EvictPod(pod.ref, node.node.name, why="its node's driver is upgraded") for pod in due),
        recordon=not node.unschedulable,
        retry_at=min(times, default=None),
    )


def _retry_at(refusal: Refusal | None) -> float:
    if refusal is None:
        return 0.0
    doublings = min(refusal.count - 1, _DOUBLINGS)
    return refusal.at + min(FIRST_RETRY * 2.0**doublings, LAST_RETRY)
