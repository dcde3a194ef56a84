"""The operands of ClusterPolicy that serve containers."""

from typing import Annotated, ClassVar, Literal

from msgspec import field

from gpuward.crd.facts import DEFAULTED, Int32, Spec
from gpuward.crd.shapes import ConfigMapName, Container, Env, Operand, ServiceMonitor, Switch

MigStrategy = Literal["none", "single", "mixed"]


class Toolkit(Operand, frozen=True, kw_only=True):
    """Configure the NVIDIA Container Toolkit."""

    enabled_by_default: ClassVar[bool] = True

    install_dir: Annotated[str, DEFAULTED] = "/usr/local/nvidia"


class DevicePluginConfig(Spec, frozen=True, kw_only=True):
    """Name the ConfigMap with device plugin configurations, and which of its keys applies by default."""

    name: str = ""
    default: str = ""


class Mps(Spec, frozen=True, kw_only=True):
    """Configure the Multi-Process Service."""

    root: Annotated[str, DEFAULTED] = "/run/nvidia/mps"


class DevicePlugin(Operand, frozen=True, kw_only=True):
    """Configure the device plugin and the MPS control daemon beside it."""

    enabled_by_default: ClassVar[bool] = True

    config: DevicePluginConfig = DevicePluginConfig()
    mps: Mps = Mps()


class Dcgm(Operand, frozen=True, kw_only=True):
    """Configure the standalone DCGM host engine."""

    enabled_by_default: ClassVar[bool] = True

    host_port: Int32 | None = None


class HpcJobMapping(Switch, frozen=True, kw_only=True):
    """Map GPU metrics to HPC jobs by the files that the workload manager writes."""

    directory: str = ""

    @property
    def effective_directory(self) -> str:
        """Return the directory with the mapping files, also where the policy does not say."""
        return self.directory or "/var/lib/dcgm-exporter/job-mapping"


class DcgmExporterService(Spec, frozen=True, kw_only=True):
    """Configure the DCGM exporter's Service."""

    type: str = ""
    internal_traffic_policy: str | None = None


class DcgmExporter(Operand, frozen=True, kw_only=True):
    """Configure the DCGM exporter."""

    enabled_by_default: ClassVar[bool] = True

    annotations: dict[str, str] = field(default_factory=dict)
    config: ConfigMapName = ConfigMapName()
    service_monitor: ServiceMonitor = ServiceMonitor()
    service: DcgmExporterService = DcgmExporterService()
    host_pid: bool | None = field(name="hostPID", default=None)
    hpc_job_mapping: HpcJobMapping = HpcJobMapping()
    enable_pod_labels: bool | None = None
    enable_pod_uid: bool | None = field(name="enablePodUID", default=None)
    pod_label_allowlist_regex: tuple[str, ...] = ()


class NodeStatusExporter(Operand, frozen=True, kw_only=True):
    """Configure the exporter of each node's validation status."""


class Gfd(Operand, frozen=True, kw_only=True):
    """Configure GPU feature discovery."""

    enabled_by_default: ClassVar[bool] = True


class Mig(Spec, frozen=True, kw_only=True):
    """Say how MIG devices are exposed as resources."""

    strategy: MigStrategy | None = None


class MigConfig(Spec, frozen=True, kw_only=True):
    """Name the ConfigMap with MIG layouts (empty for the built-in one) and the layout of unlabelled nodes."""

    name: str = ""
    default: Annotated[Literal["all-disabled", ""], DEFAULTED] = "all-disabled"


class MigManager(Operand, frozen=True, kw_only=True):
    """Configure the MIG manager."""

    enabled_by_default: ClassVar[bool] = True

    config: MigConfig | None = None
    gpu_clients_config: ConfigMapName = ConfigMapName()


class Validator(Container, frozen=True, kw_only=True):
    """Configure the validator, and the environment of each of its checks."""

    plugin: Env = Env()
    toolkit: Env = Env()
    driver: Env = Env()
    cuda: Env = Env()
    vfio_pci: Env = field(name="vfioPCI", default=Env())
    vgpu_manager: Env = Env()
    vgpu_devices: Env = Env()
