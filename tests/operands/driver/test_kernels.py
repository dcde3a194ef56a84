"""Precompiled drivers: a DaemonSet per kernel, and which DaemonSets must go."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.model.views import DaemonSetView
from gpuward.operands import NodeKernel, OperandState, stale_driver_daemon_sets
from gpuward.operands.driver.kernels import sanitized
from tests.operands.build import TWO_KERNELS, facts, states

FIRST = "nvidia-driver-daemonset-5.15.0-101-generic-ubuntu22.04"
SECOND = "nvidia-driver-daemonset-5.15.0-105-generic-ubuntu22.04"


def precompiled(spec: dict[str, Any] | None = None, **cluster: Any) -> OperandState:
    driver = {"usePrecompiled": True, "version": "580", **(spec or {})}
    return states({"driver": driver}, facts(**{"kernels": TWO_KERNELS, **cluster}))["state-driver"]


def daemon_sets(state: OperandState) -> dict[str, Any]:
    assert state.error is None
    return {obj["metadata"]["name"]: obj for obj in state.objects if obj["kind"] == "DaemonSet"}


def view(name: str, label: str = "true", desired: int = 1, misscheduled: int = 0) -> DaemonSetView:
    labels = {"nvidia.com/precompiled": label} if label else {}
    return DaemonSetView("gpu-operator", name, uid=name, labels=labels, desired=desired, misscheduled=misscheduled)


def test_each_kernel_has_its_daemon_set_and_image() -> None:
    made = daemon_sets(precompiled())
    assert list(made) == [FIRST, SECOND]
    for name, build in ((FIRST, 101), (SECOND, 105)):
        spec = made[name]["spec"]
        kernel = f"5.15.0-{build}-generic"
        own = {"gpuward.io/driver-kernel": kernel, "gpuward.io/driver-os": "ubuntu22.04"}
        assert spec["selector"]["matchLabels"] == {"app": "nvidia-driver-daemonset", **own}
        assert own.items() <= spec["template"]["metadata"]["labels"].items()
        assert spec["template"]["metadata"]["labels"]["nvidia.com/precompiled"] == "true"
        assert spec["template"]["spec"]["nodeSelector"] == {
            "nvidia.com/gpu.deploy.driver": "true", **own,
        }
        assert spec["template"]["spec"]["containers"][0]["image"] == f"nvcr.io/nvidia/driver:580-{kernel}-ubuntu22.04"


def test_digests_are_those_of_nvidias_operator() -> None:
    digests = [
        next(v["value"] for v in obj["spec"]["template"]["spec"]["containers"][0]["env"] if v["name"] == "DRIVER_CONFIG_DIGEST")
        for obj in daemon_sets(precompiled()).values()
    ]
    assert digests == ["2594173246", "1874962770"]


def test_each_kernel_gets_the_image_of_its_own_system() -> None:
    kernels = (TWO_KERNELS[0], NodeKernel("5.14.0-427.el9.x86_64", "rhel9.4", "rhel9"))
    made = daemon_sets(precompiled(kernels=kernels))
    image = made["nvidia-driver-daemonset-5.14.0-427.el9-rhel9.4"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "nvcr.io/nvidia/driver:580-5.14.0-427.el9.x86_64-rhel9"


def test_a_kernel_under_two_systems_has_a_daemon_set_for_each() -> None:
    """Ubuntu's releases share kernels; and a node whose labels are wrong must not hold up the others."""
    kernels = (TWO_KERNELS[0], NodeKernel(TWO_KERNELS[0].version, "ubuntu24.04", "ubuntu24.04"), TWO_KERNELS[1])
    made = daemon_sets(precompiled(kernels=kernels))
    other = FIRST.replace("22.04", "24.04")
    assert list(made) == [FIRST, other, SECOND]
    chosen = [each["spec"]["template"]["spec"]["nodeSelector"] for each in made.values()]
    assert [one["gpuward.io/driver-os"] for one in chosen] == ["ubuntu22.04", "ubuntu24.04", "ubuntu22.04"]
    assert made[other]["spec"]["template"]["spec"]["containers"][0]["image"].endswith("-5.15.0-101-generic-ubuntu24.04")


