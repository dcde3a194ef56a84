"""Which pods the operator keeps: what the upgrade policies in force make relevant, and nothing else."""

from __future__ import annotations

from typing import Final

from gpuward.kube.cluster import Cluster
from gpuward.model.policy import UpgradePolicy
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.policy.pods import pod_filter, selections
from gpuward.ports import NO_LOG, Log, Observer

AFTER_TROUBLE: Final = 30.0
"""Seconds until policies that could not be read are read again unasked."""


class PodFilter:
    """Keep the cluster's pods in step with the policies. Until that is so, no upgrade is decided."""

    def __init__(self, cluster: Cluster, reader: PolicyReader, log: Log = NO_LOG) -> None:
        self._cluster = cluster
        self._reader = reader
        self._log = log
        self._selected = selections([UpgradePolicy()])
        self._follow()

    async def run(self, observer: Observer) -> None:
        """Follow other pods whenever the policies make others relevant. Ends only by cancellation."""
        while True:
            try:
                selected = selections(self._reader.read(observer.observe()).upgrades)
            except Exception:  # what is in a policy must not end the operator, which can do much without
                self._log.exception("The policies cannot be read")
                await observer.changed(AFTER_TROUBLE)
                continue
            if self._selected != selected:
                self._selected = selected
                self._follow()
            await observer.changed(None)

    def _follow(self) -> None:
        self._cluster.follow_pods(self._selected, pod_filter(self._cluster.namespace, self._selected))
