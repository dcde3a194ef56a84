"""Drivers that nodes have loaded while no ClusterPolicy is there: what another one has to ask for to leave them as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.removal import NO_DRIVER
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.model.workloads import is_for_virtual_machines


class Loaded(NamedTuple):
    """Name a driver that nodes have, as discovery saw it last."""

    version: str
    precompiled: bool = False
    owned: bool = False
    """Whether an NVIDIADriver brought it."""

    @property
    def asked(self) -> str:
        """Return the settings of a ClusterPolicy that bring the same driver."""
        if self.owned:
            return "driver.useNvidiaDriverCRD: true"
        if self.precompiled:
            return f"driver.usePrecompiled: true and driver.version: {self.version.partition('.')[0]}"
        return f"driver.version: {self.version}"


def loaded_by(nodes: Iterable[NodeView]) -> Mapping[Loaded, list[str]]:
    """Return the drivers that were brought to nodes, and not taken from them again, with the names of the nodes. Hosts of virtual
    machines have another one in the place of what was brought to them before.
    """
    found: dict[Loaded, list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        record, version = node.record, node.labels.get(names.DRIVER_VERSION, "")
        if is_for_virtual_machines(node):
            continue
        if node.gpu_present and version and record is not None and record.loaded and record.target != NO_DRIVER:
            owned = names.DRIVER_OWNER in node.labels
            found.setdefault(Loaded(version, names.DRIVER_KERNEL in node.labels, owned), []).append(node.name)
    return found


def told_of_left(snapshot: Snapshot, only: str = "") -> Iterator[str]:
    """Say which drivers nodes, or one of them, had loaded when their driver pods went, and what keeps them."""
    without = [node for name, node in snapshot.nodes.items() if only in ("", name)
               and not any(is_driver_pod(pod, snapshot.namespace) for pod in snapshot.pods.get(name, ()))]
    for loaded, nodes in loaded_by(without).items():
        have, it = ("has", "it reboots") if len(nodes) == 1 else ("have", "they reboot")
        whose = "this node" if only else listed(nodes, MOST_NAMED)
        yield (f"{whose} {have} no driver pod any more; driver {loaded.version}, which the operator brought, may stay "
               f"loaded until {it}. A ClusterPolicy with {loaded.asked} brings the same back; another one replaces it")
