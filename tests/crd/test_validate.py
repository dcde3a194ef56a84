from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd import validate
from gpuward.crd.decode import cluster_policy, nvidia_driver

NRI = {"enabled": True, "nriPluginEnabled": True}
DIGEST = f"sha256:{'1f' * 32}"


def problems(spec: dict[str, Any]) -> list[str]:
    policy = cluster_policy({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec})
    return [problem.field for problem in validate.cluster_policy(policy)]


def driver_problems(spec: dict[str, Any]) -> list[str]:
    driver = nvidia_driver({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": spec})
    return [problem.field for problem in validate.nvidia_driver(driver)]


@pytest.mark.parametrize(("spec", "fields"), [
    ({}, []),
    ({"driver": {"upgradePolicy": {"maxUnavailable": "abc"}}}, ["spec.driver.upgradePolicy.maxUnavailable"]),
    ({"driver": {"upgradePolicy": {"waitForCompletion": {"podSelector": "a ="}}}}, []),
    ({"driver": {"upgradePolicy": {"waitForCompletion": {"podSelector": "a = b c"}}}},
     ["spec.driver.upgradePolicy.waitForCompletion.podSelector"]),
    ({"driver": {"upgradePolicy": {"drain": {"podSelector": "!!"}}}}, ["spec.driver.upgradePolicy.drain.podSelector"]),
    ({"daemonsets": {"labels": {"a b": "c", "d": "e f"}, "annotations": {"": "x y"}}},
     ["spec.daemonsets.labels", "spec.daemonsets.labels.d", "spec.daemonsets.annotations"]),
    ({"cdi": NRI}, []),
    ({"cdi": NRI | {"enabled": False}}, ["spec.cdi.nriPluginEnabled"]),
    ({"cdi": NRI, "toolkit": {"enabled": False}}, ["spec.cdi.nriPluginEnabled"]),
    ({"dcgmExporter": {"service": {"type": "Cluster", "internalTrafficPolicy": "Cluster"}}},
     ["spec.dcgmExporter.service.type"]),
    ({"dcgmExporter": {"service": {"internalTrafficPolicy": "Node"}}},
     ["spec.dcgmExporter.service.internalTrafficPolicy"]),
    ({"dcgmExporter": {"enabled": False, "service": {"type": "Cluster"}}}, []),
    ({"validator": {"plugin": {"env": [{"name": "A"}, {"name": ""}]}}}, ["spec.validator.plugin.env[1].name"]),
    ({"driver": {"usePrecompiled": True}, "gds": {"enabled": True}, "gdrcopy": {"enabled": True}},
     ["spec.gds.enabled", "spec.gdrcopy.enabled"]),
    ({"driver": {"usePrecompiled": True, "enabled": False}, "gds": {"enabled": True}}, []),
    ({"driver": {"usePrecompiled": True, "image": "driver", "repository": "r", "version": DIGEST}},
     ["spec.driver.version"]),
])
def test_what_a_policy_cannot_be_followed_in(spec: dict[str, Any], fields: list[str]) -> None:
    assert problems(spec) == fields


@pytest.mark.parametrize(("text", "fine"), [
    ("", True), ("1", True), ("10", True), ("1%", True), ("100%", True),
    ("0", False), ("0%", False), ("101%", False), ("x", False), ("-1", False), ("1.5", False), (" 1", False),
    ("99999999999", False),
])
def test_the_rolling_update_limit_of_daemonsets(text: str, fine: bool) -> None:
    expected = [] if fine else ["spec.daemonsets.rollingUpdate.maxUnavailable"]
    assert problems({"daemonsets": {"rollingUpdate": {"maxUnavailable": text}}}) == expected


@pytest.mark.parametrize(("toleration", "refused"), [
    ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, []),
    ({"key": "a", "value": "b"}, []),
    ({"operator": "Exists"}, []),
    ({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}, []),
    ({"key": "a", "operator": "In"}, ["operator"]),
    ({"key": "a", "effect": "NoWay"}, ["effect"]),
    ({"key": "a b"}, ["key"]),
    ({"value": "b"}, ["operator"]),
    ({"key": "a", "operator": "Exists", "value": "b"}, ["value"]),
    ({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}, ["tolerationSeconds"]),
])
def test_tolerations(toleration: dict[str, Any], refused: list[str]) -> None:
    assert problems({"daemonsets": {"tolerations": [toleration]}}) == [
        f"spec.daemonsets.tolerations[0].{field}" for field in refused
    ]
    assert driver_problems({"tolerations": [toleration]}) == [f"spec.tolerations[0].{field}" for field in refused]


def test_a_cut_off_digest_of_a_precompiled_driver_has_one_problem_which_asks_for_no_digest() -> None:
    spec = {"driver": {"repository": "nvcr.io/nvidia", "image": "driver", "version": "sha256:1f", "usePrecompiled": True}}
    body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec}
    (problem,) = validate.cluster_policy(cluster_policy(body))
    assert (problem.field, problem.fix.partition(":")[0]) == ("spec.driver.version", "write a tag")


