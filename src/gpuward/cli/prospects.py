"""What becomes of a node that waits for something that nobody needs to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuward.cli.ages import age
from gpuward.cli.view import some
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import AT_REST, State
from gpuward.model.undrainable import Behaviour
from gpuward.model.views import PodView
from gpuward.model.waits import Limit
from gpuward.upgrade.remedies import MOST_STEPS
from gpuward.upgrade.undrainable import gives_up_within

SLACK = 10.0
"""Seconds that a kubelet may take to tidy up after the grace period of a pod."""
MOST_KEPT = 3
"""Pods that a note names."""


def prospects(status: NodeStatus, policy: UpgradePolicy, leaving: Sequence[PodView] = (), plan: Plan | None = None,
              now: float = 0.0) -> Iterator[str]:
    """Tell what becomes of a node that waits for something that nobody needs to do, if the pods that leave do not come back."""
    reason = status.hold.reason if status.hold is not None else None
    bare = _bare(status, plan) if reason is Reason.UNAVAILABLE_LIMIT and plan is not None else []
    if bare:
        take = "takes" if len(bare) == 1 else "take"
        yield (f"{some(bare)} {take} part of that room without being under way, as no DaemonSet makes a driver pod there: "
               f"`gpuward explain {bare[0]}` tells why")
    elif reason is not None and reason.is_turn and status.turn > MOST_STEPS:
        yield f"{status.turn - 1} nodes start before it: its turn comes without anybody's help"
    if reason is Reason.EVICTING and not any(pod.comes_back for pod in leaving):
        kept = [pod for pod in leaving if pod.kept(now)]
        yield from (f"pod {pod.ref} stays until its finalizer {', '.join(pod.kept_by_finalizers)} is removed: that is for the "
                    "controller that set it" for pod in kept[:MOST_KEPT])
        late = [pod for pod in leaving if pod.deleting and not pod.kept(now) and 0 < pod.ends < now - SLACK]
        yield from (f"the grace period of pod {pod.ref} has been over for {age(now - pod.ends)}, and it has not stopped: the "
                    "kubelet of its node does not answer, or a process of it hangs, as on a broken GPU or a mount that is away. "
                    f"{_at_the_end(status, policy)}" for pod in late[:MOST_KEPT])
        if not kept and (not late or len(late) < len(leaving)):
            yield f"nothing has to be done yet: pods have their grace periods to end. {_at_the_end(status, policy)}"
    if reason is Reason.EVICTION_REFUSED and policy.rollout.kill_at_deadline and _kills(status, policy):
        yield ("killAtDeadline: false in the RolloutPolicy keeps pods that are still there then: "
               f"{_without_killing(status, policy)} instead")
    if reason is Reason.JOBS_RUNNING and status.hold is not None:
        end = " or their time is up" if status.hold.until is not None else ""
        yield f"nothing has to be done: the node goes on as soon as its jobs are complete{end}"


def _bare(status: NodeStatus, plan: Plan) -> list[str]:
    """Return the nodes without a driver pod that are not under way and take the room for which a node waits."""
    what = status.hold.what if status.hold is not None else None
    theirs = isinstance(what, Limit) and not what.driver
    return [name for name, one in plan.nodes.items() if one.podless and one.state in AT_REST] if theirs else []


def _at_the_end(status: NodeStatus, policy: UpgradePolicy) -> str:
    if status.hold is None or status.hold.until is None:
        return "They are waited for without limit"
    if policy.rollout.undrainable is not None and policy.rollout.undrainable.behaviour is not Behaviour.HOLD:
        return "What becomes of the node when the time is up stands under UNTIL"
    if policy.rollout.kill_at_deadline:
        return "Those that are still there when the time is up are deleted"
    return f"If the time is up before they have gone, {_without_killing(status, policy)}"


def _kills(status: NodeStatus, policy: UpgradePolicy) -> bool:
    """Tell whether pods that stay are deleted when the time is up, and their node is not given up then."""
    until = status.hold.until if status.hold is not None else None
    return until is not None and not gives_up_within(policy, until - status.since)


def _without_killing(status: NodeStatus, policy: UpgradePolicy) -> str:
    drained = status.state is State.POD_DELETION_REQUIRED and policy.drain.enable
    return "the node is drained" if drained else "the upgrade of this node fails"
