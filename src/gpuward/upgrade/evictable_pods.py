"""Which pods must leave a node before its driver is replaced, and which of them may not be evicted.

The rules are those of `kubectl drain` as NVIDIA's upgrade library applies them (reference: operator-libs pod and drain managers,
kubectl 0.36 drain filters): DaemonSet and static pods are never evicted, pods without a controller only by force, and pods with
emptyDir volumes only where losing them is permitted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuward import names
from gpuward.model.actions import LastLook
from gpuward.model.driver import comes_with_driver, uses_driver
from gpuward.model.obstacles import HoldsDriver, LosesData, NotStartedAgain, Obstacle, OfDaemonSet, Setting, StaticPod
from gpuward.model.policy import DrainSettings, PodDeletionSettings, UpgradePolicy
from gpuward.model.rollout import DeviceHolders
from gpuward.model.selectors import matches
from gpuward.model.views import NodeView, PodView


class Blocked(msgspec.Struct, frozen=True):
    """Name a pod that must leave but may not be evicted, and what would permit it."""

    pod: PodView
    why: Obstacle


class EvictablePods(msgspec.Struct, frozen=True):
    """Split the pods that must leave into those that may be evicted and those that block."""

    pods: tuple[PodView, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    look: LastLook = LastLook()
    """By which such pods are known: one that comes later has to leave, too."""

    @property
    def empty(self) -> bool:
        """Tell whether nothing has to leave."""
        return not self.pods and not self.blocked

    @property
    def may_run(self) -> bool:
        """Tell whether any may run with a driver: of those that are not in `running` nobody can tell that they do not."""
        for pod in self.pods:
            if pod.ready or pod.unheard:
                return True
        return any(blocked.pod.ready or blocked.pod.unheard for blocked in self.blocked)

    def running(self, node: NodeView) -> tuple[PodView, ...]:
        """Return those that run on the machine that is their node's now."""
        there = (*self.pods, *(blocked.pod for blocked in self.blocked))
        return tuple(pod for pod in there if pod.ready and not pod.was_left_by(node))


def pods_to_evict(pods: Iterable[PodView], policy: UpgradePolicy, namespace: str, *, variable: bool = True) -> EvictablePods:
    """Return the pods that have to go before the driver is replaced: those that use a GPU, and those that hold the driver.

    `variable` tells whether the node heeds NVIDIA_VISIBLE_DEVICES in any container: else that alone holds nothing.
    """
    holders = policy.rollout.device_holders
    look = LastLook(holders is not DeviceHolders.IGNORE, variable)
    users = users_of_driver(pods, look, namespace)
    held = [Blocked(pod, HoldsDriver(pod.holds)) for pod in users if _only_holds(pod, holders)]
    rest = _sorted_out((pod for pod in users if not _only_holds(pod, holders)), policy.pod_deletion)
    return EvictablePods(rest.pods, (*rest.blocked, *held), look)


def users_of_driver(pods: Iterable[PodView], look: LastLook, namespace: str) -> list[PodView]:
    """Return the pods that need the driver that is loaded, without those that come and go with it."""
    return [pod for pod in pods if not comes_with_driver(pod, namespace) and uses_driver(pod, namespace, variable=look.variable)
            and (pod.uses_gpu or look.holders)]


def _only_holds(pod: PodView, holders: DeviceHolders) -> bool:
    return not pod.uses_gpu and holders is DeviceHolders.HOLD and not pod.deleting


def _sorted_out(pods: Iterable[PodView], rules: PodDeletionSettings | DrainSettings) -> EvictablePods:
    going, blocked = [], []
    for pod in pods:
        why = _obstacle(pod, rules)
        if why is None:
            going.append(pod)
        elif not _ignored(pod, rules):
            blocked.append(Blocked(pod, why))
    return EvictablePods(tuple(going), tuple(blocked))


def pods_to_drain(pods: Iterable[PodView], policy: UpgradePolicy, namespace: str, *, variable: bool = True) -> EvictablePods:
    """Return the pods that a drain takes and, besides, every GPU pod: a drain may pass over one that still holds the driver.

    A pod may go if the rules of the drain or those of the pod deletion permit it.
    """
    pods = tuple(pods)
    drained = _sorted_out(
        (pod for pod in pods if not comes_with_driver(pod, namespace) and _drained(pod, policy.drain, namespace)), policy.drain)
    users = pods_to_evict(pods, policy, namespace, variable=variable)
    going = {pod.ref: pod for pod in (*drained.pods, *users.pods)}
    blocked = {held.pod.ref: held for held in (*users.blocked, *drained.blocked) if held.pod.ref not in going}
    return EvictablePods(tuple(going.values()), tuple(blocked.values()))


def _drained(pod: PodView, rules: DrainSettings, namespace: str) -> bool:
    selector = f"{rules.pod_selector},{names.DRAIN_SKIP}!=true" if rules.pod_selector else f"{names.DRAIN_SKIP}!=true"
    return matches(selector, pod.labels) and not (pod.pulls is not None and pod.namespace == namespace)


def _ignored(pod: PodView, rules: PodDeletionSettings | DrainSettings) -> bool:
    """Tell whether a drain passes over the pod without a word: DaemonSet pods and static ones."""
    return isinstance(rules, DrainSettings) and (pod.mirror or pod.of_daemonset)


def _obstacle(pod: PodView, rules: PodDeletionSettings | DrainSettings) -> Obstacle | None:
    where: Setting = "drain" if isinstance(rules, DrainSettings) else "podDeletion"
    if pod.mirror:
        return StaticPod()
    if pod.owner is not None and pod.of_daemonset:
        return OfDaemonSet(pod.owner.name)
    if pod.finished or pod.deleting:
        return None
    if pod.empty_dir and not rules.delete_empty_dir:
        return LosesData(where)
    if pod.owner is None and not rules.force:
        return NotStartedAgain(where)
    return None
