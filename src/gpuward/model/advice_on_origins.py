"""What the reasons mean that say where a node's driver comes from, or that it has to stay."""

from __future__ import annotations

from typing import Final

from gpuward.model.acts import Act, Advice
from gpuward.model.reasons import Reason

ON_ORIGINS: Final[dict[Reason, Advice]] = {
    Reason.NOT_SELECTED: Advice(
        Act.YES, "Drivers are left to NVIDIADrivers, and none of them selects this node: it gets no driver pod.",
        "Label the node so that an NVIDIADriver selects it, widen a `nodeSelector`, or give one `default: true`. `gpuward "
        "explain NODE` lists labels that would do. A node that is to have no driver can be skipped."),
    Reason.DRIVER_REFUSED: Advice(
        Act.YES, "An NVIDIADriver is for this node and can make no DaemonSet for it, because of a conflict with another one or "
        "an error in it.",
        "`kubectl get nvidiadrivers` and the condition say which field or which other NVIDIADriver is in the way. Correct that."),
    Reason.WRONG_DRIVER_TYPE: Advice(
        Act.YES, "The NVIDIADriver that selects this node brings the driver of hosts of vGPUs, and this node runs containers. A "
        "driver pod that runs here runs on; no other comes. One of another NVIDIADriver, whose the node is no more, stays "
        "until that is deleted, and is not upgraded.",
        "Select the node by an NVIDIADriver with `driverType: gpu` or `vgpu`, and by no other. If it is to be a host of vGPUs, "
        "enable `sandboxWorkloads` in the ClusterPolicy and label it `nvidia.com/gpu.workload.config=vm-vgpu`. `driverType` "
        "cannot be edited: make another NVIDIADriver."),
    Reason.DRIVER_LABEL_UNKNOWN: Advice(
        Act.YES, "The label `nvidia.com/gpu.deploy.driver` has a value that means nothing. DaemonSets select nodes by `true`, so "
        "that the node loses its driver pod, or gets none.",
        "Set the label to `true`, to `false` if the node is to have no driver, or to `pre-installed` if its host has one."),
    Reason.KERNEL_UNKNOWN: Advice(
        Act.YES, "A precompiled driver is built for one kernel, and node feature discovery says by the label "
        "`feature.node.kubernetes.io/kernel-version.full` which one a node needs. The label is missing, or the node's kubelet "
        "tells of another kernel. A node that has a driver keeps it meanwhile.",
        "See whether node feature discovery runs on the node, and correct the label: `kubectl get node NODE -o "
        "jsonpath='{.status.nodeInfo.kernelVersion}'` says the kernel."),
    Reason.DRIVER_KEPT: Advice(
        Act.WISH, "The driver of this node is to go: drivers are switched off, or its NVIDIADriver is deleted. Automatic "
        "upgrades are off (`autoUpgrade` is false, or `sandboxWorkloads.enabled` is true), so nobody is evicted for that. It "
        "goes by itself once nothing uses it.",
        "Nothing. To have it sooner, end the pods that use the node's GPUs, or turn automatic upgrades on."),
    Reason.MOVE_PAUSED: Advice(
        Act.WISH, "The node is to get its driver from another NVIDIADriver, or for another operating system or kernel, and "
        "automatic upgrades are off.",
        "Turn them on, or delete the driver pod by hand once nothing uses it."),
    Reason.WORKLOAD_KEPT: Advice(
        Act.WISH, "The node is to serve another kind of workload: its label nvidia.com/gpu.workload.config was changed, or "
        "sandboxWorkloads of the ClusterPolicy. That takes its driver away, so it waits for the pods that use its GPUs. None is "
        "evicted for it.",
        "Cordon the node, so that no more pods come, and let them finish, or drain it. Or take the change back."),
    Reason.OPERANDS_KEPT: Advice(
        Act.WISH, "Somebody set nvidia.com/gpu.deploy.operands=false on the node. That takes its driver away, so it waits for "
        "the pods that use its GPUs. None is evicted for it.",
        "Cordon the node, so that no more pods come, and let them finish, or drain it. Or remove the label."),
}