@pytest.mark.parametrize(("part", "value", "fix"), [
    ("version", "595.91.08 ", "write 595.91.08, without spaces"), ("version", "\t595.91.08", "write 595.91.08, without spaces"),
    ("version", "595.91.08\n", "write 595.91.08, without spaces"), ("version", "595 91", "write a tag of letters"),
    ("version", "580/91", "write a tag of letters"), ("version", "-580", "write a tag of letters"),
    ("version", "sha256:1f", "write a tag of letters"), ("version", "5" * 129, "write a tag of letters"),
    ("repository", " nvcr.io/nvidia", "write nvcr.io/nvidia, without spaces"),
    ("repository", "nvcr.io/nvidia/", "write a registry and a path"), ("repository", "https://nvcr.io/a", "write a registry"),
    ("repository", "nvcr.io/NVIDIA", "write a registry and a path"),
    ("image", "driver ", "write driver, without spaces"), ("image", "Driver", "write a name in lower case"),
    ("image", "driver:580", "write a name in lower case"),
])
def test_a_part_that_no_runtime_could_pull_is_refused(part: str, value: str, fix: str) -> None:
    image = {"repository": "nvcr.io/nvidia", "image": "driver", "version": "580", part: value}
    for spec, path in (({"driver": image}, "spec.driver"), ({"driver": {"manager": image}}, "spec.driver.manager"),
                       ({"toolkit": image}, "spec.toolkit"), ({"validator": image}, "spec.validator")):
        body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec}
        (problem,) = validate.cluster_policy(cluster_policy(body))
        assert (problem.field, problem.value) == (f"{path}.{part}", value)
        assert problem.fix.startswith(fix)
    assert driver_problems(image) == [f"spec.{part}"]
    assert driver_problems({"gdrcopy": {"enabled": True, **image}}) == [f"spec.gdrcopy.{part}"]


@pytest.mark.parametrize("image", [
    {"repository": "localhost:5000", "image": "a/b-c", "version": "v1.2_x-ubuntu22.04"},
    {"repository": "[fd00::1]:5000/nvidia", "image": "driver", "version": f"580@{DIGEST}"},
    {"repository": "Registry.Example/gpu__x/y", "image": "driver", "version": DIGEST},
    {"image": "registry.example:5000/nvidia/driver:580.126.09"}, {"image": f"driver@{DIGEST}"}, {"image": "driver"},
])
def test_what_a_runtime_can_pull_is_let_through(image: dict[str, str]) -> None:
    assert problems({"driver": image, "toolkit": image}) == []


@pytest.mark.parametrize("image", ["nvcr.io/nvidia/driver:580 ", "nvcr.io//driver:580", "nvcr.io/nvidia/driver:"])
def test_a_full_reference_that_no_runtime_could_pull_is_refused(image: str) -> None:
    assert problems({"toolkit": {"image": image}}) == ["spec.toolkit.image"]


@pytest.mark.parametrize(("image", "missing"), [
    ({}, []),
    ({"image": "nvcr.io/nvidia/driver:550"}, []),
    ({"repository": "r", "image": "i", "version": "v"}, []),
    ({"repository": "r"}, ["image", "version"]),
    ({"version": "v"}, ["repository", "image"]),
    ({"image": "i", "version": "v"}, ["repository"]),
    ({"repository": "r", "image": "i"}, ["version"]),
])
def test_an_image_is_given_in_full_or_in_three_parts(image: dict[str, str], missing: list[str]) -> None:
    for section in ("driver", "toolkit", "validator"):
        assert problems({section: image}) == [f"spec.{section}.{part}" for part in missing]
    assert problems({"driver": {"manager": image}}) == [f"spec.driver.manager.{part}" for part in missing]


