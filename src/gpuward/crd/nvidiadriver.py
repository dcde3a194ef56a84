"""NVIDIADriver (`nvidia.com/v1alpha1`): one driver for a part of the cluster's nodes."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import field

from gpuward.crd.driver import Gdrcopy, Gds, KernelModuleType
from gpuward.crd.driver_upgrade import NVIDIADriverUpgradePolicy
from gpuward.crd.facts import DEFAULTED, REQUIRED, KubeObject, Spec, cel
from gpuward.crd.kubernetes import Condition, NodeAffinity, PodSecurityContext, Toleration
from gpuward.crd.shapes import ConfigMapName, DriverManager, EnvVar, Probe, Rdma, Resources
from gpuward.model.owners import FOR_HOSTS
from gpuward.names import NVIDIA_DRIVER_VERSION, NVIDIA_GROUP

DriverType = Literal["gpu", "vgpu", "vgpu-host-manager"]
NVIDIADriverState = Literal["ignored", "ready", "notReady", "disabled"]


def _immutable(name: str) -> str:
    return (f"{name} is an immutable field. Please create a new NvidiaDriver resource instead "
            "when you want to change this setting.")


_NO_SELECTOR_ON_DEFAULT: Final = cel(
    "has(self.default) && self.default ? !has(self.nodeSelector) || size(self.nodeSelector) == 0 : true",
    "default NVIDIADriver must not use nodeSelector",
)


class NVIDIADriverLicensing(Spec, frozen=True, kw_only=True):
    """Name the vGPU licence: a Secret, or a ConfigMap (deprecated; the Secret wins)."""

    name: str = ""
    secret_name: str = ""
    nls_enabled: bool | None = None

    @property
    def is_nls_enabled(self) -> bool:
        """Return whether the NVIDIA Licence System is used; unlike in ClusterPolicy it is unless turned off."""
        return self.nls_enabled is not False

    @property
    def used_config_map(self) -> str:
        """Return the ConfigMap that is used, empty where there is none, or a Secret."""
        return "" if self.secret_name else self.name


class NVIDIADriverSpec(Spec, frozen=True, kw_only=True):
    """Configure a driver and the nodes that it is for."""

    default: Annotated[bool, DEFAULTED, REQUIRED] = False
    driver_type: Annotated[DriverType, DEFAULTED, REQUIRED, cel("self == oldSelf", _immutable("driverType"))] = "gpu"
    use_precompiled: Annotated[bool, cel("self == oldSelf", _immutable("usePrecompiled"))] | None = None
    use_open_kernel_modules: bool | None = None
    kernel_module_type: Annotated[KernelModuleType, DEFAULTED] = "auto"
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    rdma: Rdma = Rdma()
    gds: Gds = Gds()
    gdrcopy: Gdrcopy = Gdrcopy()
    repository: str = ""
    image: Annotated[str, DEFAULTED, REQUIRED] = "nvcr.io/nvidia/driver"
    version: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    manager: DriverManager = DriverManager()
    resources: Resources | None = None
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    secret_env: str = ""
    repo_config: ConfigMapName = ConfigMapName()
    cert_config: ConfigMapName = ConfigMapName()
    licensing_config: NVIDIADriverLicensing = NVIDIADriverLicensing()
    virtual_topology_config: ConfigMapName = ConfigMapName()
    kernel_module_config: ConfigMapName = ConfigMapName()
    node_selector: dict[str, str] = field(default_factory=dict)
    node_affinity: NodeAffinity | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    pod_security_context: PodSecurityContext | None = None
    host_network: bool | None = None
    upgrade_policy: NVIDIADriverUpgradePolicy = NVIDIADriverUpgradePolicy()

    @property
    def is_precompiled(self) -> bool:
        """Return whether driver containers with precompiled kernel modules are used, one DaemonSet per kernel."""
        return bool(self.use_precompiled)

    @property
    def is_for_hosts(self) -> bool:
        """Return whether it is the driver of hosts whose GPUs virtual machines share, and not one for containers."""
        return self.driver_type == FOR_HOSTS


class NVIDIADriverStatus(Spec, frozen=True, kw_only=True):
    """Report how far the driver's nodes are from what is asked for."""

    state: NVIDIADriverState
    namespace: str = ""
    conditions: tuple[Condition, ...] = ()


class NVIDIADriver(Spec, frozen=True, kw_only=True):
    """Configure a driver for a part of the cluster's nodes, and report its state."""

    api_version: ClassVar[str] = f"{NVIDIA_GROUP}/{NVIDIA_DRIVER_VERSION}"
    kind: ClassVar[str] = "NVIDIADriver"

    metadata: KubeObject = field(default_factory=dict)
    spec: Annotated[NVIDIADriverSpec, _NO_SELECTOR_ON_DEFAULT] = NVIDIADriverSpec()
    status: NVIDIADriverStatus | None = None

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.metadata.get("name", ""))
