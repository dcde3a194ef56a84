"""What pods ask for, told by the names of resources."""

from __future__ import annotations

import pytest

from gpuward.model.workloads import is_vm_gpu


@pytest.mark.parametrize(("resource", "is_one"), [
    ("nvidia.com/GA102GL_A10", True), ("nvidia.com/NVIDIA_A40-48Q", True), ("nvidia.com/pgpu", True),
    ("nvidia.com/gpu", False), ("nvidia.com/gpu.shared", False), ("nvidia.com/mig-1g.5gb", False),
    ("nvidia.com/hostdev", False), ("nvidia.com/hostdev_2", False), ("amd.com/gpu", False), ("cpu", False),
])
def test_devices_of_virtual_machines_are_told_from_gpus_of_containers_and_from_network_cards(resource: str, is_one: bool) -> None:
    assert is_vm_gpu(resource) is is_one
