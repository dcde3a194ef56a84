"""Which pods the operator keeps: what the upgrade policies in force make relevant, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from gpuward.kube.cluster import Cluster
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import DeviceHolders
from gpuward.model.selectors import matches
from gpuward.model.views import PodView
from gpuward.policy.nvidiadrivers import DriverReader
from gpuward.ports import Observer
from gpuward.wire.pods import keep_pods

AFTER_TROUBLE: Final = 30.0
"""Seconds until policies that could not be read are read again unasked."""


class Interest:
    """Keep the cluster's pods in step with the policies. Until that is so, no upgrade is decided."""

    def __init__(self, cluster: Cluster, reader: DriverReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._log = structlog.get_logger(source="controllers.Upgrade")
        self._followed = _selections([UpgradePolicy()])
        cluster.keep_pod = keep_pods(cluster.namespace)

    def covers(self, *policies: UpgradePolicy) -> bool:
        """Tell whether every pod that matters under these policies is known."""
        return self._followed == _selections(policies) and self._cluster.pods.synced.is_set()

    async def run(self, observer: Observer) -> None:
        """Follow other pods whenever the policies make others relevant. Ends only by cancellation."""
        while True:
            try:
                policies = self._reader.read(observer.observe()).upgrades
            except Exception:  # what is in a policy must not end the operator, which can do much without
                self._log.exception("The policies cannot be read")
                await observer.changed(AFTER_TROUBLE)
                continue
            if self._followed != _selections(policies):
                self._followed = _selections(policies)
                tests = [test for policy in policies for test in _tests(policy)]
                holders = any(map(_holders, policies))
                self._cluster.follow_pods(keep_pods(self._cluster.namespace, tests, holders=holders))
            await observer.changed(None)


def _selections(policies: Iterable[UpgradePolicy]) -> frozenset[tuple[str, bool, bool]]:
    return frozenset(map(_selection, policies))


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
