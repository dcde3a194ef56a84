"""The steps that take a node out of service: cordon, wait for jobs, evict what uses its GPUs, drain."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.actions import DeletePod, EventText, EvictPod
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

CAUSE_LENGTH = 1000
"""Characters of a failure's cause that are kept: an annotation is no place for a list of all pods."""
KILL_PATIENCE = 60.0
"""Seconds, beyond its grace period, that a pod may take to end once it was killed."""


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
    if node.jobs and (policy.wait_for_completion.timeout_seconds or policy.rollout.deadline(State.WAIT_FOR_JOBS_REQUIRED)):
        annotations[names.WAIT_FOR_JOBS_SINCE] = str(int(now))
    return Move(State.WAIT_FOR_JOBS_REQUIRED, cordon=owner, annotations=annotations)


@step(State.WAIT_FOR_JOBS_REQUIRED)
def wait_for_jobs(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Wait for the pods that the policy lets finish, for ever or until its timeout."""
    if rolled_back(node):
        return finish(node)
    timeout = policy.wait_for_completion.timeout_seconds or policy.rollout.deadline(State.WAIT_FOR_JOBS_REQUIRED)
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
    going = _Eviction(node, node.leaving, policy, policy.pod_deletion.timeout_seconds)
    cause = going.obstacle(now)
    if cause is None:
        return going.go_on(now)
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
    going = _Eviction(node, node.draining, policy, policy.drain.timeout_seconds)
    cause = going.obstacle(now)
    if cause is None:
        return going.go_on(now)
    return fail(node, cause, now, (EventText(DRAIN_FAILED + cause, warning=True),))


def fail(node: NodeFacts, cause: str, now: float, events: tuple[EventText, ...] = ()) -> Move:
    """Set the node to failed, remembering the step, its cause and the attempts; a node with an untouched driver serves on."""
    ours = node.record.cordon is CordonOwner.GPUWARD and not node.cordon_is_foreign
    undisturbed = node.untouched and (node.state in UNDISTURBED or not (node.in_step or node.record.forced))
    clocks = {names.VALIDATION_SINCE: None} if names.VALIDATION_SINCE in node.node.annotations else {}
    return Move(
        State.FAILED,
        annotations=clocks,
        failure=_failure(node, cause, now),
        uncordon=ours and undisturbed,
        events=events,
    )


def _failure(node: NodeFacts, cause: str, now: float) -> Failure:
    before, driver = node.record.failure, node.driver.uid if node.driver else ""
    if before is None:
        return Failure(node.state, cause[:CAUSE_LENGTH], now, driver=driver, begun=node.record.started)
    return Failure(node.state, cause[:CAUSE_LENGTH], now, before.attempts + 1, before.first or before.at, driver, before.begun)


class _Eviction(msgspec.Struct, frozen=True):
    """Hold what makes pods leave a node, and by when."""

    node: NodeFacts
    leaving: Leaving
    policy: UpgradePolicy
    timeout: int
    """Seconds, as NVIDIA's policy has it; 0 for ever."""

    @property
    def until(self) -> float | None:
        """Return when the time to evict is up."""
        timeout = self.timeout or self.policy.rollout.deadline(self.node.state)
        return self.node.record.since + timeout if timeout else None

    @property
    def killed_by(self) -> float | None:
        """Return when pods that were killed at the end of the time should have ended, where they are killed."""
        if self.until is None or not self.policy.rollout.kill_at_deadline:
            return None
        return self.until + max((pod.grace for pod in self.leaving.pods), default=0.0) + KILL_PATIENCE

    def obstacle(self, now: float) -> str | None:
        """Say what makes the eviction impossible, or that its time is up; None while it may go on."""
        if self.leaving.blocked:
            return "; ".join(f"pod {blocked.pod.ref} cannot be evicted: {blocked.why}" for blocked in self.leaving.blocked)
        end = self.killed_by or self.until
        if end is None or now < end or self.node.node.upgrade_label != self.node.state:
            return None
        pods = ", ".join(_why_still_there(pod, self.node.refusals.get(pod.uid)) for pod in self.leaving.pods)
        return f"after {int(end - self.node.record.since)} s there still are: {pods}"

    def go_on(self, now: float) -> Wait:
        """Ask for the eviction of every pod whose last refusal is old enough; delete what is left when the time is up."""
        if self.killed_by is not None and self.until is not None and now >= self.until:
            return self._kill()
        refusals, staying = self.node.refusals, self._staying()
        due = [pod for pod in staying if _retry_at(refusals.get(pod.uid), now) <= now]
        waits = [at for pod in staying if (at := _retry_at(refusals.get(pod.uid), now)) > now]
        return Wait(
            self._hold(next((pod for pod in staying if pod.uid in refusals), None)),
            actions=tuple(EvictPod(pod.ref, self.node.node.name, why="its node's driver is upgraded") for pod in due),
            recordon=not self.node.unschedulable,
            retry_at=min([*waits, *([self.until] if self.until is not None else [])], default=None),
        )

    def _staying(self) -> list[PodView]:
        """Return the pods that are not on their way, those first whose loss costs the least."""
        staying = (pod for pod in self.leaving.pods if not pod.deleting)
        return sorted(staying, key=lambda pod: (pod.priority, -pod.created, pod.ref))

    def _hold(self, refused: PodView | None) -> Hold:
        since = self.node.record.since
        if refused is None:
            args: dict[str, object] = {"pods": len(self.leaving.pods), "pod": str(self.leaving.pods[0].ref)}
            return Hold(Reason.EVICTING, args, since, self.until)
        refusal = self.node.refusals[refused.uid]
        args = {"pod": str(refused.ref), "message": refusal.message, "attempts": refusal.count}
        return Hold(Reason.EVICTION_REFUSED, args, since, self.until)

    def _kill(self) -> Wait:
        begun, staying = self.until or 0.0, self._staying()
        refusals = {uid: refusal for uid, refusal in self.node.refusals.items() if refusal.at >= begun}
        refused = next((pod for pod in staying if pod.uid in refusals), None)
        told = f"; its deletion is refused: {refusals[refused.uid].message}" if refused else ""
        args = {"pods": len(self.leaving.pods), "pod": str((refused or self.leaving.pods[0]).ref), "refused": told}
        why = "the time to evict it is up, and killAtDeadline is set"
        return Wait(
            Hold(Reason.KILLING, args, begun, self.killed_by),
            actions=tuple(DeletePod(pod.ref, self.node.node.name, why=why) for pod in staying),
            recordon=not self.node.unschedulable,
            retry_at=self.killed_by,
        )


def _why_still_there(pod: PodView, refusal: Refusal | None) -> str:
    if pod.deleting:
        return f"{pod.ref} (terminating)"
    return f"{pod.ref} ({refusal.message})" if refusal else str(pod.ref)


def _retry_at(refusal: Refusal | None, now: float) -> float:
    if refusal is None or refusal.at > now:  # a refusal to come was met before the clock was set back
        return 0.0
    doublings = min(refusal.count - 1, _DOUBLINGS)
    return refusal.at + min(FIRST_RETRY * 2.0**doublings, LAST_RETRY)
