"""Which version of a driver the tag of its image names: the rest says what it was built for."""

from __future__ import annotations

import pytest

from gpuward.model.versions import version_of


@pytest.mark.parametrize(("tag", "kernel", "system", "version"), [
    ("595.91.07-ubuntu22.04", "", "", "595.91.07"),
    ("595.91.07-rhcos4.16", "", "", "595.91.07"),
    ("595.91.07-sl-micro6.1", "", "", "595.91.07"),
    ("595.91.07-opensuse-leap15.6", "", "", "595.91.07"),
    ("595.91.07-sle_hpc15.5", "", "sle_hpc15.5", "595.91.07"),
    ("595.91.07-ubuntu22.04", "", "rhel9", "595.91.07"),
    ("595-5.15.0-101-generic-ubuntu22.04", "5.15.0-101-generic", "ubuntu22.04", "595"),
    ("595-6.4.0-20-default-sl-micro6.1", "6.4.0-20-default", "", "595"),
])
def test_a_version_has_no_operating_system_and_no_kernel(tag: str, kernel: str, system: str, version: str) -> None:
    assert version_of(f"registry.example:5000/driver:{tag}", kernel, system) == version
