"""Images that are missing, as kubelets meet them."""

from __future__ import annotations

import pytest

from gpuward.sandbox.images import any_image, built_for_kernel, listed, nvidias

REGISTRY = "nvcr.io/nvidia/driver"


@pytest.mark.parametrize("image", [
    f"{REGISTRY}:595.91.07-ubuntu22.04", f"{REGISTRY}:570.1-rhel9.4", f"{REGISTRY}:580-5.15.0-101-generic-ubuntu22.04",
    f"{REGISTRY}:580.95.05-5.14.0-427.13.1.el9_4.x86_64-rhel9.4", f"{REGISTRY}@sha256:{'0' * 64}", "i", "gpuward",
    "registry.example/inference:7", "nvcr.io/nvidia/k8s-device-plugin:no-number",
])
def test_images_that_exist(image: str) -> None:
    assert nvidias(image)
    assert any_image(image)


@pytest.mark.parametrize("tag", ["595.91.x-ubuntu22.04", "latest", "", "v595.91.07-ubuntu22.04", "595-ubuntu22.04",
                                 "595.91.07", "595.91.07.1-ubuntu22.04", "595.91.07-"])
def test_drivers_that_do_not(tag: str) -> None:
    assert not nvidias(f"{REGISTRY}:{tag}")


def test_a_list_of_images_is_all_that_there_is_but_the_sandbox_s_own() -> None:
    there = listed(["nvcr.io/nvidia/driver:595.*", "a/b:1"])
    assert all(map(there, [f"{REGISTRY}:595.91.07-ubuntu22.04", "a/b:1", "gpuward", "registry.example/web:2"]))
    assert not any(map(there, [f"{REGISTRY}:596.1-ubuntu22.04", "a/b:2"]))


@pytest.mark.parametrize(("tag", "kernel"), [
    ("580-5.15.0-101-generic-ubuntu22.04", "5.15.0-101-generic"),
    ("580.95.05-5.14.0-427.el9_4.x86_64_rt-rhel9.4", "5.14.0-427.el9_4.x86_64_rt"),
    ("580-6.4.0-24-default-sl-micro6.1", "6.4.0-24-default"), ("580.95.05-sl-micro6.1", ""),
    ("580.95.05-ubuntu22.04", ""), ("580.95.05-2026.01-build7-ubuntu22.04", ""), ("580.95.05-1-mirror-ubuntu22.04", "")])
def test_the_kernel_of_a_precompiled_driver_is_in_its_tag(tag: str, kernel: str) -> None:
    assert built_for_kernel(f"{REGISTRY}:{tag}") == kernel
