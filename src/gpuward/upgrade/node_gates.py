"""The gates of admission that look at the node and the policy alone: each holds a node that wants to start, or lets it pass.

They are asked in the order of the list below, before those of `fleet_gates`, and the first one that holds is the reason that
people read. A new rule is a function here or there, and its place in the list.
"""

from __future__ import annotations

from gpuward import names
from gpuward.model.obstacles import HoldsDriver
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.removal import DriverKept
from gpuward.model.undrainable import Undrainable
from gpuward.model.waits import HeldDevices, InvalidPolicy, OperandPod, Plain, ProtectedPods, TwoDriverPods
from gpuward.upgrade.fleet import NOBODY, Candidate, Fleet, Gate
from gpuward.upgrade.uncordon import has_users
from gpuward.upgrade.validation_off import is_off
from gpuward.upgrade.waits import driver_starting, pod_missing, settling


def skipped(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that carries the skip label."""
    if node.node.labels.get(names.UPGRADE_SKIP) == "true":
        return Hold(Plain(Reason.SKIPPED), node.record.since)
    return None


def invalid_policy(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node while the policy that people wrote is invalid; its condition says what is wrong."""
    if policy.admit:
        return None
    return Hold(InvalidPolicy(policy.invalid or "the policy"), node.record.since)


def node_gone(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that is on its way out of the cluster: upgrading it would be for nothing."""
    return Hold(Plain(Reason.NODE_GONE), node.record.since) if node.node.deleting else None


def not_ready(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that is not Ready, or does not say: its pods could neither be evicted nor started."""
    return None if node.node.ready else Hold(Plain(Reason.NODE_NOT_READY), node.node.turned or node.record.since)


def driver_type(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that is another NVIDIADriver's now, which brings no driver for containers: it keeps the one that it has."""
    return Hold(node.unserved, node.record.since) if node.unserved is not None and node.keeps_driver else None


def driver_pod_missing(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that has no driver pod, or one that goes or finds no place, or after which none comes: it would keep a slot
    until one turned up, which may be never. One from which the driver is withheld gets it once it is emptied.
    """
    if node.driver is None and node.withheld:
        return None
    if node.driver is None or node.stranded:
        return pod_missing(node, node.record.since)
    if node.unplaced and node.in_step:
        return driver_starting(node, node.driver, node.record.since)
    return Hold(OperandPod(node.driver.ref, Reason.DRIVER_STOPPING), node.record.since) if node.driver.deleting else None


def two_driver_pods(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node with several driver pods: which one holds the driver cannot be known from here."""
    if node.driver_pods > 1:
        return Hold(TwoDriverPods(node.driver_pods), node.record.since)
    return None


def template_settling(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while it is not known which revision its driver pod would get."""
    return None if node.target else settling(node, node.record.since)


def driver_repelled(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, to which no next driver pod would come for its taints. One in step that waits for leave
    to load stays.
    """
    if not node.would_repel or (node.in_step and node.safe_load) or _only_loses(node, policy):
        return None
    return Hold(Plain(Reason.DRIVER_REPELLED, taints=tuple(map(str, node.would_repel))), node.record.since)


def validation_off(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose new driver nobody would validate: it would fail, and stay out of service."""
    return Hold(Plain(Reason.VALIDATION_OFF), node.record.since) if is_off(node) and not _only_loses(node, policy) else None


def image_missing(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, for which there is no image of the driver that it should have."""
    return None if _only_loses(node, policy) else node.image


def _only_loses(node: Candidate, policy: UpgradePolicy) -> bool:
    """Tell whether the driver of a node goes, and none comes after it: as it is switched off, or its NVIDIADriver is gone."""
    return node.removing or (policy.gone and (node.moving is None or not node.moving.owner))


def operands_starting(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose driver pod is only restarted until an operand keeps the driver loaded under its GPU pods meanwhile."""
    if node.restart_only or not (node.same_driver and node.loaded and node.module_holders.awaited):
        return None
    return Hold(Plain(Reason.OPERANDS_STARTING), node.record.since)


def driver_kept(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose driver is to go, and that somebody uses, where nobody is evicted for that."""
    if not (policy.free_only and has_users(node)):
        return None
    pods = [*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked), *node.jobs]
    return Hold(DriverKept(pods[0].ref, len({pod.uid for pod in pods})), node.record.since)


def held_devices(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose pods would not let the driver go; a drain may be allowed to take them."""
    if node.restart_only:
        return None
    in_the_way = node.to_drain.blocked if policy.drain.enable else node.to_evict.blocked
    for blocked in in_the_way:
        if isinstance(blocked.why, HoldsDriver):
            return Hold(HeldDevices(blocked.pod.ref, blocked.pod.owner, blocked.why.how), node.record.since)
    return None


def undrainable(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that was given back, until nothing has to leave it, it is to have yet another driver, or somebody asks."""
    given_up = node.record.given_up
    if given_up is None or policy.rollout.undrainable is None or node.requested or node.retargeted or not has_users(node):
        return None
    return Hold(Undrainable(given_up.cause), given_up.at)


def protected_pods(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose GPU pods could never be evicted; a drain may be allowed to take them."""
    if node.restart_only or not node.to_evict.blocked:
        return None
    blocked = node.to_drain.blocked if policy.drain.enable else node.to_evict.blocked
    if not blocked:
        return None
    return Hold(ProtectedPods(blocked[0].pod.ref, len(blocked), blocked[0].why), node.record.since)


NODE_GATES: tuple[Gate, ...] = (
    skipped,
    invalid_policy,
    node_gone,
    not_ready,
    driver_type,
    driver_pod_missing,
    two_driver_pods,
    template_settling,
    driver_repelled,
    validation_off,
    image_missing,
    operands_starting,
    driver_kept,
    held_devices,
    protected_pods,
    undrainable,
)
"""In the order in which they are asked."""


def held_by_itself(node: Candidate, policy: UpgradePolicy) -> Hold | None:
    """Return what holds a node that wants to start, whatever the others do."""
    return next((held for gate in NODE_GATES if (held := gate(node, NOBODY, policy)) is not None), None)
