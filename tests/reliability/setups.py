"""Where the drivers of the disturbed rollout come from: the ClusterPolicy, two NVIDIADrivers, or one image for each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from gpuward import names
from kubesandbox.builders import SYSTEMS
from tests.journeys.stage import NEW, OLD, POLICY
from tests.operands.build import EXAMPLES

Object = dict[str, Any]

POLICIES: Final = "clusterpolicies.nvidia.com"
NVIDIA_DRIVERS: Final = "nvidiadrivers.nvidia.com"
POOL: Final = "example.com/pool"
POD_DELETION: Final = {"deleteEmptyDir": False, "force": False, "timeoutSeconds": 3600}
OTHER_KERNEL: Final = "5.15.0-119-generic"


class Limits(NamedTuple):
    """Hold how many of some nodes may be under way, and out of service, at once."""

    nodes: tuple[str, ...]
    parallel: int
    unavailable: int

    @property
    def policy(self) -> Object:
        """Return the upgrade policy."""
        return {"autoUpgrade": True, "maxParallelUpgrades": self.parallel, "maxUnavailable": self.unavailable,
                "podDeletion": POD_DELETION}


class Setup(NamedTuple):
    """Say where drivers come from, by the name of what says it: the ClusterPolicy, or NVIDIADrivers."""

    governors: Mapping[str, Limits]
    versions: tuple[str, str, str] = (OLD, NEW, "595.91.09")
    """The driver at first, the one of the first rollout, and the one that is taken back."""
    owned: bool = False
    """Whether drivers are those of NVIDIADrivers."""
    other_kernel: tuple[str, ...] = ()
    """Which nodes run the second kernel where drivers are precompiled; none where they are compiled on the node."""

    patience: str = "1m"
    """How long a driver may take. It is longer where a node that is tried again after the pause does not wait for another one: no
    disturbance may carry the next picture beyond its end."""

    @property
    def settings(self) -> Object:
        """Return gpuward's own settings."""
        return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
                "spec": {"deadlines": {"pod-restart-required": self.patience}, "retryBackoff": "4m"}}

    def first(self, obj: Object) -> None:
        """Let the ClusterPolicy ask for the driver at first."""
        driver = obj["spec"]["driver"]
        driver["useNvidiaDriverCRD"] = self.owned
        if self.other_kernel:
            driver |= {"usePrecompiled": True, "version": self.versions[0]}

    def drivers(self) -> list[Object]:
        """Return the NVIDIADrivers."""
        return [_nvidia_driver(name, limits, self.versions[0]) for name, limits in self.governors.items()] if self.owned else []

    def furnish(self, node: Object) -> None:
        """Put a node into its pool, or let it run its kernel."""
        labels, name = node["metadata"]["labels"], node["metadata"]["name"]
        if self.owned:
            labels[POOL] = next(pool for pool, limits in self.governors.items() if name in limits.nodes)
        if self.other_kernel:
            system = SYSTEMS["ubuntu22.04"]
            kernel = OTHER_KERNEL if name in self.other_kernel else system.kernel
            labels |= {names.NFD_KERNEL: kernel, names.NFD_OS_VERSION: system.version}
            node["status"]["nodeInfo"]["kernelVersion"] = kernel


def _nvidia_driver(name: str, limits: Limits, version: str) -> Object:
    body: Object = yaml.safe_load((EXAMPLES / "nvidiadriver.yaml").read_text())
    body["metadata"]["name"] = name
    body["spec"] |= {"version": version, "default": False, "nodeSelector": {POOL: name}}
    body["spec"]["upgradePolicy"] |= limits.policy
    return body


NODES: Final = tuple(f"gpu-{number}" for number in range(1, 8))
ONE: Final = {POLICY: Limits(NODES, 2, 4)}

SETUPS: Final[Mapping[str, Setup]] = {
    "clusterpolicy": Setup(ONE),
    "two-nvidiadrivers": Setup({"a": Limits(("gpu-1", "gpu-2", "gpu-3", "gpu-7"), 2, 2),
                                "b": Limits(("gpu-4", "gpu-5", "gpu-6"), 1, 3)}, owned=True, patience="2m"),
    "precompiled-two-kernels": Setup(ONE, ("595", "600", "610"), other_kernel=("gpu-2", "gpu-5", "gpu-6")),
}
