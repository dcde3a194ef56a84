"""What rendering needs to know: of the cluster, and of the operator's own environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gpuward.crd.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from gpuward.errors import PolicyError

Runtime = Literal["containerd", "docker", "crio"]

DEFAULT_RUNTIME_CLASS = "nvidia"
DEFAULT_TOOLKIT_DIR = "/usr/local/nvidia"


class NodeKernel(msgspec.Struct, frozen=True, order=True):
    """Name a kernel that GPU nodes run, and the operating system around it."""

    version: str
    """As node feature discovery reports it, such as 5.15.0-101-generic."""
    os: str
    """ID and full VERSION_ID, such as ubuntu22.04 or rhel9.4."""
    os_tag: str
    """The same as images spell it, such as ubuntu22.04 or rhel9."""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what rendering needs to know of the cluster. Equal facts and an equal policy give equal objects."""

    namespace: str
    """Where the operator runs and its operands go."""
    runtime: Runtime = "containerd"
    driver_runtimes: Mapping[str, Runtime] = {}
    """The container runtime of driver DaemonSets that were made for one which some GPU node still has, by their names."""
    os_tag: str = ""
    """ID and VERSION_ID of the nodes for which the ClusterPolicy's driver is, such as ubuntu22.04 or rhel9; empty without GPU
    nodes."""
    host_os_tag: str = ""
    """The same of the nodes for which the vGPU manager is."""
    has_gpu_nodes: bool = False
    """Without GPU nodes no DaemonSet is made, and none is removed."""
    has_service_monitor_crd: bool = False
    kernels: tuple[NodeKernel, ...] = ()
    """The kernels of the GPU nodes, each once; only precompiled drivers depend on them."""
    config_maps: Mapping[str, tuple[str, ...]] = {}
    """The keys of every ConfigMap of the namespace that the policy names (see `referenced_config_maps`)."""
    secrets: frozenset[str] = frozenset()
    """The Secrets of the namespace that the policy names for the driver's environment and its licence."""

    @property
    def os_id(self) -> str:
        """Return the operating system's ID, such as ubuntu."""
        return self.os_tag.rstrip("0123456789.")

    def runtime_of_driver(self, daemonset: str) -> Runtime:
        """Return the container runtime for which the mounts of a driver's DaemonSet are chosen."""
        return self.driver_runtimes.get(daemonset, self.runtime)

    def config_map_keys(self, field: str, name: str) -> tuple[str, ...]:
        """Return the sorted keys of a ConfigMap that `field` of a policy names.

        Raises:
            PolicyError: there is no such ConfigMap.
        """
        if name not in self.config_maps:
            raise PolicyError(field, name, f"create a ConfigMap of that name in namespace {self.namespace}")
        return tuple(sorted(self.config_maps[name]))

    def need_secret(self, field: str, name: str) -> None:
        """Check that a Secret that `field` of a policy names is there: without it no container of the pod starts.

        Raises:
            PolicyError: there is no such Secret.
        """
        if name not in self.secrets:
            raise PolicyError(field, name, f"create a Secret of that name in namespace {self.namespace}")


class Context(msgspec.Struct, frozen=True):
    """Bundle what every operand is rendered from."""

    policy: ClusterPolicy
    facts: ClusterFacts
    images: Mapping[str, str]
    """Images that the operator's environment gives for what the policy leaves open, by variable: DRIVER_MANAGER_IMAGE, ..."""

    @property
    def spec(self) -> ClusterPolicySpec:
        """Return the policy's spec."""
        return self.policy.spec

    @property
    def namespace(self) -> str:
        """Return the operator's namespace."""
        return self.facts.namespace

    @property
    def runtime_class(self) -> str:
        """Return the RuntimeClass that hands GPUs to containers."""
        return self.spec.operator.runtime_class or DEFAULT_RUNTIME_CLASS

    @property
    def toolkit_dir(self) -> str:
        """Return where the toolkit is installed on the host."""
        return self.spec.toolkit.install_dir or DEFAULT_TOOLKIT_DIR

    @property
    def cdi_hook_path(self) -> str:
        """Return where the toolkit puts its CDI hook on the host; empty when the toolkit is not ours to install."""
        return f"{self.toolkit_dir.rstrip('/')}/toolkit/nvidia-cdi-hook" if self.spec.toolkit.is_enabled else ""

    def config_map_keys(self, field: str, name: str) -> tuple[str, ...]:
        """Return the sorted keys of a ConfigMap that `field` of the policy names.

        Raises:
            PolicyError: there is no such ConfigMap.
        """
        return self.facts.config_map_keys(field, name)


def referenced_config_maps(spec: ClusterPolicySpec) -> frozenset[str]:
    """Return the ConfigMaps that drivers' pods mount."""
    driver = spec.driver
    named = {driver.repo_config.config_map_name, driver.cert_config.name, driver.kernel_module_config.name,
             driver.licensing_config.used_config_map, driver.virtual_topology.config}
    if spec.sandbox_workloads.is_enabled and spec.vgpu_manager.is_enabled:
        named.add(spec.vgpu_manager.kernel_module_config.name)
    return frozenset(named - {""})


def mounted_config_maps(spec: ClusterPolicySpec) -> dict[str, str]:
    """Return the other ConfigMaps that operands' pods mount, each with the field that names it: their DaemonSets are written
    without them, and the pods wait.
    """
    mig, plugin, exporter = spec.mig_manager, spec.device_plugin, spec.dcgm_exporter
    named = {}
    if plugin.is_enabled:
        named["spec.devicePlugin.config.name"] = plugin.config.name
    if exporter.is_enabled:
        named["spec.dcgmExporter.config.name"] = exporter.config.name
    if mig.is_enabled:
        named["spec.migManager.config.name"] = mig.config.name if mig.config is not None else ""
        named["spec.migManager.gpuClientsConfig.name"] = mig.gpu_clients_config.name
    return {name: field for field, name in reversed(named.items()) if name}


def referenced_secrets(spec: ClusterPolicySpec) -> frozenset[str]:
    """Return the Secrets that must exist before the driver's pod can be written."""
    return frozenset({spec.driver.secret_env, spec.driver.licensing_config.secret_name} - {""})
