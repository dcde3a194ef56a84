"""The parts of ClusterPolicy for virtual machines and confidential or Kata containers."""

from typing import Annotated, Literal

from msgspec import field

from gpuward.crd.facts import DEFAULTED, Spec
from gpuward.crd.shapes import ConfigMapName, DriverManager, Operand, Switch


class SandboxWorkloads(Switch, frozen=True, kw_only=True):
    """Configure nodes whose GPUs serve virtual machines."""

    default_workload: Annotated[Literal["container", "vm-passthrough", "vm-vgpu"], DEFAULTED] = "container"
    mode: Annotated[Literal["kubevirt", "kata"], DEFAULTED] = "kubevirt"


class VfioManager(Operand, frozen=True, kw_only=True):
    """Configure the manager that binds GPUs to vfio-pci."""

    driver_manager: DriverManager = DriverManager()


class SandboxDevicePlugin(Operand, frozen=True, kw_only=True):
    """Configure the device plugin for virtual machines."""


class KataSandboxDevicePlugin(Operand, frozen=True, kw_only=True):
    """Configure the device plugin for Kata containers."""


class VgpuManager(Operand, frozen=True, kw_only=True):
    """Configure the vGPU host driver."""

    driver_manager: DriverManager = DriverManager()
    kernel_module_config: ConfigMapName = ConfigMapName()


class VgpuDevicesConfig(Spec, frozen=True, kw_only=True):
    """Name the ConfigMap with vGPU layouts, and the layout of unlabelled nodes."""

    name: str = ""
    default: Annotated[str, DEFAULTED] = "default"


class VgpuDeviceManager(Operand, frozen=True, kw_only=True):
    """Configure the manager that creates vGPU devices."""

    config: VgpuDevicesConfig | None = None


class CcManager(Operand, frozen=True, kw_only=True):
    """Configure the manager of confidential computing modes."""

    default_mode: Literal["on", "off", "devtools"] | None = None


class KataArtifacts(Spec, frozen=True, kw_only=True):
    """Locate the files of a Kata runtime."""

    url: str
    pull_secret: str = ""


class KataRuntimeClass(Spec, frozen=True, kw_only=True):
    """Describe a Kata RuntimeClass."""

    name: str
    artifacts: KataArtifacts
    node_selector: dict[str, str] = field(default_factory=dict)


class KataConfig(Spec, frozen=True, kw_only=True):
    """Describe the Kata runtimes."""

    artifacts_dir: Annotated[str, DEFAULTED] = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"
    runtime_classes: tuple[KataRuntimeClass, ...] = ()


class KataManager(Operand, frozen=True, kw_only=True):
    """Accept the Kata manager's settings; the operand is no longer deployed."""

    config: KataConfig | None = None
