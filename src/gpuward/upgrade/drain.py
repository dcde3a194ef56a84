"""The steps that take a node out of service: cordon, wait for jobs, evict what uses its GPUs, drain."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from gpuward import names
from gpuward.model import causes
from gpuward.model.actions import EventText
from gpuward.model.cordons import is_driver_managers
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.undrainable import Behaviour
from gpuward.model.views import PodView
from gpuward.model.waits import JobsRunning
from gpuward.upgrade.evicting import Eviction, came_since, evicted_before
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.maintenance_step import awaited
from gpuward.upgrade.recovery import is_in_doubt, was_spared
from gpuward.upgrade.scope import unknown_value
from gpuward.upgrade.step import Move, Step, Wait, step
from gpuward.upgrade.uncordon import left_alone, no_eviction
from gpuward.upgrade.undrainable import ending_sooner, give_back, given_up_at, gives_up_at, is_given_back, kept_out

DRAIN_INSTEAD = "Pod deletion failed but drain is enabled in spec. Will attempt a node drain"
PODS_DELETED = "Deleted workload pods on the node for the driver upgrade"
PODS_STAYED = "Failed to delete workload pods on the node for the driver upgrade, "
DRAIN_BEGUN = "Scheduling drain of the node"
DRAINED = "Successfully drained the node"
DRAIN_FAILED = "Failed to drain the node, "

CAUSE_LENGTH = 1000
"""Characters of a failure's cause that are kept: an annotation is no place for a list of all pods."""


def cordon_owner(node: NodeFacts) -> CordonOwner:
    """Say whose cordon the node will carry: ours, unless somebody else's is there already. That of a driver manager becomes
    the upgrade's: one that goes on would lift it before the driver is validated, and one that is killed never.
    """
    if not node.unschedulable or is_driver_managers(node.node):
        return CordonOwner.GPUWARD
    if names.INITIALLY_UNSCHEDULABLE in node.node.annotations:
        return CordonOwner.OTHER
    return CordonOwner.GPUWARD if node.record.cordon is CordonOwner.GPUWARD else CordonOwner.OTHER


def cordon_annotations(node: NodeFacts, owner: CordonOwner) -> dict[str, str | None]:
    """Return NVIDIA's memory of a foreign cordon, so that NVIDIA's operator could take over, or forget earlier ones."""
    if owner is CordonOwner.OTHER:
        return {names.INITIALLY_UNSCHEDULABLE: "true"}
    earlier = (names.INITIALLY_UNSCHEDULABLE, names.DRIVER_MANAGER_CORDON)
    return {key: None for key in earlier if key in node.node.annotations}


