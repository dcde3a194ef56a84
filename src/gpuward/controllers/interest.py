"""Which pods the operator keeps: what the upgrade policy in force makes relevant, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from gpuward.controllers.policies import PolicyReader
from gpuward.kube.cluster import Cluster
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import DeviceHolders
from gpuward.model.views import PodView
from gpuward.ports import Observer
from gpuward.upgrade.selectors import matches
from gpuward.wire.pods import keep_pods


class Interest:
    """Keep the cluster's pods in step with the policy. Until that is so, no upgrade is decided."""

    def __init__(self, cluster: Cluster, reader: PolicyReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._followed = _selection(UpgradePolicy())
        cluster.keep_pod = keep_pods(cluster.namespace)

    def covers(self, policy: UpgradePolicy) -> bool:
        """Tell whether every pod that matters under this policy is known."""
        return self._followed == _selection(policy) and self._cluster.pods.synced.is_set()

    async def run(self, observer: Observer) -> None:
        """Follow other pods whenever the policy makes others relevant. Ends only by cancellation."""
        while True:
            policy = self._reader.read(observer.observe()).upgrades
            if self._followed != _selection(policy):
                self._followed = _selection(policy)
                self._cluster.follow_pods(keep_pods(self._cluster.namespace, _tests(policy), holders=_holders(policy)))
            await observer.changed(None)


def _selection(policy: UpgradePolicy) -> tuple[str, bool, bool]:
    return policy.wait_for_completion.pod_selector, policy.drain.enable, _holders(policy)


def _holders(policy: UpgradePolicy) -> bool:
    return policy.rollout.device_holders is not DeviceHolders.IGNORE


def _tests(policy: UpgradePolicy) -> list[Callable[[PodView], bool]]:
    """Return the further tests: pods that may finish first, and, where nodes are drained, all that a drain evicts."""
    tests: list[Callable[[PodView], bool]] = []
    if selector := policy.wait_for_completion.pod_selector:
        tests.append(lambda pod: matches(selector, pod.labels))
    if policy.drain.enable:
        tests.append(lambda pod: pod.owner is None or pod.owner.kind != "DaemonSet")
    return tests
