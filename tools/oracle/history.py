"""What of a cluster may depend on what was there before, and why: all else is as freshly installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gpuward import names
from tools.oracle.sequence import Wanted

Paths = tuple[tuple[str, tuple[str, ...]], ...]
"""Kinds, and fields of them; `*` stands for anything in a part of a path. A kind with a name, or a part of one, and no path: the
whole object."""

_OF_DISCOVERY: Final = (
    "nvidia.com/cuda.*", "nvidia.com/gfd.*", "nvidia.com/gpu.c*", "nvidia.com/gpu.family", "nvidia.com/gpu.m*",
    "nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing*", "nvidia.com/m*.strategy",
    "nvidia.com/m*.capable", "nvidia.com/vgpu.present")


class Dependence(NamedTuple):
    """Say what is left as it was, under which policies, and why that is right."""

    fields: Paths
    why: str
    when: Callable[[Wanted], bool] = lambda wanted: True


def _labels(*keys: str) -> Paths:
    return tuple(("Node", ("metadata", "labels", key)) for key in keys)


def _without_discovery(wanted: Wanted) -> bool:
    policy = wanted.policy
    return policy.get("gfd", {}).get("enabled") is False or bool(policy.get("sandboxWorkloads", {}).get("enabled"))


def _without_layout(wanted: Wanted) -> bool:
    manager = wanted.policy.get("migManager")
    return manager is None or manager.get("enabled") is False or not (manager.get("config") or {}).get("default")


def _without_default(wanted: Wanted) -> bool:
    return bool(wanted.policy["driver"].get("useNvidiaDriverCRD")) and not any(
        spec.get("default") for spec in wanted.drivers.values())


def _with_drivers_at_rest(wanted: Wanted) -> bool:
    return bool(wanted.drivers) and not wanted.policy["driver"].get("useNvidiaDriverCRD")


DEPENDENCES: Final = (
    Dependence((("Node", ("metadata", "annotations", names.UPGRADE_RECORD)),),
               "A node's record says which driver was loaded there before, and when what happened."),
    Dependence((("Node", ("metadata", "annotations", names.UPGRADE_HISTORY)),),
               "A node remembers its upgrades."),
    Dependence(_labels(*(f"{names.DEPLOY_PREFIX}{operand}"
                         for operand in ("dcgm-dra", "dcgm-exporter-dra", "dra-validator", "nvsm"))),
               "The driver manager leaves empty labels of operands that the policy does not have where it replaced a driver."),
    Dependence(_labels(*_OF_DISCOVERY, f"{names.DEPLOY_PREFIX}mig-manager", names.MIG_CONFIG),
               "Labels of GPU feature discovery stay where it no longer runs, as they are its; the MIG manager goes by them.",
               _without_discovery),
    Dependence(_labels(names.MIG_CONFIG),
               "The layout that a node was given stays on it where the policy names none any more: its GPUs still have it.",
               _without_layout),
    Dependence((("ConfigMap default-mig-parted-config", ()), ("ConfigMap default-gpu-clients", ()),
                ("ConfigMap default-vgpu-devices-config", ())),
               "Built-in configurations stay where the policy names others, as with NVIDIA's operator."),
    Dependence((("Namespace", ("metadata", "labels", "pod-security.kubernetes.io/*")),),
               "What Pod Security allows in the namespace stays allowed, as with NVIDIA's operator: others may need it.",
               lambda wanted: not wanted.policy.get("psa", {}).get("enabled")),
    Dependence((("RuntimeClass nvidia", ()), ("RuntimeClass nvidia-legacy", ())),
               "A RuntimeClass that operands used before stays: pods of users may name it, and could not be made without it.",
               lambda wanted: wanted.policy.get("operator", {}).get("runtimeClass", "nvidia") != "nvidia"),
    Dependence((*((f"{kind} nvidia-driver", ()) for kind in (
        "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
                ("ConfigMap nvidia-driver-startup-probe", ())),
               "Drivers of the ClusterPolicy run on, with what they need, on nodes that no NVIDIADriver takes over.",
               _without_default),
    Dependence((*_labels(names.DRIVER_OWNER), *((f"{kind} nvidia-gpu-driver-*", ()) for kind in (
        "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
                *(("NVIDIADriver", ("metadata", "annotations", key)) for key in (names.VALID_UPGRADE_POLICY, names.VALID_SPEC))),
               "What was made for NVIDIADrivers that are not in force any more waits for them, and nodes keep their owner label.",
               _with_drivers_at_rest),
)
