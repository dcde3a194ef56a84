"""The states of nodes for virtual machines, in the order of the ClusterPolicy's states."""

from __future__ import annotations

from gpuward.operands.sandboxes import (
    cc_manager,
    device_plugins,
    kata_manager,
    validator,
    vfio_manager,
    vgpu_devices,
    vgpu_manager,
)

SANDBOX_STATES = (
    vgpu_manager,
    vgpu_devices,
    validator,
    vfio_manager,
    device_plugins.KUBEVIRT,
    device_plugins.KATA,
    kata_manager,
    cc_manager,
)
