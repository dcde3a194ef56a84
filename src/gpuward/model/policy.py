"""How a driver upgrade may disrupt the fleet: the policy that people write, typed and with every default filled in."""

from __future__ import annotations

import math

import msgspec

from gpuward.model.placement import Placing
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.model.selectors import PodSelection
from gpuward.model.switches import Switches
from gpuward.model.workloads import Workloads


class MaxUnavailable(msgspec.Struct, frozen=True):
    """Bound the nodes that may be unavailable at once, as a count or as a percentage of the managed nodes."""

    count: int | None = None
    percent: int | None = None

    def of(self, total: int) -> int:
        """Return the bound in nodes for a fleet of `total` nodes; percentages are rounded up, as Kubernetes does here."""
        if self.percent is not None:
            return math.ceil(self.percent * total / 100)
        return total if self.count is None else self.count

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.percent}%"
        return "no limit" if self.count is None else str(self.count)


class JobSettings(msgspec.Struct, frozen=True):
    """Let pods that match a selector finish before their node is emptied; 0 seconds wait for ever."""

    pod_selector: str = ""
    timeout_seconds: int = 0


class PodDeletionSettings(msgspec.Struct, frozen=True):
    """Say which GPU pods may be evicted, and how long that may take; 0 seconds wait for ever."""

    force: bool = False
    timeout_seconds: int = 300
    delete_empty_dir: bool = False


class DrainSettings(msgspec.Struct, frozen=True):
    """Say whether a node is drained of all its pods when evicting the GPU pods did not do."""

    enable: bool = False
    force: bool = False
    pod_selector: str = ""
    timeout_seconds: int = 300
    delete_empty_dir: bool = False


class UpgradePolicy(msgspec.Struct, frozen=True):
    """Hold `driver.upgradePolicy` with NVIDIA's defaults (reference: API type DriverUpgradePolicySpec of 26.7)."""

    auto_upgrade: bool = False
    switches: Switches = Switches()
    """What has them off, as far as that is known."""
    max_parallel_upgrades: int = 1
    """Nodes in progress at once; 0 is no limit."""
    max_unavailable: MaxUnavailable = MaxUnavailable(percent=25)
    wait_for_completion: JobSettings = JobSettings()
    pod_deletion: PodDeletionSettings = PodDeletionSettings()
    drain: DrainSettings = DrainSettings()
    admit: bool = True
    """False while the policy that people wrote is invalid: nodes in progress finish under this one, no other starts."""
    invalid: str = ""
    """What cannot be followed then, if it is not the policy itself: such as `RolloutPolicy default`."""
    absent: str = ""
    """Why no ClusterPolicy is in force, if none is: then nothing is started or evicted, whatever an NVIDIADriver says."""
    off: bool = False
    """Whether drivers are switched off: then each that is there is to go."""
    gone: bool = False
    """Whether the NVIDIADriver is gone: its drivers are to go, or to come from another one."""
    going: bool = False
    """Whether the NVIDIADriver is being deleted, and still there: its drivers are to go, or to come from another one."""
    unjudged: frozenset[str] = frozenset()
    """The NVIDIADrivers that are gone, and of which the garbage collector has yet to show how: nodes wait for that."""
    unseen: str = ""
    """Why it is not seen yet whether the drivers of the NVIDIADriver that is gone are to go: they stay until then."""
    free_only: bool = False
    """Whether only nodes are started that nothing has to leave: drivers are to go, and automatic upgrades are off."""
    driver: str = ""
    """The NVIDIADriver whose nodes this is about; empty for the ClusterPolicy."""
    unowned: bool = False
    """Whether this is only about nodes that no NVIDIADriver owns, or one that is gone."""
    asked: str = ""
    """The field manager that changed the driver's settings last, where managedFields tell."""
    edited: float = 0.0
    """When somebody changed the driver's settings or this policy, as far as this process has seen it; 0 where it has not."""
    rollout: RolloutSettings = RolloutSettings()
    placing: Placing | None = None
    """What decides where nodes' drivers come from; None where every driver comes from the same DaemonSet."""
    workloads: Workloads | None = None
    """What decides what nodes are for; None where that is not known."""

    @property
    def pods(self) -> PodSelection:
        """Return which pods matter under this policy."""
        holders = self.rollout.device_holders is not DeviceHolders.IGNORE
        return PodSelection(self.wait_for_completion.pod_selector, self.drain.enable, holders)
