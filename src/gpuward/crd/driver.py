"""`spec.driver` of ClusterPolicy, and the sidecars that share its pod."""

from typing import Annotated, ClassVar, Literal

from msgspec import field

from gpuward.crd.driver_upgrade import DriverUpgradePolicy
from gpuward.crd.facts import DEFAULTED, Spec
from gpuward.crd.shapes import ConfigMapName, DriverManager, Operand, Probe, Rdma, Sidecar

KernelModuleType = Literal["auto", "open", "proprietary"]


class RepoConfig(Spec, frozen=True, kw_only=True):
    """Name the ConfigMap with package repository files for the driver container."""

    config_map_name: str = ""


class LicensingConfig(Spec, frozen=True, kw_only=True):
    """Name the vGPU licence: a Secret, or a ConfigMap (deprecated; the Secret wins)."""

    config_map_name: str = ""
    secret_name: str = ""
    nls_enabled: bool | None = None

    @property
    def is_nls_enabled(self) -> bool:
        """Return whether the licence comes from the NVIDIA Licence System, also where the policy does not say."""
        return bool(self.nls_enabled)

    @property
    def used_config_map(self) -> str:
        """Return the ConfigMap that is used, empty where there is none, or a Secret."""
        return "" if self.secret_name else self.config_map_name


class VirtualTopology(Spec, frozen=True, kw_only=True):
    """Name the ConfigMap with the vGPU topology daemon's configuration."""

    config: str = ""


class Driver(Operand, frozen=True, kw_only=True):
    """Configure the driver DaemonSet."""

    enabled_by_default: ClassVar[bool] = True

    use_nvidia_driver_crd: bool | None = field(name="useNvidiaDriverCRD", default=None)
    use_precompiled: bool | None = None
    use_open_kernel_modules: bool | None = None
    kernel_module_type: Annotated[KernelModuleType, DEFAULTED] = "auto"
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    rdma: Rdma = Rdma()
    upgrade_policy: DriverUpgradePolicy = DriverUpgradePolicy()
    manager: DriverManager = DriverManager()
    repo_config: RepoConfig = RepoConfig()
    cert_config: ConfigMapName = ConfigMapName()
    licensing_config: LicensingConfig = LicensingConfig()
    virtual_topology: VirtualTopology = VirtualTopology()
    kernel_module_config: ConfigMapName = ConfigMapName()
    secret_env: str = ""

    @property
    def is_left_to_nvidia_drivers(self) -> bool:
        """Return whether drivers are managed by NVIDIADriver resources instead of this section."""
        return bool(self.use_nvidia_driver_crd)

    @property
    def is_precompiled(self) -> bool:
        """Return whether driver containers with precompiled kernel modules are used, one DaemonSet per kernel."""
        return bool(self.use_precompiled)

    @property
    def makes_precompiled(self) -> bool:
        """Return whether this section makes such drivers: not where drivers are switched off, or NVIDIADrivers'."""
        return self.is_enabled and self.is_precompiled and not self.is_left_to_nvidia_drivers

    @property
    def is_upgraded(self) -> bool:
        """Return whether the drivers that this section makes are upgraded automatically."""
        return self.is_enabled and self.upgrade_policy.auto_upgrade

    @property
    def is_off(self) -> bool:
        """Return whether drivers are switched off: those of NVIDIADrivers are not switched here."""
        return not self.is_enabled and not self.is_left_to_nvidia_drivers


class Gds(Sidecar, frozen=True, kw_only=True):
    """Configure GPUDirect Storage, the `nvidia-fs` module."""


class Gdrcopy(Sidecar, frozen=True, kw_only=True):
    """Configure GDRCopy, the `gdrdrv` module."""
