"""What brings a driver to hosts stays while virtual machines have GPUs by it."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.actions import DeleteObject, PatchNode
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Owner, PodView, Ref
from gpuward.operands.sandboxes.in_use import spare_drivers_in_use

MACHINE = PodView("vms", "vm", uses_vm_gpu=True, phase="Running")
OF_VFIO = tuple(DeleteObject(kind, Ref("gpu-operator", "nvidia-vfio-manager"), why="off")
                for kind in ("DaemonSet", "ServiceAccount", "ClusterRole"))
OF_VGPU = (DeleteObject("DaemonSet", Ref("gpu-operator", "nvidia-vgpu-manager-daemonset"), why="off"),
           DeleteObject("ServiceAccount", Ref("gpu-operator", "nvidia-vgpu-manager"), why="off"))
OTHERS = (DeleteObject("DaemonSet", Ref("gpu-operator", "nvidia-sandbox-validator"), why="off"),
          DeleteObject("DaemonSet", Ref("gpu-operator", "nvidia-vgpu-manager-daemonset"), orphan=True, why="left"))


def seen(label: str, *pods: PodView) -> Snapshot:
    """Return a cluster with one host that gets its driver by a label."""
    return Snapshot("gpu-operator", {"n0": NodeView("n0", labels={names.GPU_PRESENT: "true", label: "true"})}, {"n0": pods})


@pytest.mark.parametrize(("label", "stay"), [(names.DEPLOY_VFIO_MANAGER, OF_VFIO), (names.DEPLOY_VGPU_MANAGER, OF_VGPU)])
def test_a_driver_in_use_stays_with_the_rights_of_its_pods(label: str, stay: tuple[DeleteObject, ...]) -> None:
    every = [*OF_VFIO, *OF_VGPU, *OTHERS]
    assert spare_drivers_in_use(every, seen(label, MACHINE), 0.0) == [action for action in every if action not in stay]


@pytest.mark.parametrize("pods", [(), (PodView("vms", "vm", uses_vm_gpu=True, phase="Succeeded"),), (PodView("web", "web"),)])
def test_a_driver_that_nobody_uses_goes(pods: tuple[PodView, ...]) -> None:
    every = [*OF_VFIO, *OF_VGPU]
    going = spare_drivers_in_use(every, seen(names.DEPLOY_VFIO_MANAGER, *pods), 0.0)
    assert [action.ref for action in going if isinstance(action, DeleteObject)] == [action.ref for action in every]
    assert isinstance(going[0], DeleteObject)
    assert going[0].unused == ("n0",), "each host is looked at once more"


@pytest.mark.parametrize("ready", [True, False])
def test_a_driver_goes_once_nothing_offers_the_gpus_of_hosts_that_are_ready(ready: bool) -> None:
    """A host that is not ready stops nothing, and lets no other keep its driver."""
    offered = names.DEPLOY_PREFIX + "sandbox-device-plugin"
    plugin = PodView("gpu-operator", "plugin", labels={"app": "nvidia-sandbox-device-plugin-daemonset"}, phase="Running",
                     owner=Owner("DaemonSet", "plugin", "1"))
    manager = PodView("gpu-operator", "vfio", labels={"name": names.VFIO_MANAGER_APP}, phase="Running",
                      owner=Owner("DaemonSet", "nvidia-vfio-manager", ""))
    node = NodeView("n0", labels={names.GPU_PRESENT: "true", names.DEPLOY_VFIO_MANAGER: "true", offered: "true"}, ready=ready)
    going = spare_drivers_in_use(OF_VFIO, Snapshot("gpu-operator", {"n0": node}, {"n0": (plugin, manager)}), 0.0)
    patched = [(action.node.name, action.unschedulable) for action in going if isinstance(action, PatchNode)]
    assert patched == ([("n0", True)] if ready else [])
    assert len([action for action in going if isinstance(action, DeleteObject)]) == (0 if ready else len(OF_VFIO))