@pytest.mark.parametrize(("section", "switches", "in_use"), [
    ("driver", {}, True),
    ("driver", {"driver": {"enabled": False}}, False),
    ("driver", {"driver": {"useNvidiaDriverCRD": True}}, False),
    ("gds", {}, False),
    ("gds", {"gds": {"enabled": True}}, True),
    ("nodeStatusExporter", {}, False),
    ("vgpuDeviceManager", {"vgpuDeviceManager": {"enabled": True}}, False),
    ("vgpuDeviceManager", {"vgpuDeviceManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}, True),
    ("vgpuManager", {"vgpuManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}, True),
    ("vgpuManager", {"vgpuManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True},
                     "driver": {"useNvidiaDriverCRD": True}}, False),
    ("vfioManager", {"vfioManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}, True),
    ("ccManager", {"ccManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}, False),
    ("ccManager", {"ccManager": {"enabled": True}, "sandboxWorkloads": {"enabled": True, "mode": "kata"}}, True),
    ("sandboxDevicePlugin", {"sandboxDevicePlugin": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}, True),
    ("kataSandboxDevicePlugin", {"kataSandboxDevicePlugin": {"enabled": True},
                                 "sandboxWorkloads": {"enabled": True, "mode": "kata"}}, True),
])
def test_the_image_of_an_operand_matters_only_where_it_is_deployed(
    section: str, switches: dict[str, Any], in_use: bool,
) -> None:
    spec = switches | {section: switches.get(section, {}) | {"repository": "r", "image": "i"}}
    assert problems(spec) == ([f"spec.{section}.version"] if in_use else [])


def test_all_problems_are_reported() -> None:
    assert problems({
        "cdi": NRI | {"enabled": False}, "toolkit": {"enabled": False, "version": "v"},
        "driver": {"upgradePolicy": {"maxUnavailable": "all"}, "repository": "r"},
        "daemonsets": {"rollingUpdate": {"maxUnavailable": "x"}},
    }) == [
        "spec.daemonsets.rollingUpdate.maxUnavailable", "spec.driver.upgradePolicy.maxUnavailable",
        "spec.driver.image", "spec.driver.version", "spec.cdi.nriPluginEnabled", "spec.cdi.nriPluginEnabled",
    ]


GDS = {"enabled": True, "repository": "r", "image": "nvidia-fs"}


@pytest.mark.parametrize(("spec", "fields"), [
    ({}, []),
    ({"driverType": "vgpu"}, []),
    ({"driverType": "vgpu-host-manager"}, []),
    ({"default": True}, []),
    ({"default": True, "nodeSelector": {"a": "b"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"nvidia.com/gpu-operator.driver.owner": "x"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"gpuward.io/driver-os": "ubuntu22.04"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"nvidia.com/cuda.driver.major": "595"}}, ["spec.nodeSelector"]),
    ({"nodeSelector": {"a": "b c"}}, ["spec.nodeSelector.a"]),
    ({"labels": {"a": "-"}, "annotations": {"a b": "c"}}, ["spec.labels.a", "spec.annotations"]),
    ({"upgradePolicy": {"maxUnavailable": "1"}}, ["spec.upgradePolicy.maxUnavailable"]),
    ({"image": ""}, ["spec.image"]),
    ({"image": "driver", "version": "550"}, ["spec.repository"]),
    ({"manager": {"version": "v1"}}, ["spec.manager.repository", "spec.manager.image"]),
    ({"gdrcopy": {"enabled": True}}, ["spec.gdrcopy.image"]),
    ({"usePrecompiled": True, "gdrcopy": {"enabled": True, "image": "i"}}, ["spec.gdrcopy.enabled"]),
    ({"usePrecompiled": True, "image": f"driver@{DIGEST}"}, ["spec.image"]),
    ({"gds": GDS | {"version": "v2.17.4"}}, []),
    ({"gds": GDS | {"version": "2.17.5-rc1"}}, []),
    ({"gds": GDS | {"version": "v2.17.5"}}, ["spec.kernelModuleType"]),
    ({"gds": GDS | {"version": "2.29.4"}}, ["spec.kernelModuleType"]),
    ({"gds": GDS | {"version": "3"}}, ["spec.kernelModuleType"]),
    ({"gds": GDS | {"version": DIGEST}}, ["spec.kernelModuleType"]),
    ({"gds": GDS | {"version": "2.29.4"}, "kernelModuleType": "open"}, []),
    ({"gds": GDS | {"version": "2.29.4", "enabled": False}}, []),
    ({"env": [{"name": ""}]}, ["spec.env[0].name"]),
])
def test_what_an_nvidiadriver_cannot_be_followed_in(spec: dict[str, Any], fields: list[str]) -> None:
    assert driver_problems(spec) == fields


def test_the_name_of_an_nvidiadriver_has_to_be_a_label_value() -> None:
    driver = nvidia_driver({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "x" * 64}})
    assert [problem.field for problem in validate.nvidia_driver(driver)] == ["metadata.name"]
