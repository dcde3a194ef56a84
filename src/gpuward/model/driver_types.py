"""Nodes with containers that only an NVIDIADriver for hosts of vGPUs selects, while they have another one's driver.

No driver comes to them from there. So whose driver they have keeps them: by its label a node is given to a DaemonSet, and would
lose its driver for nothing. Once that NVIDIADriver is deleted its driver goes, as from all its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuward import names
from gpuward.model.owners import Claim, OwnedBy, owner_of
from gpuward.model.workloads import Workload, Workloads, workload_of

_FOR_MACHINES = (Workload.VM_PASSTHROUGH, Workload.VM_VGPU)


def kept_owner(wanted: str, labels: Mapping[str, str], claims: Iterable[Claim], departing: frozenset[str]) -> str:
    """Return which NVIDIADriver has a node that another one is `wanted` for; empty for none."""
    current, claims = labels.get(names.DRIVER_OWNER, ""), tuple(claims)
    if not current or current == wanted or _hosts(wanted, claims) is None or workload_of(labels) in _FOR_MACHINES:
        return wanted
    if current in departing:
        return ""
    return current if any(claim.name == current and not claim.is_for_hosts for claim in claims) else wanted


def selected_for_hosts(node: str, labels: Mapping[str, str], claims: Iterable[Claim], workloads: Workloads | None
                       ) -> Claim | None:
    """Return the NVIDIADriver for hosts that alone selects a node which has another one's driver; None where there is none, or
    the node is to be a host.
    """
    claims = tuple(claims)
    owner = owner_of(node, labels, claims)
    if not isinstance(owner, OwnedBy) or owner.name == labels.get(names.DRIVER_OWNER):
        return None
    if workloads is not None and workloads.wanted(labels.get(names.WORKLOAD_CONFIG)) is not Workload.CONTAINER:
        return None
    return _hosts(owner.name, claims)


def _hosts(name: str, claims: Iterable[Claim]) -> Claim | None:
    return next((claim for claim in claims if claim.name == name and claim.is_for_hosts), None)