@pytest.mark.parametrize("others", [("5.14.0-427.el9.aarch64",), ("5.14.0-427.el9.aarch64", "5.14.0-427.EL9.aarch64_64k")])
def test_kernels_that_are_spelled_alike_in_a_name_have_a_daemon_set_each(others: tuple[str, ...]) -> None:
    """They had one name, so that the last of them took the drivers of all others away."""
    x86 = "5.14.0-427.el9.x86_64"
    made = daemon_sets(precompiled(kernels=tuple(NodeKernel(version, "rhel9.4", "rhel9") for version in (*others, x86))))
    kernels = {name: each["spec"]["selector"]["matchLabels"]["gpuward.io/driver-kernel"] for name, each in made.items()}
    assert sorted(kernels.values()) == sorted((*others, x86))
    assert kernels["nvidia-driver-daemonset-5.14.0-427.el9-rhel9.4"] == x86


@pytest.mark.parametrize(("kernel", "expected"), [
    ("5.15.0-101-generic", "5.15.0-101-generic"),
    ("5.14.0-427.el9.x86_64", "5.14.0-427.el9"),
    ("5.14.0-427.el9.aarch64_64k", "5.14.0-427.el9"),
    ("6.4.0-Default_1", "6.4.0-default.1"),
])
def test_sanitized(kernel: str, expected: str) -> None:
    assert sanitized(kernel) == expected


@pytest.mark.parametrize(("driver", "cluster", "words"), [
    ({}, {"kernels": ()}, "kernel-version.full"),
    ({}, {"os_tag": ""}, "operating system"),
    ({"version": "sha256:abc"}, {}, "one kernel only"),
    ({"repository": None, "image": None, "version": None}, {}, "set repository, image and version"),
])
def test_what_cannot_be_precompiled(driver: dict[str, Any], cluster: dict[str, Any], words: str) -> None:
    error = precompiled(driver, **cluster).error
    assert error is not None
    assert words in error.fix


@pytest.mark.parametrize("module", ["gds", "gdrcopy"])
def test_modules_that_need_sources_are_refused(module: str) -> None:
    spec = {"driver": {"usePrecompiled": True}, module: {"enabled": True}}
    error = states(spec, facts(kernels=TWO_KERNELS))["state-driver"].error
    assert error is not None
    assert error.field == f"spec.{module}.enabled"


def test_suse_links_with_the_hosts_modules() -> None:
    kernel = NodeKernel("6.4.0-1-default", "sles15.6", "sles15.6")
    made, = daemon_sets(precompiled(kernels=(kernel,), os_tag="sles15.6")).values()
    volume = {"name": "lib-modules", "hostPath": {"path": "/lib/modules", "type": "Directory"}}
    assert volume in made["spec"]["template"]["spec"]["volumes"]


def test_only_suse_links_with_the_hosts_modules() -> None:
    kernels = (NodeKernel("6.4.0-1-default", "sles15.6", "sles15.6"), NodeKernel("6.8.0-1-generic", "ubuntu24.04", "ubuntu24.04"))
    for first in ("sles15.6", "ubuntu24.04"):
        suse, ubuntu = daemon_sets(precompiled(kernels=kernels, os_tag=first)).values()
        mounted = [[volume["name"] for volume in each["spec"]["template"]["spec"]["volumes"]] for each in (suse, ubuntu)]
        assert ["lib-modules" in each for each in mounted] == [True, False]


@pytest.mark.parametrize(("wanted", "existing", "stale"), [
    ("precompiled", [view(FIRST), view(SECOND)], []),
    ("precompiled", [view("nvidia-driver-daemonset", "false", desired=3)], ["nvidia-driver-daemonset"]),
    ("precompiled", [view("nvidia-driver-daemonset-old", desired=1)], []),
    ("precompiled", [view("nvidia-driver-daemonset-old", desired=0, misscheduled=1)], []),
    ("precompiled", [view("nvidia-driver-daemonset-old", desired=0)], ["nvidia-driver-daemonset-old"]),
    ("compiled", [view(SECOND), view(FIRST), view("nvidia-driver-daemonset", "false")], [FIRST, SECOND]),
    ("compiled", [view("nvidia-gpu-driver-ubuntu22.04-x"), view("nvidia-device-plugin-daemonset", "")], []),
    ("disabled", [view(FIRST)], []),
    ("broken", [view(FIRST)], []),
])
def test_stale_daemon_sets(wanted: str, existing: list[DaemonSetView], stale: list[str]) -> None:
    changes: dict[str, dict[str, Any]] = {
        "precompiled": {"usePrecompiled": True}, "compiled": {}, "disabled": {"enabled": False}, "broken": {"version": ""},
    }
    state = states({"driver": changes[wanted]}, facts(kernels=TWO_KERNELS))["state-driver"]
    assert [ds.name for ds in stale_driver_daemon_sets(state, existing)] == stale
