"""What the node labels depend on in a ClusterPolicy, and the sets of operand labels per kind of workload."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.model.owners import Claim
from gpuward.model.placement import Placing
from gpuward.model.resetting import CC_MANAGER, VGPU_DEVICE_MANAGER, Manager
from gpuward.model.rollout import RolloutSettings
from gpuward.model.workloads import FOR_CONTAINERS, FOR_PASSTHROUGH, FOR_VGPU, Workload, Workloads, keys

_DEFAULTS = RolloutSettings()


MIG_MANAGER = names.DEPLOY_PREFIX + "mig-manager"
_SANDBOX_PLUGINS = keys("sandbox-device-plugin", "kata-sandbox-device-plugin")
KNOWN = FOR_CONTAINERS | FOR_PASSTHROUGH | FOR_VGPU | _SANDBOX_PLUGINS | {MIG_MANAGER}
"""Every operand label that the operator sets; other `nvidia.com/gpu.deploy.*` labels are never touched."""
_READ = names.PLACED_BY | {names.DEPLOY_OPERANDS, names.WORKLOAD_CONFIG, *names.NFD_GPU_LABELS,
                           names.NFD_OS_ID, names.NFD_OS_VERSION, names.NFD_KERNEL}


class LabelSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold what a ClusterPolicy says about labels, as it is remembered."""

    driver_upgrades: bool = False
    default_mig_config: str = ""
    precompiled: bool = False
    left_to_drivers: bool = False
    """Whether drivers are left to NVIDIADrivers."""
    sandbox_workloads: bool = False
    default_workload: Workload = Workload.CONTAINER
    kata: bool = False
    cc_manager: bool = False
    vgpu_device_manager: bool = False


class LabelPolicy(msgspec.Struct, frozen=True):
    """Hold what the labels of a node depend on, besides the node."""

    driver_upgrades: bool = False
    """Whether drivers are managed and upgraded automatically: then nodes say so to the driver manager."""
    sandbox_workloads: bool = False
    default_workload: Workload = Workload.CONTAINER
    kata: bool = False
    cc_manager: bool = False
    """Whether hosts are to have the manager of confidential computing."""
    vgpu_device_manager: bool = False
    """Whether hosts are to have the manager of vGPU devices."""
    default_mig_config: str = ""
    precompiled: bool = False
    """Whether the ClusterPolicy's drivers are precompiled."""
    claims: tuple[Claim, ...] | None = None
    """What NVIDIADrivers say about nodes; None where drivers are the ClusterPolicy's."""
    owners_stay: bool = False
    """Whether no node goes from one NVIDIADriver to another, because what they are under cannot be followed now."""
    remove_at_once: bool = False
    """Whether operands go from a node at once where somebody wants none there, whatever runs on it."""
    discovery_grace: float = _DEFAULTS.discovery_grace
    """Seconds for which a node keeps its operands though discovery says that it has no GPU."""

    @property
    def placing(self) -> Placing:
        """Return what decides where drivers come from."""
        return Placing(self.claims, self.precompiled, self.owners_stay)

    @property
    def read(self) -> frozenset[str]:
        """Return the labels of a node that others write, and from which it follows whether it has a driver, and whose."""
        return _READ.union(*(claim.selector for claim in self.claims or ()))

    @property
    def workloads(self) -> Workloads:
        """Return what decides what nodes are for."""
        return Workloads(self.sandbox_workloads, self.default_workload)

    @property
    def resetting(self) -> tuple[Manager, ...]:
        """Return the managers that hosts are to have, and that may take GPUs from virtual machines as they start."""
        return tuple(manager for wanted, manager in (
            (self.cc_manager, CC_MANAGER), (self.vgpu_device_manager, VGPU_DEVICE_MANAGER)) if wanted)

    def operand_labels(self, workload: Workload) -> frozenset[str]:
        """Return the operand labels that a node for this workload carries."""
        if workload is Workload.CONTAINER:
            return FOR_CONTAINERS
        if workload is Workload.VM_VGPU:
            return FOR_VGPU
        return FOR_PASSTHROUGH | keys("kata-sandbox-device-plugin" if self.kata else "sandbox-device-plugin")


def label_policy(
    policy: ClusterPolicy, claims: Iterable[Claim] = (), settings: RolloutSettings = _DEFAULTS
) -> LabelPolicy:
    """Return what a ClusterPolicy, the NVIDIADrivers that it leaves drivers to, and our own settings say about node labels."""
    spec = policy.spec
    sandbox, mig = spec.sandbox_workloads, spec.mig_manager
    upgrades = spec.driver.is_enabled and spec.driver.upgrade_policy.auto_upgrade
    return LabelPolicy(
        driver_upgrades=upgrades and not sandbox.is_enabled,
        sandbox_workloads=sandbox.is_enabled,
        default_workload=Workload(sandbox.default_workload),
        kata=sandbox.mode == "kata",
        cc_manager=sandbox.is_enabled and sandbox.mode == "kata" and spec.cc_manager.is_enabled,
        vgpu_device_manager=sandbox.is_enabled and spec.vgpu_device_manager.is_enabled,
        default_mig_config=mig.config.default if mig.is_enabled and mig.config is not None else "",
        precompiled=spec.driver.is_precompiled,
        claims=tuple(claims) if spec.driver.is_left_to_nvidia_drivers else None,
        remove_at_once=settings.remove_at_once,
        discovery_grace=settings.discovery_grace,
    )


def label_settings(policy: ClusterPolicy) -> LabelSettings:
    """Return what is remembered of a ClusterPolicy for the time in which it cannot be followed."""
    found = label_policy(policy)
    return LabelSettings(found.driver_upgrades, found.default_mig_config, found.precompiled, found.claims is not None,
                         found.sandbox_workloads, found.default_workload, found.kata, found.cc_manager,
                         found.vgpu_device_manager)


def remembered_policy(
    last: LabelSettings, claims: Iterable[Claim] = (), settings: RolloutSettings = _DEFAULTS
) -> LabelPolicy:
    """Return what node labels depend on while the ClusterPolicy cannot be followed: nodes that join get theirs all the same."""
    return LabelPolicy(
        driver_upgrades=last.driver_upgrades,
        sandbox_workloads=last.sandbox_workloads,
        default_workload=last.default_workload,
        kata=last.kata,
        cc_manager=last.cc_manager,
        vgpu_device_manager=last.vgpu_device_manager,
        default_mig_config=last.default_mig_config,
        precompiled=last.precompiled,
        claims=tuple(claims) if last.left_to_drivers else None,
        owners_stay=True,
        remove_at_once=settings.remove_at_once,
        discovery_grace=settings.discovery_grace,
    )
