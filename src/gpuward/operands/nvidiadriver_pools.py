"""The node pools of an NVIDIADriver: nodes for which one DaemonSet with one image will do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.model.views import NodeView
from gpuward.operands.cluster import os_tag
from gpuward.operands.digest import fnv1a

_LONGEST_APP = 63
_LONGEST_NAME = 253
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names; NVIDIA's operator spells hashes in it, digit by digit."""


class Pool(msgspec.Struct, frozen=True, order=True):
    """Tell the nodes of one operating system, and of one kernel where drivers are precompiled, from the others."""

    os_tag: str
    """As driver images spell it, such as ubuntu22.04 or rhel9."""
    kernel: str = ""
    os_id: str = ""
    node_selector: Mapping[str, str] = {}


def pools_of(driver: NVIDIADriver, nodes: Iterable[NodeView]) -> tuple[Pool, ...]:
    """Return the pools of the nodes that an NVIDIADriver owns, by operating system and kernel.

    A node whose discovery labels do not say what it runs is in no pool.
    """
    owned = owned_selector(driver)
    found: dict[tuple[str, str], Pool] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        if owned.items() <= node.labels.items() and (pool := _pool(node, owned, driver.spec.is_precompiled)) is not None:
            found.setdefault((pool.os_tag, pool.kernel), pool)
    return tuple(found[key] for key in sorted(found))


def owned_selector(driver: NVIDIADriver) -> dict[str, str]:
    """Return the labels of the nodes that an NVIDIADriver owns."""
    return {**driver.spec.node_selector, names.GPU_PRESENT: "true", names.DRIVER_OWNER: driver.name}


def is_unknown(node: NodeView, *, precompiled: bool) -> bool:
    """Tell whether discovery labels that say in which pool a node is are missing."""
    return _pool(node, {}, precompiled) is None


def _pool(node: NodeView, owned: Mapping[str, str], precompiled: bool) -> Pool | None:
    tag, system, version = os_tag(node), node.labels.get(names.NFD_OS_ID, ""), node.labels.get(names.NFD_OS_VERSION, "")
    kernel = node.labels.get(names.NFD_KERNEL, "") if precompiled else ""
    key = names.NFD_OS_VERSION if tag.endswith(version) else names.NFD_OS_MAJOR
    if not tag or key not in node.labels or (precompiled and not kernel):
        return None
    selector = {**owned, names.NFD_OS_ID: system, key: node.labels[key]}
    return Pool(tag, kernel, system, selector | ({names.NFD_KERNEL: kernel} if kernel else {}))


def app_name(driver: NVIDIADriver, pool: Pool) -> str:
    """Return the name of a pool's DaemonSet, as NVIDIA's operator makes it of the NVIDIADriver's uid."""
    uid = str(driver.metadata.get("uid", ""))
    digits = fnv1a(f"{uid}-{pool.kernel}" if pool.kernel else uid)
    suffix = "-" + "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digits)
    return f"nvidia-{driver.spec.driver_type}-driver-{pool.os_tag}"[: _LONGEST_APP - len(suffix)] + suffix


def access_name(driver: NVIDIADriver, pool: Pool) -> str:
    """Return the name of a pool's ServiceAccount and roles."""
    return f"nvidia-{driver.spec.driver_type}-driver-{driver.name}-{pool.os_tag}"[:_LONGEST_NAME].rstrip("-.")
