"""ClusterPolicy (`nvidia.com/v1`): the one resource that configures the whole GPU stack of a cluster."""

from typing import Annotated, ClassVar, Literal

from msgspec import field

from gpuward.crd.components import (
    Dcgm,
    DcgmExporter,
    DevicePlugin,
    Gfd,
    Mig,
    MigManager,
    NodeStatusExporter,
    Toolkit,
    Validator,
)
from gpuward.crd.driver import Driver, Gdrcopy, Gds
from gpuward.crd.facts import DEFAULTED, REQUIRED, KubeObject, Spec
from gpuward.crd.kubernetes import Condition, PodSecurityContext, Toleration
from gpuward.crd.sandboxes import (
    CcManager,
    KataManager,
    KataSandboxDevicePlugin,
    SandboxDevicePlugin,
    SandboxWorkloads,
    VfioManager,
    VgpuDeviceManager,
    VgpuManager,
)
from gpuward.crd.shapes import Image, ServiceMonitor, Switch
from gpuward.names import CLUSTER_POLICY_VERSION, NVIDIA_GROUP

ClusterPolicyState = Literal["ignored", "ready", "notReady"]


class OperatorMetrics(Spec, frozen=True, kw_only=True):
    """Configure how the operator's own metrics are scraped."""

    service_monitor: ServiceMonitor = ServiceMonitor()


class OperatorSpec(Spec, frozen=True, kw_only=True):
    """Configure the operator itself."""

    default_runtime: str = ""
    runtime_class: Annotated[str, DEFAULTED] = "nvidia"
    init_container: Image = Image()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    metrics: OperatorMetrics = OperatorMetrics()
    use_ocp_driver_toolkit: bool | None = field(name="use_ocp_driver_toolkit", default=None)


class RollingUpdate(Spec, frozen=True, kw_only=True):
    """Limit rolling updates of the operand DaemonSets: a number or a percentage of nodes, as a string."""

    max_unavailable: str = ""


class Daemonsets(Spec, frozen=True, kw_only=True):
    """Configure what all operand DaemonSets share."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    update_strategy: Annotated[Literal["RollingUpdate", "OnDelete"], DEFAULTED] = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()
    pod_security_context: PodSecurityContext | None = None


class Psp(Switch, frozen=True, kw_only=True):
    """Accept the pod security policy switch, which no longer has a meaning."""


class Psa(Switch, frozen=True, kw_only=True):
    """Label the operator's namespace for privileged pod security admission."""


class Cdi(Spec, frozen=True, kw_only=True):
    """Configure the Container Device Interface."""

    enabled: Annotated[bool, DEFAULTED] = True
    default: Annotated[bool, DEFAULTED] = False
    nri_plugin_enabled: Annotated[bool, DEFAULTED] = False

    @property
    def is_enabled(self) -> bool:
        """Return whether devices are handed to containers through CDI."""
        return self.enabled

    @property
    def is_nri_plugin_enabled(self) -> bool:
        """Return whether the NRI plugin hands devices to operands; validation insists on CDI with it."""
        return self.nri_plugin_enabled


class HostPaths(Spec, frozen=True, kw_only=True):
    """Locate things on the host where a distribution keeps them elsewhere."""

    default_root: ClassVar[str] = "/"
    default_driver_install_dir: ClassVar[str] = "/run/nvidia/driver"

    root_fs: str = field(name="rootFS", default="")
    driver_install_dir: str = ""
    kubelet_root_dir: Annotated[str, DEFAULTED] = "/var/lib/kubelet"

    @property
    def effective_root(self) -> str:
        """Return the host's root directory, also where the policy does not say."""
        return self.root_fs or self.default_root

    @property
    def effective_driver_install_dir(self) -> str:
        """Return where the driver container's root is on the host, also where the policy does not say."""
        return self.driver_install_dir or self.default_driver_install_dir


class ClusterPolicySpec(Spec, frozen=True, kw_only=True):
    """Configure the GPU stack of the cluster."""

    operator: Annotated[OperatorSpec, REQUIRED] = OperatorSpec()
    daemonsets: Annotated[Daemonsets, REQUIRED] = Daemonsets()
    driver: Annotated[Driver, REQUIRED] = Driver()
    toolkit: Annotated[Toolkit, REQUIRED] = Toolkit()
    device_plugin: Annotated[DevicePlugin, REQUIRED] = DevicePlugin()
    dcgm_exporter: Annotated[DcgmExporter, REQUIRED] = DcgmExporter()
    dcgm: Annotated[Dcgm, REQUIRED] = Dcgm()
    node_status_exporter: Annotated[NodeStatusExporter, REQUIRED] = NodeStatusExporter()
    gfd: Annotated[Gfd, REQUIRED] = Gfd()
    mig: Mig = Mig()
    mig_manager: MigManager = MigManager()
    psp: Psp = Psp()
    psa: Psa = Psa()
    validator: Validator = Validator()
    gds: Gds = Gds()
    gdrcopy: Gdrcopy = Gdrcopy()
    sandbox_workloads: SandboxWorkloads = SandboxWorkloads()
    vfio_manager: VfioManager = VfioManager()
    sandbox_device_plugin: SandboxDevicePlugin = SandboxDevicePlugin()
    kata_sandbox_device_plugin: KataSandboxDevicePlugin = KataSandboxDevicePlugin()
    vgpu_manager: VgpuManager = VgpuManager()
    vgpu_device_manager: VgpuDeviceManager = VgpuDeviceManager()
    cdi: Cdi = Cdi()
    kata_manager: KataManager = KataManager()
    cc_manager: CcManager = CcManager()
    host_paths: HostPaths = HostPaths()

    @property
    def has_vgpu_manager(self) -> bool:
        """Return whether hosts of vGPUs get their driver from the vGPU manager, and not from NVIDIADrivers."""
        return self.sandbox_workloads.is_enabled and self.vgpu_manager.is_enabled and not self.driver.is_left_to_nvidia_drivers


class ClusterPolicyStatus(Spec, frozen=True, kw_only=True):
    """Report how far the cluster is from what the policy asks for."""

    state: ClusterPolicyState
    namespace: str = ""
    conditions: tuple[Condition, ...] = ()


class ClusterPolicy(Spec, frozen=True, kw_only=True):
    """Configure the GPU stack of the cluster, and report its state."""

    api_version: ClassVar[str] = f"{NVIDIA_GROUP}/{CLUSTER_POLICY_VERSION}"
    kind: ClassVar[str] = "ClusterPolicy"

    metadata: KubeObject = field(default_factory=dict)
    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus | None = None

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.metadata.get("name", ""))
