"""The node pools of an NVIDIADriver: nodes for which one DaemonSet with one image will do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuward import names
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.model.placement import Placement, placement_of
from gpuward.model.systems import kernel_of, name_of
from gpuward.model.views import NodeView
from gpuward.operands.cluster import os_tag
from gpuward.operands.driver.digest import fnv1a, name_part

_LONGEST_APP = 63
_LONGEST_NAME = 253
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names; NVIDIA's operator spells hashes in it, digit by digit."""


class Pool(msgspec.Struct, frozen=True, order=True):
    """Tell the nodes of one operating system, and of one kernel where drivers are precompiled, from the others."""

    os_tag: str
    """As driver images spell it, such as ubuntu22.04 or rhel9."""
    kernel: str = ""
    owner: str = ""
    """The NVIDIADriver."""

    @property
    def os_id(self) -> str:
        """Return the operating system's ID, such as ubuntu."""
        return name_of(self.os_tag)

    @property
    def os_name(self) -> str:
        """Return the operating system as a part of objects' names."""
        return name_part(self.os_tag)

    @property
    def node_selector(self) -> dict[str, str]:
        """Return the node labels that a pod of the pool's DaemonSet needs beside those of every driver pod.

        They are those that place a node, and none that others may edit or take away under a driver that runs.
        """
        placement = Placement(self.owner, self.os_tag, self.kernel)
        return {key: value for key, value in placement.labels.items() if value is not None}


def pools_of(driver: NVIDIADriver, nodes: Iterable[NodeView]) -> tuple[Pool, ...]:
    """Return the pools of the nodes that an NVIDIADriver owns, by operating system and kernel.

    A node of which neither its placement nor its discovery labels say what it runs is in no pool.
    """
    found: set[Pool] = set()
    for node in nodes:
        if owns(driver, node) and (pool := _pool(node, driver.name, driver.spec.is_precompiled)) is not None:
            found.add(pool)
    return tuple(sorted(found))


def owns(driver: NVIDIADriver, node: NodeView) -> bool:
    """Tell whether a node with GPUs is an NVIDIADriver's: by its label, since what selectors say need not be followed yet."""
    return node.gpu_present and node.labels.get(names.DRIVER_OWNER) == driver.name


def is_unknown(node: NodeView, *, precompiled: bool) -> bool:
    """Tell whether labels that say in which pool a node is are missing."""
    return _pool(node, "", precompiled) is None


def _pool(node: NodeView, owner: str, precompiled: bool) -> Pool | None:
    placed = placement_of(node.labels)
    tag = placed.os or os_tag(node)
    kernel = (placed.kernel or kernel_of(node.labels)) if precompiled else ""
    return None if not tag or (precompiled and not kernel) else Pool(tag, kernel, owner)


def app_name(driver: NVIDIADriver, pool: Pool) -> str:
    """Return the name of a pool's DaemonSet, as NVIDIA's operator makes it of the NVIDIADriver's uid."""
    uid = str(driver.metadata.get("uid", ""))
    digits = fnv1a(f"{uid}-{pool.kernel}" if pool.kernel else uid)
    suffix = "-" + "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digits)
    return f"nvidia-{driver.spec.driver_type}-driver-{pool.os_name}"[: _LONGEST_APP - len(suffix)] + suffix


def access_name(driver: NVIDIADriver, pool: Pool) -> str:
    """Return the name of a pool's ServiceAccount and roles."""
    kind = "vgpu-manager" if driver.spec.is_for_hosts else f"{driver.spec.driver_type}-driver"
    return f"nvidia-{kind}-{driver.name}-{pool.os_name}"[:_LONGEST_NAME].rstrip("-.")
