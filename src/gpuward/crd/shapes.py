"""Shapes that many parts of ClusterPolicy and NVIDIADriver share: image, container settings, probe, monitor.

A string or list that is absent is empty, because the API does not tell the two apart. A switch that is absent is
None, because it does: the effective value then differs from part to part and is `is_enabled`.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from gpuward.crd.facts import Int32, Spec
from gpuward.crd.kubernetes import PrometheusDuration, Quantity, RelabelConfig

ImageName = Annotated[str, Meta(pattern=r"[a-zA-Z0-9\-]+")]


class EnvVar(Spec, frozen=True, kw_only=True):
    """Set one environment variable."""

    name: str
    value: str = ""


class Env(Spec, frozen=True, kw_only=True):
    """Set environment variables of one container."""

    env: tuple[EnvVar, ...] = ()


class Image(Spec, frozen=True, kw_only=True):
    """Name a container image, in parts or as one full reference in `image`, and how to pull it."""

    repository: str = ""
    image: ImageName = ""
    version: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()


class Resources(Spec, frozen=True, kw_only=True):
    """Reserve and limit the compute resources of a container."""

    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)


class Switch(Spec, frozen=True, kw_only=True):
    """Turn a feature on or off."""

    enabled_by_default: ClassVar[bool] = False

    enabled: bool | None = None

    @property
    def is_enabled(self) -> bool:
        """Return whether the feature is on, also where the policy does not say."""
        return self.enabled_by_default if self.enabled is None else self.enabled


class Container(Image, frozen=True, kw_only=True):
    """Configure an operand's container: image, resources, arguments, environment, network."""

    resources: Resources | None = None
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    host_network: bool | None = None


class Operand(Container, frozen=True, kw_only=True):
    """Configure an operand that can be turned off."""

    enabled_by_default: ClassVar[bool] = False

    enabled: bool | None = None

    @property
    def is_enabled(self) -> bool:
        """Return whether the operand is wanted, also where the policy does not say."""
        return self.enabled_by_default if self.enabled is None else self.enabled


class Sidecar(Image, frozen=True, kw_only=True):
    """Configure a driver sidecar that is off unless the policy turns it on."""

    enabled: bool | None = None
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()

    @property
    def is_enabled(self) -> bool:
        """Return whether the sidecar is wanted."""
        return bool(self.enabled)


class DriverManager(Image, frozen=True, kw_only=True):
    """Configure the init container that clears a node for a new driver."""

    env: tuple[EnvVar, ...] = ()


class ConfigMapName(Spec, frozen=True, kw_only=True):
    """Name a ConfigMap in the operator's namespace; empty for none."""

    name: str = ""


class Probe(Spec, frozen=True, kw_only=True):
    """Override timings of a container probe; what is absent keeps the operand's own value."""

    initial_delay_seconds: Int32 | None = None
    timeout_seconds: Annotated[Int32, Meta(ge=1)] | None = None
    period_seconds: Annotated[Int32, Meta(ge=1)] | None = None
    success_threshold: Annotated[Int32, Meta(ge=1)] | None = None
    failure_threshold: Annotated[Int32, Meta(ge=1)] | None = None


class ServiceMonitor(Switch, frozen=True, kw_only=True):
    """Configure a Prometheus ServiceMonitor."""

    interval: PrometheusDuration = ""
    scrape_timeout: PrometheusDuration = ""
    honor_labels: bool | None = None
    additional_labels: dict[str, str] = field(default_factory=dict)
    relabelings: tuple[RelabelConfig, ...] = ()


class Rdma(Switch, frozen=True, kw_only=True):
    """Configure GPUDirect RDMA, the `nvidia-peermem` module."""

    use_host_mofed: bool | None = None

    @property
    def uses_host_mofed(self) -> bool:
        """Return whether RDMA is on and takes the MOFED drivers installed on the host."""
        return self.is_enabled and bool(self.use_host_mofed)
