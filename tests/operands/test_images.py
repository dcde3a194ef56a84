"""Image references: where they come from, and what is refused."""

from __future__ import annotations

import pytest

from gpuward.crd.shapes import Image
from gpuward.errors import PolicyError
from gpuward.operands import images

ENVIRONMENT = {"TOOLKIT_IMAGE": "env.example/toolkit:1"}


@pytest.mark.parametrize(("image", "expected"), [
    (Image(repository="r.example/n", image="tool", version="v1"), "r.example/n/tool:v1"),
    (Image(repository="r.example/n", image="tool", version="sha256:abc"), "r.example/n/tool@sha256:abc"),
    (Image(image="r.example/n/tool:v2"), "r.example/n/tool:v2"),
    (Image(), "env.example/toolkit:1"),
])
def test_resolve(image: Image, expected: str) -> None:
    assert images.resolve("spec.toolkit", image, "TOOLKIT_IMAGE", ENVIRONMENT) == expected


@pytest.mark.parametrize(("image", "fix"), [
    (Image(repository="r"), "set image and version too"),
    (Image(version="v1"), "set repository and image too"),
    (Image(repository="r", image="tool"), "set version too"),
    (Image(image="tool", version="v1"), "set repository too"),
])
def test_part_of_an_image_is_refused(image: Image, fix: str) -> None:
    with pytest.raises(PolicyError) as refused:
        images.resolve("spec.toolkit", image, "TOOLKIT_IMAGE", ENVIRONMENT)
    assert refused.value.field == "spec.toolkit"
    assert refused.value.fix.startswith(fix)


def test_no_image_anywhere_names_the_variable() -> None:
    with pytest.raises(PolicyError, match=r"spec\.toolkit\.image: .* or TOOLKIT_IMAGE on the operator"):
        images.resolve("spec.toolkit", Image(), "TOOLKIT_IMAGE", {})


@pytest.mark.parametrize(("given", "fix"), [
    (f"r.example/n/tool:sha256:{'0' * 64}", f"write r.example/n/tool@sha256:{'0' * 64}: a digest comes after '@'"),
    ("r.example/n/tool:%!s(int64=12)", "write a full reference, such as nvcr.io/nvidia/driver:580.126.09"),
    ("/tool:", "write a full reference, such as nvcr.io/nvidia/driver:580.126.09"),
])
def test_a_variable_that_names_no_image_is_refused_by_its_name(given: str, fix: str) -> None:
    """A DaemonSet with it would take the driver away, and bring none."""
    with pytest.raises(PolicyError) as refused:
        images.resolve("spec.toolkit", Image(), "TOOLKIT_IMAGE", {"TOOLKIT_IMAGE": given})
    assert (refused.value.field, refused.value.value, refused.value.fix) == ("TOOLKIT_IMAGE on the operator", given, fix)


@pytest.mark.parametrize(("reference", "expected"), [
    ("r/driver:595", "r/driver:595-ubuntu22.04"),
    ("r/driver@sha256:abc", "r/driver@sha256:abc"),
])
def test_os_tag_follows_a_tag_but_not_a_digest(reference: str, expected: str) -> None:
    assert images.with_os_tag(reference, "ubuntu22.04") == expected


@pytest.mark.parametrize(("policy", "expected"), [
    ("Always", "Always"), ("Never", "Never"), ("IfNotPresent", "IfNotPresent"),
    ("", "IfNotPresent"), ("Sometimes", "IfNotPresent"),
])
def test_pull_policy(policy: str, expected: str) -> None:
    assert images.pull_policy(Image(image_pull_policy=policy)) == expected
