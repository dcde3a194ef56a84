"""What the published schemas let through although it cannot be followed.

Every problem is reported, not only the first. What is switched off is not checked, because NVIDIA's operator does not
look at it either and a policy that it follows must not be refused here. The upgrade settings are the exception: they
are checked also while `autoUpgrade` is off, because switching it on is when nobody wants to find out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gpuward.crd import rules
from gpuward.crd.conversion import CLUSTER_POLICY_FIELD, NVIDIA_DRIVER_FIELD, upgrade_problems
from gpuward.errors import PolicyError
from gpuward.names import DEPLOY_PREFIX, DRIVER_OWNER, DRIVER_VERSION_PREFIX, OWN_PREFIX, UPGRADE_STATE

if TYPE_CHECKING:
    from gpuward.crd.clusterpolicy import ClusterPolicy, ClusterPolicySpec
    from gpuward.crd.driver import Gds
    from gpuward.crd.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
    from gpuward.crd.shapes import Image

_SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_TRAFFIC_POLICIES: Final = ("Cluster", "Local")
_VERSION: Final = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(-[0-9A-Za-z.-]+)?(?:\+.*)?")
_GDS_NEEDS_OPEN_MODULES: Final = (2, 17, 5)
"""First GPUDirect Storage version that works with open kernel modules only, by gpu-operator 26.7."""
OPERATOR_LABELS: Final = frozenset({DRIVER_OWNER, UPGRADE_STATE})
"""Labels that follow from whose a node is: whoever was chosen by them would come and go with them."""
_LONGEST_LABEL: Final = 63
_NO_SIDECAR: Final = "turn it off, or usePrecompiled: its module has to be built on the node"


def cluster_policy(policy: ClusterPolicy) -> list[PolicyError]:
    """Return everything in a ClusterPolicy that cannot be followed, in the order of its sections."""
    return rules.without_contradiction(problem for rule in _CLUSTER_POLICY_RULES for problem in rule(policy.spec))


def nvidia_driver(driver: NVIDIADriver) -> list[PolicyError]:
    """Return everything in an NVIDIADriver that cannot be followed; conflicts between several are not its fault."""
    found = (problem for rule in _NVIDIA_DRIVER_RULES for problem in rule(driver.spec))
    return [*_driver_name(driver.name), *rules.without_contradiction(found)]


def _daemonsets(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    common = spec.daemonsets
    yield from rules.labels(common.labels, "spec.daemonsets.labels")
    yield from rules.annotation_keys(common.annotations, "spec.daemonsets.annotations")
    yield from rules.tolerations(common.tolerations, "spec.daemonsets.tolerations")
    yield from rules.daemonset_limit(
        common.rolling_update.max_unavailable, "spec.daemonsets.rollingUpdate.maxUnavailable",
    )


def _upgrade(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    yield from upgrade_problems(spec.driver.upgrade_policy, CLUSTER_POLICY_FIELD)


def _images(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    for path, image in _images_in_use(spec):
        yield from rules.image_in_parts(image, f"spec.{path}")


def _images_in_use(spec: ClusterPolicySpec) -> Iterator[tuple[str, Image]]:
    if _manages_drivers(spec):
        yield "driver", spec.driver
        yield "driver.manager", spec.driver.manager
        yield from ((path, sidecar) for path, sidecar in (("gds", spec.gds), ("gdrcopy", spec.gdrcopy))
                    if sidecar.is_enabled)
    yield "validator", spec.validator
    for path, operand in (
        ("toolkit", spec.toolkit), ("devicePlugin", spec.device_plugin), ("dcgm", spec.dcgm),
        ("dcgmExporter", spec.dcgm_exporter), ("gfd", spec.gfd), ("migManager", spec.mig_manager),
        ("nodeStatusExporter", spec.node_status_exporter),
    ):
        if operand.is_enabled:
            yield path, operand
    if spec.sandbox_workloads.is_enabled:
        yield from _sandbox_images_in_use(spec)


def _sandbox_images_in_use(spec: ClusterPolicySpec) -> Iterator[tuple[str, Image]]:
    kata = spec.sandbox_workloads.mode == "kata"
    if spec.vfio_manager.is_enabled:
        yield "vfioManager", spec.vfio_manager
        yield "vfioManager.driverManager", spec.vfio_manager.driver_manager
    if spec.vgpu_manager.is_enabled and not spec.driver.is_left_to_nvidia_drivers:
        yield "vgpuManager", spec.vgpu_manager
        yield "vgpuManager.driverManager", spec.vgpu_manager.driver_manager
    if spec.vgpu_device_manager.is_enabled:
        yield "vgpuDeviceManager", spec.vgpu_device_manager
    if spec.sandbox_device_plugin.is_enabled and not kata:
        yield "sandboxDevicePlugin", spec.sandbox_device_plugin
    if spec.kata_sandbox_device_plugin.is_enabled and kata:
        yield "kataSandboxDevicePlugin", spec.kata_sandbox_device_plugin
    if spec.cc_manager.is_enabled and kata:
        yield "ccManager", spec.cc_manager


def _precompiled(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    if not (_manages_drivers(spec) and spec.driver.is_precompiled):
        return
    yield from rules.tag_to_extend(spec.driver.version, spec.driver.image, "spec.driver")
    for path, sidecar in (("gds", spec.gds), ("gdrcopy", spec.gdrcopy)):
        if sidecar.is_enabled:
            yield PolicyError(f"spec.{path}.enabled", True, _NO_SIDECAR)


def _cdi(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    if spec.cdi.is_nri_plugin_enabled:
        if not spec.cdi.is_enabled:
            yield PolicyError("spec.cdi.nriPluginEnabled", True, "set cdi.enabled to true as well, or this to false")
        if not spec.toolkit.is_enabled:
            fix = "set toolkit.enabled to true as well, or this to false"
            yield PolicyError("spec.cdi.nriPluginEnabled", True, fix)


def _dcgm_exporter(spec: ClusterPolicySpec) -> Iterator[PolicyError]:
    exporter = spec.dcgm_exporter
    if exporter.is_enabled:
        yield from rules.annotation_keys(exporter.annotations, "spec.dcgmExporter.annotations")
        yield from rules.one_of(exporter.service.type, _SERVICE_TYPES, "spec.dcgmExporter.service.type")
        yield from rules.one_of(exporter.service.internal_traffic_policy, _TRAFFIC_POLICIES,
                                "spec.dcgmExporter.service.internalTrafficPolicy")


def _environment(spec: ClusterPolicySpec | NVIDIADriverSpec) -> Iterator[PolicyError]:
    yield from rules.environment(spec, "spec")


def _manages_drivers(spec: ClusterPolicySpec) -> bool:
    return spec.driver.is_enabled and not spec.driver.is_left_to_nvidia_drivers


def _driver_upgrade(spec: NVIDIADriverSpec) -> Iterator[PolicyError]:
    yield from upgrade_problems(spec.upgrade_policy, NVIDIA_DRIVER_FIELD)


def _driver_name(name: str) -> Iterator[PolicyError]:
    if len(name) > _LONGEST_LABEL:
        fix = f"choose a name of up to {_LONGEST_LABEL} characters: nodes are labelled with it"
        yield PolicyError("metadata.name", name, fix)


def _driver_nodes(spec: NVIDIADriverSpec) -> Iterator[PolicyError]:
    yield from rules.labels(spec.node_selector, "spec.nodeSelector")
    if spec.default and spec.node_selector:
        fix = "leave it out: the default driver is for the nodes that no other NVIDIADriver selects"
        yield PolicyError("spec.nodeSelector", spec.node_selector, fix)
    for key in spec.node_selector:
        if key in OPERATOR_LABELS or key.startswith((DEPLOY_PREFIX, OWN_PREFIX)):
            yield PolicyError("spec.nodeSelector", key, "use another label: the operator itself sets this one")
        elif key.startswith(DRIVER_VERSION_PREFIX):
            fix = "use another label: this one tells which driver is loaded, and a node would come and go with it"
            yield PolicyError("spec.nodeSelector", key, fix)


def _driver_pods(spec: NVIDIADriverSpec) -> Iterator[PolicyError]:
    yield from rules.labels(spec.labels, "spec.labels")
    yield from rules.annotation_keys(spec.annotations, "spec.annotations")
    yield from rules.tolerations(spec.tolerations, "spec.tolerations")


def _driver_images(spec: NVIDIADriverSpec) -> Iterator[PolicyError]:
    yield from rules.image_without_fallback(spec.repository, spec.image, spec.version, "spec")
    yield from rules.image_in_parts(spec.manager, "spec.manager")
    for path, sidecar in (("gds", spec.gds), ("gdrcopy", spec.gdrcopy)):
        if sidecar.is_enabled:
            yield from rules.image_without_fallback(
                sidecar.repository, sidecar.image, sidecar.version, f"spec.{path}",
            )
            if spec.is_precompiled:
                yield PolicyError(f"spec.{path}.enabled", True, _NO_SIDECAR)
    if spec.is_precompiled:
        yield from rules.tag_to_extend(spec.version, spec.image, "spec")


def _driver_modules(spec: NVIDIADriverSpec) -> Iterator[PolicyError]:
    if spec.gds.is_enabled and _needs_open_modules(spec.gds) and spec.kernel_module_type != "open":
        fix = f"write open: GPUDirect Storage {spec.gds.version} works with the open kernel modules only"
        yield PolicyError("spec.kernelModuleType", spec.kernel_module_type, fix)


def _needs_open_modules(gds: Gds) -> bool:
    """Tell by the version, as semantic versioning orders them; a digest says nothing, so it counts as new."""
    if gds.version.startswith("sha256"):
        return True
    found = _VERSION.fullmatch(gds.version)
    if not found:
        return False
    number = tuple(int(part or 0) for part in found.group(1, 2, 3))
    return number > _GDS_NEEDS_OPEN_MODULES or (number == _GDS_NEEDS_OPEN_MODULES and not found[4])


_CLUSTER_POLICY_RULES: Final = (
    _daemonsets, _upgrade, _images, _precompiled, _dcgm_exporter, _cdi, _environment,
)
_NVIDIA_DRIVER_RULES: Final = (
    _driver_nodes, _driver_pods, _driver_images, _driver_modules, _driver_upgrade, _environment,
)
