"""The labels by which operands go while the driver is replaced: the contract of NVIDIA's driver manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuward import names
from gpuward.model.driver import is_driver_pod, is_hosts_driver_pod
from gpuward.model.pauses import MARKER, paused
from gpuward.model.views import PodView

ALWAYS: Final = (
    "operator-validator", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm",
    "sandbox-validator", "sandbox-device-plugin", "vgpu-device-manager", "dra-validator", "dcgm-dra", "dcgm-exporter-dra")
IF_SET: Final = ("mig-manager", "client")
DRA: Final = "dra-driver"
APPS: Final = {
    "operator-validator": "nvidia-operator-validator", "container-toolkit": "nvidia-container-toolkit-daemonset",
    "device-plugin": "nvidia-device-plugin-daemonset", "gpu-feature-discovery": "gpu-feature-discovery",
    "dcgm-exporter": "nvidia-dcgm-exporter", "dcgm": "nvidia-dcgm", "dcgm-exporter-dra": "nvidia-dcgm-exporter-dra",
    "dcgm-dra": "nvidia-dcgm-dra", "mig-manager": "nvidia-mig-manager", "sandbox-validator": "nvidia-sandbox-validator",
    "sandbox-device-plugin": "nvidia-sandbox-device-plugin-daemonset", "vgpu-device-manager": "nvidia-vgpu-device-manager",
}
"""The value of the label `app` of their pods. Those of nvsm and of a label of people's own are not waited for."""
OTHERS: Final = frozenset({
    names.MPS_DAEMON_APP, "nvidia-node-status-exporter", "nvidia-kata-sandbox-device-plugin-daemonset",
    names.VGPU_MANAGER_APP, names.CC_MANAGER_APP, names.VFIO_MANAGER_APP})
"""Further operands, by `app` or, the last two, by `name`."""
TOOLKIT: Final = names.DEPLOY_PREFIX + "container-toolkit"
CLIENT: Final = names.DEPLOY_PREFIX + "client"
DRA_APP: Final = "nvidia-dra-driver-kubelet-plugin"


def pause_labels(labels: Mapping[str, str], custom: str = "") -> dict[str, str]:
    """Return what changes where the operands are to go. Labels that a node lacks stay away: nothing selects by them."""
    return _changed(labels, _pausable(custom))


def is_paused_by(key: str, labels: Mapping[str, str], custom: str = "") -> bool:
    """Tell whether a pod that selects its node by this label goes while the driver is replaced: not by one that nobody pauses."""
    return key in (*_pausable(custom), names.DEPLOY_PREFIX + DRA) and MARKER in paused(labels.get(key, ""))


def is_operand(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod is one of the operator's DaemonSets, and no other that somebody runs beside them."""
    if pod.namespace != namespace:
        return False
    ours = {pod.labels.get("app"), pod.labels.get("name")} & {*APPS.values(), *OTHERS}
    return bool(ours) or is_driver_pod(pod, namespace) or is_hosts_driver_pod(pod, namespace)


def is_toolkit(pod: PodView) -> bool:
    """Tell whether an operand's pod is that of the container toolkit."""
    return pod.labels.get("app") == APPS["container-toolkit"]


def pause_dra(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what changes where the DRA driver's kubelet plugin is to go: after those who hold its claims."""
    return _changed(labels, [names.DEPLOY_PREFIX + DRA])


def _pausable(custom: str) -> list[str]:
    return [*(names.DEPLOY_PREFIX + name for name in (*ALWAYS, *IF_SET)), *([custom] if custom else [])]


def _changed(labels: Mapping[str, str], keys: list[str]) -> dict[str, str]:
    return {key: paused(labels[key]) for key in keys if key in labels and paused(labels[key]) != labels[key]}
