from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from gpuward.crd.decode import cluster_policy
from gpuward.crd.generate import schema_for_reading
from tests.crd.specimen import defaulted, skeleton

SCHEMA = schema_for_reading(ClusterPolicy)


def policy(**spec: Any) -> ClusterPolicySpec:
    return cluster_policy({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec}).spec


@pytest.mark.parametrize(("section", "wanted"), [
    ("driver", True), ("toolkit", True), ("device_plugin", True), ("dcgm", True), ("dcgm_exporter", True),
    ("gfd", True), ("mig_manager", True), ("cdi", True),
    ("node_status_exporter", False), ("gds", False), ("gdrcopy", False), ("psa", False), ("sandbox_workloads", False),
    ("vfio_manager", False), ("sandbox_device_plugin", False), ("kata_sandbox_device_plugin", False),
    ("vgpu_manager", False), ("vgpu_device_manager", False), ("cc_manager", False), ("kata_manager", False),
])
def test_a_section_that_does_not_say_is_as_wanted_as_nvidias_operator_takes_it(section: str, wanted: bool) -> None:
    json_name = "".join(part.capitalize() if index else part for index, part in enumerate(section.split("_")))
    assert getattr(policy(), section).is_enabled is wanted
    assert getattr(policy(**{json_name: {"enabled": not wanted}}), section).is_enabled is not wanted


def test_a_policy_without_the_schemas_defaults_means_the_same_as_one_with_them() -> None:
    bare = skeleton(SCHEMA) | {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {}}
    filled = defaulted(bare, SCHEMA)
    assert filled != bare
    assert cluster_policy(filled) == cluster_policy(bare)


def test_absent_parts_can_be_read_without_asking() -> None:
    spec = policy()
    assert spec.driver.upgrade_policy.max_parallel_upgrades == 1
    assert spec.driver.upgrade_policy.drain.timeout_seconds == 300
    assert spec.daemonsets.rolling_update.max_unavailable == ""
    assert not spec.dcgm_exporter.service_monitor.is_enabled
    assert spec.validator.vfio_pci.env == ()
    assert spec.mig_manager.config is None
    assert spec.driver.resources is None


@pytest.mark.parametrize(("given", "root", "install_dir"), [
    ({}, "/", "/run/nvidia/driver"),
    ({"rootFS": "", "driverInstallDir": ""}, "/", "/run/nvidia/driver"),
    ({"rootFS": "/host", "driverInstallDir": "/opt/driver"}, "/host", "/opt/driver"),
])
def test_host_paths(given: dict[str, str], root: str, install_dir: str) -> None:
    paths = policy(hostPaths=given).host_paths
    assert (paths.effective_root, paths.effective_driver_install_dir) == (root, install_dir)


def test_names_that_are_not_camel_case_are_nvidias() -> None:
    spec = policy(
        operator={"use_ocp_driver_toolkit": True}, hostPaths={"rootFS": "/r"}, validator={"vfioPCI": {"env": []}},
        driver={"useNvidiaDriverCRD": True}, dcgmExporter={"hostPID": True, "enablePodUID": True},
    )
    assert spec.operator.use_ocp_driver_toolkit is True
    assert spec.host_paths.root_fs == "/r"
    assert spec.driver.is_left_to_nvidia_drivers
    assert (spec.dcgm_exporter.host_pid, spec.dcgm_exporter.enable_pod_uid) == (True, True)