@step(State.CORDON_REQUIRED)
def cordon(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Cordon the node, noting whose cordon it is, and start the clock of the jobs that may finish first."""
    if (back := no_eviction(node) or left_alone(node, policy, now)) is not None:
        return back
    owner = cordon_owner(node)
    annotations = cordon_annotations(node, owner)
    if node.jobs and (policy.wait_for_completion.timeout_seconds or policy.rollout.deadline(State.WAIT_FOR_JOBS_REQUIRED)):
        annotations[names.WAIT_FOR_JOBS_SINCE] = str(int(now))
    return Move(State.WAIT_FOR_JOBS_REQUIRED, cordon=owner, annotations=annotations)


@step(State.WAIT_FOR_JOBS_REQUIRED)
def wait_for_jobs(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Wait for the pods that the policy lets finish, for ever or until its timeout."""
    if (back := no_eviction(node) or left_alone(node, policy, now)) is not None:
        return back
    if (kept := kept_out(node, policy)) is not None:
        return kept
    timeout = policy.wait_for_completion.timeout_seconds or policy.rollout.deadline(State.WAIT_FOR_JOBS_REQUIRED)
    since = jobs_since(node, now)
    if node.jobs and (not timeout or now < since + timeout):
        until = since + timeout if timeout else None
        cause = causes.not_complete(now - since, (pod.ref for pod in node.jobs))
        wait = Wait(Hold(JobsRunning(node.jobs[0].ref, len(node.jobs)), since, until), retry_at=until)
        at = gives_up_at(node, policy, since)
        return _given_up(node, policy, at, now, cause, node.jobs) or ending_sooner(wait, at, now)
    if (held := awaited(node, policy)) is not None:
        return held
    cleared = {names.WAIT_FOR_JOBS_SINCE: None} if names.WAIT_FOR_JOBS_SINCE in node.node.annotations else {}
    return Move(State.POD_DELETION_REQUIRED, annotations=cleared)


def jobs_since(node: NodeFacts, now: float) -> float:
    """Return since when jobs are waited for. NVIDIA's annotation leaves out what is less than a second, which our record has."""
    noted, since = node.jobs_since, node.record.since
    return max(noted, min(since, noted + 1)) if noted and noted <= now else since


@step(State.POD_DELETION_REQUIRED)
def delete_pods(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Evict the GPU pods; when one may not go, or time is up, drain the node if the policy allows it, else fail."""
    if (back := no_eviction(node) or left_alone(node, policy, now)) is not None:
        return back
    if (kept := kept_out(node, policy) or awaited(node, policy)) is not None:
        return kept
    if node.to_evict.empty:
        return Move(State.POD_RESTART_REQUIRED, events=() if node.just_entered else (EventText(PODS_DELETED),))
    going = Eviction(node, node.to_evict, policy, policy.pod_deletion.timeout_seconds)
    cause = going.obstacle(now)
    if cause is None:
        return _going_on(going, now)
    complaint = EventText(PODS_STAYED + cause, warning=True)
    if policy.drain.enable:
        return Move(State.DRAIN_REQUIRED, events=(complaint, EventText(DRAIN_INSTEAD, warning=True), EventText(DRAIN_BEGUN)))
    return _not_emptied(going, cause, now, complaint)


@step(State.DRAIN_REQUIRED)
def drain(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Evict everything that a drain takes, if the policy wants one; fail when something may not go or time is up."""
    if (back := no_eviction(node) or left_alone(node, policy, now)) is not None:
        return back
    if (kept := kept_out(node, policy) or awaited(node, policy)) is not None:
        return kept
    if not policy.drain.enable or policy.free_only:  # a removal that evicts nobody takes none of what needs no GPU either
        return Move(State.POD_RESTART_REQUIRED)
    if node.to_drain.empty:
        return Move(State.POD_RESTART_REQUIRED, events=(EventText(DRAINED),))
    going = Eviction(node, node.to_drain, policy, policy.drain.timeout_seconds)
    cause = going.obstacle(now)
    if cause is None:
        return _going_on(going, now)
    return _not_emptied(going, cause, now, EventText(DRAIN_FAILED + cause, warning=True))


def _going_on(going: Eviction, now: float) -> Step:
    """Go on to evict, unless the node is given up now."""
    node, policy, since = going.node, going.policy, going.node.record.since
    at = given_up_at(going, since)
    over = _given_up(node, policy, at, now, going.still_there(now - since), going.in_the_way)
    return over or ending_sooner(going.go_on(now), gives_up_at(node, policy, since) if at == inf else at, now)


def _not_emptied(going: Eviction, cause: str, now: float, complaint: EventText) -> Move:
    """End the upgrade of a node whose pods have not gone in time, or may not."""
    if is_given_back(going.node, going.policy) and not going.evictable.blocked:
        return give_back(going.node, cause, now, (complaint,))
    return fail(going.node, cause, now, (complaint,), going.in_the_way)


def _given_up(
    node: NodeFacts, policy: UpgradePolicy, at: float | None, now: float, cause: str, pods: Sequence[PodView]
) -> Move | None:
    """Return the end of an upgrade that the RolloutPolicy has end then as its pods do not go, if that is now."""
    settings = policy.rollout.undrainable
    if settings is None or not node.is_overdue(at, now):
        return None
    if settings.behaviour is Behaviour.FAIL:
        return fail(node, cause, now, (EventText(PODS_STAYED + cause, warning=True),), pods)
    return give_back(node, cause, now) if is_given_back(node, policy) else None


def fail(
    node: NodeFacts, cause: str, now: float, events: tuple[EventText, ...] = (), pods: Sequence[PodView] = ()
) -> Move:
    """Set the node to failed, remembering the step, its cause and the attempts; a node with an untouched driver serves on, but
    not one that is tried again, and whose driver may be what failed. `pods` are those for which it fails, if it does for pods.
    One that got the pod of another driver since it was admitted failed with that, and has not begun anew with it.
    """
    ours = node.record.cordon is CordonOwner.GPUWARD and not node.cordon_is_foreign
    undisturbed = node.untouched and (node.state in UNDISTURBED or not (node.in_step or node.record.forced))
    undisturbed |= node.withheld and node.state in UNDISTURBED and not node.record.returns
    undisturbed = undisturbed or was_spared(node, node.state)
    clocks = {names.VALIDATION_SINCE: None} if names.VALIDATION_SINCE in node.node.annotations else {}
    return Move(
        State.FAILED,
        annotations=clocks,
        failure=_for_pods(_failure(node, cause, now), node, pods),
        uncordon=ours and undisturbed and not is_in_doubt(node),
        events=events,
        target=node.target if got_another(node) else "",
    )


def _for_pods(failure: Failure, node: NodeFacts, pods: Sequence[PodView]) -> Failure:
    """Return a failure that tells whether all of these pods came after the node was admitted, by tolerating its cordon or past
    the scheduler, and whose came back.
    """
    if not pods or not all(came_since(node, pod) for pod in pods):
        return failure
    back = (pod.owner.uid for pod in pods if pod.comes_back and pod.owner and evicted_before(node, pod) is not None)
    return msgspec.structs.replace(failure, intruded=True, returning=next(back, ""))


def _failure(node: NodeFacts, cause: str, now: float) -> Failure:
    # What failed before with another driver says nothing of this one.
    before = None if got_another(node) else node.record.failure
    driver = node.driver.uid if node.driver else ""
    failure = Failure(node.state, cause[:CAUSE_LENGTH], now, driver=driver, begun=node.record.started, untried=_is_untried(node))
    if before is None:
        return failure
    return msgspec.structs.replace(
        failure, attempts=before.attempts + 1, first=before.first or before.at, begun=before.begun,
        untried=failure.untried and before.untried)


def got_another(node: NodeFacts) -> bool:
    """Tell whether a node under way was given the pod of another driver than the one that it was sent to: another template, or
    the DaemonSet of another owner.
    """
    return node.retargeted and node.in_step and not node.untouched and node.state not in UNDISTURBED


def _is_untried(node: NodeFacts) -> bool:
    """Tell whether the new driver was not even begun with. A DaemonSet that makes no pod of it on a machine that is there may
    make none anywhere, unless a label that is mistyped keeps it away.
    """
    driver = node.driver
    if driver is None:
        return not node.node.ready or node.unlabelled or bool(unknown_value(node.node))
    stays = not node.in_step or (driver.deleting and node.was_there(driver))
    return stays or (not node.node.ready and not driver.begun)
