"""The driver's digest: NVIDIA's published values, and what changes it."""

from __future__ import annotations

import pytest

from gpuward.operands import driver_config_digest
from gpuward.operands.driver.digest import Value, digest
from tests.operands.build import container, facts, pod

DRIVER = "nvidia-driver-daemonset"


@pytest.mark.parametrize(("fields", "expected"), [
    ({"DriverImage": "nvcr.io/nvidia/driver:525.85.03-ubuntu22.04",
      "DriverManagerImage": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:devel",
      "DriverType": "gpu", "SecretEnvSource": "", "GDSEnabled": False, "DriverArgs": []}, "886542011"),
    ({"DriverImage": "nvcr.io/nvidia/driver:570.172.08-ubuntu20.04",
      "DriverManagerImage": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.8.0",
      "DriverEnv": ("EnvVar", [{"Name": "GDRCOPY_ENABLED", "Value": "true"}, {"Name": "GDS_ENABLED", "Value": "true"}]),
      "SecretEnvSource": "test-env-secret"}, "4204546510"),
])
def test_fields_hash_as_in_go(fields: dict[str, Value], expected: str) -> None:
    assert digest(fields) == expected


@pytest.mark.parametrize(("spec", "expected"), [
    ({}, "3379408550"),
    ({"driver": {"rdma": {"enabled": True}}}, "2114526861"),
    ({"gdrcopy": {"enabled": True, "env": [{"name": "GDR_A", "value": "1"}]}}, "2994023842"),
    ({"driver": {"version": "580.95.05"}}, "926676482"),
    ({"driver": {
        "kernelModuleType": "open", "args": ["--max-threads", "4"],
        "env": [{"name": "ZED", "value": "z"}, {"name": "HTTP_PROXY", "value": "http://proxy:3128"},
                {"name": "KERNEL_MODULE_TYPE", "value": "proprietary"}],
    }}, "3952613150"),
])
def test_pods_of_known_policies_have_the_digests_of_nvidias_operator(spec: dict[str, object], expected: str) -> None:
    rendered = pod(DRIVER, spec)
    for name in ("k8s-driver-manager", "nvidia-driver-ctr"):
        assert {"name": "DRIVER_CONFIG_DIGEST", "value": expected} in container(rendered, name)["env"]


def test_the_digest_in_the_pod_does_not_change_the_digest() -> None:
    assert driver_config_digest(pod(DRIVER)) == "3379408550"


@pytest.mark.parametrize("spec", [
    {"daemonsets": {"labels": {"team": "ml"}, "annotations": {"note": "x"}, "priorityClassName": "high"}},
    {"driver": {"resources": {"limits": {"cpu": "1"}}, "hostNetwork": True, "startupProbe": {"failureThreshold": 3}}},
    {"driver": {"imagePullSecrets": ["cred"], "upgradePolicy": {"autoUpgrade": False}}},
])
def test_what_does_not_concern_the_driver_leaves_the_digest(spec: dict[str, object]) -> None:
    assert driver_config_digest(pod(DRIVER, spec)) == "3379408550"


@pytest.mark.parametrize("spec", [
    {"driver": {"manager": {"version": "v0.13.0"}}},
    {"driver": {"secretEnv": "env"}},
    {"driver": {"kernelModuleConfig": {"name": "modules"}}},
    {"gds": {"enabled": True}},
    {"hostPaths": {"rootFS": "/host"}},
])
def test_what_concerns_the_driver_changes_the_digest(spec: dict[str, object]) -> None:
    cluster = facts(secrets=frozenset({"env"}), config_maps={"modules": ("nvidia.conf",)})
    assert driver_config_digest(pod(DRIVER, spec, cluster)) != "3379408550"
