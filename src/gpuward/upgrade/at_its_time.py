"""Say what follows when the time comes until which a node waits: the upgrade is decided again for then, on the facts of now."""

from __future__ import annotations

import msgspec

from gpuward.model.actions import PatchNode
from gpuward.model.explain import sentence
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.upgrade.decide import decide
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.words import aborted

_JUST_AFTER = 0.001
_ABORTED = "is tried again with another driver, or once the abort is taken back"


def at_its_time(snapshot: Snapshot, policy: UpgradePolicy, name: str, now: Plan) -> str:
    """Return what becomes of a node then if nothing else changes, by the plan of now; nothing for one that waits for no time, or
    takes a step at once: that time is then one of the step to come.
    """
    before = now.nodes[name]
    steps = (action for action in now.actions if isinstance(action, PatchNode) and action.node.name == name)
    if before.hold is None or before.hold.until is None or any(step.entered for step in steps):
        return ""
    plan = decide(_asked(snapshot, name), policy, before.hold.until + _JUST_AFTER)
    after = plan.nodes.get(name)
    if after is None:
        return "it leaves the upgrade"
    if after.state is State.FAILED and before.state is not State.FAILED:
        again = after.hold is not None and after.hold.reason is Reason.RETRY_LATER
        later = "is not tried again by itself"
        if again:
            later = _ABORTED if _is_aborted(snapshot, policy, name) else "is tried again later"
        return f"its upgrade fails{_service(snapshot, plan, name)}, and it {later}"
    return _outcome(before, after)


def _asked(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the facts with all pods of a node asked to go by then: who looks from outside does not know which were."""
    told = {pod.uid: Refusal(0.0, 1, "") for pod in snapshot.pods.get(name, ()) if not pod.deleting}
    return msgspec.structs.replace(snapshot, refusals=told | dict(snapshot.refusals))


def _outcome(before: NodeStatus, after: NodeStatus) -> str:
    if before.state is State.FAILED and after.state is not State.FAILED:
        held = after.hold is not None and after.hold.reason is Reason.ABORTED
        return f"it {_ABORTED}" if held else "its upgrade is tried again"
    if after.state in IN_PROGRESS and before.state not in IN_PROGRESS:
        return "its upgrade starts"
    if after.state is not before.state and after.state in IN_PROGRESS:
        return "the node is drained" if after.state is State.DRAIN_REQUIRED else f"it goes on to {after.state}"
    if after.state is not before.state:
        return f"it goes to {after.state or 'no state'}"
    if after.hold is None:
        return "it goes on"
    if after.hold.reason is Reason.KILLING and before.hold is not None and before.hold.reason is not Reason.KILLING:
        return "its pods are deleted whatever their budgets say (killAtDeadline)"
    if before.hold is not None and after.hold.reason is before.hold.reason:
        return "it goes on waiting"
    if after.hold.reason.is_turn:
        return "its turn may come"
    told = sentence(after.hold)
    if after.hold.reason is Reason.QUARANTINED:
        return f"it is {told}"
    return f"it {told}" if told.startswith("waits ") else told


def _is_aborted(snapshot: Snapshot, policy: UpgradePolicy, name: str) -> bool:
    """Tell whether the rollout of a node's driver was aborted: no further try begins then, whatever is left of its retries."""
    if policy.rollout.aborted is None:
        return False
    return any(node.node.name == name and aborted(node, policy) is not None for node in gather(snapshot, policy))


def _service(snapshot: Snapshot, plan: Plan, name: str) -> str:
    """Say what becomes of the cordon of a node whose upgrade fails."""
    patches = [action for action in plan.actions if isinstance(action, PatchNode) and action.node.name == name]
    if any(patch.unschedulable is False for patch in patches):
        return ", the node is uncordoned"
    return ", the node stays cordoned" if snapshot.nodes[name].unschedulable else ""
