"""Which NVIDIADriver owns which node: the one that selects it, else the default one.

NVIDIA's operator stops everything at the first conflict, also for NVIDIADrivers that have no part in it. Here a conflict concerns
those that are in it, and the nodes about which they disagree keep the owner that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpuward import names

FOR_HOSTS: Final = "vgpu-host-manager"
"""The type of an NVIDIADriver whose drivers are for hosts of vGPUs."""


class OwnerConflict(msgspec.Struct, frozen=True):
    """Say in which node, or as defaults, several NVIDIADrivers are in each other's way; names are sorted."""

    names: tuple[str, ...]
    node: str = ""

    def __str__(self) -> str:
        listed = f"[{' '.join(self.names)}]"
        if self.node:
            return f"multiple NVIDIADrivers match the same node {self.node}: {listed}"
        return f"multiple default NVIDIADrivers found: {listed}"


class Claim(msgspec.Struct, frozen=True):
    """Hold what an NVIDIADriver says about the nodes that it is for."""

    name: str
    selector: Mapping[str, str] = {}
    """Empty for every node with GPUs."""
    default: bool = False
    auto_upgrade: bool = True
    valid: bool = True
    """False where the claim cannot be read or followed: it takes no node, and keeps those that it has."""
    able: bool = True
    """False where something else about the NVIDIADriver cannot be followed: no node loses its driver for one of this."""
    precompiled: bool = False
    """Whether its drivers are built for one kernel each."""
    driver_type: str = ""
    """For which kind of node its drivers are; empty where nobody knows."""
    conflict: OwnerConflict | None = None
    """Which other NVIDIADrivers are in its way, if that is why it cannot be followed."""
    refused: bool = False
    """Whether it could not be followed without such a conflict either."""

    @property
    def is_for_hosts(self) -> bool:
        """Tell whether its drivers are those of hosts of vGPUs, so that no node with containers gets one."""
        return self.driver_type == FOR_HOSTS

    @property
    def is_for_containers(self) -> bool:
        """Tell whether its drivers are those of nodes with containers, so that no host of vGPUs gets one."""
        return self.driver_type not in ("", FOR_HOSTS)

    def makes(self, selector: Mapping[str, str]) -> bool:
        """Tell whether a DaemonSet that selects nodes by these labels is of its kind."""
        return not self.driver_type or self.is_for_hosts == (names.DEPLOY_VGPU_MANAGER in selector)

    def keeps(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node that it selected lacks nothing but labels that GPU feature discovery takes away for a while."""
        wrong = [key for key, value in self.selector.items() if labels.get(key) != value]
        return self.valid and not self.default and all(key.startswith(names.GFD_PREFIXES) and key not in labels for key in wrong)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node with these labels is selected; the default NVIDIADriver selects none."""
        return self.valid and not self.default and self.selector.items() <= labels.items()


class OwnedBy(msgspec.Struct, frozen=True):
    """Name the NVIDIADriver that a node is for."""

    name: str


class NoOwner(msgspec.Struct, frozen=True):
    """Say that no NVIDIADriver selects the node."""


class KeepsOwner(msgspec.Struct, frozen=True):
    """Leave the node to the NVIDIADriver that has it, although that cannot be followed at the moment, or selects it by what
    nobody says of the node now.
    """


NodeOwner = OwnedBy | NoOwner | KeepsOwner | OwnerConflict


def name_of(owner: NodeOwner, current: str) -> str:
    """Return the NVIDIADriver that should own a node, empty for none; `current` stays where that is not decided."""
    match owner:
        case OwnedBy():
            return owner.name
        case NoOwner():
            return ""
        case _:
            return current


def owner_of(node: str, labels: Mapping[str, str], claims: Iterable[Claim]) -> NodeOwner:
    """Return which NVIDIADriver a GPU node should be owned by, or why that is not decided."""
    claims = tuple(claims)
    selecting = sorted(claim.name for claim in claims if claim.selects(labels))
    if len(selecting) > 1:
        return OwnerConflict(tuple(selecting), node)
    if selecting:
        return OwnedBy(selecting[0])
    current = labels.get(names.DRIVER_OWNER, "")
    if any(claim.name == current and (not claim.valid or claim.keeps(labels)) for claim in claims):
        return KeepsOwner()
    defaults = sorted(claim.name for claim in claims if claim.default and claim.valid)
    if len(defaults) > 1:
        return OwnerConflict(tuple(defaults))
    return OwnedBy(defaults[0]) if defaults else NoOwner()


def conflicts(owners: Iterable[NodeOwner], claims: Iterable[Claim]) -> dict[str, OwnerConflict]:
    """Return for each NVIDIADriver in a conflict the first one by node; `owners` are what `owner_of` says of the GPU nodes."""
    defaults = tuple(sorted(claim.name for claim in claims if claim.default and claim.valid))
    found = dict.fromkeys(defaults, OwnerConflict(defaults)) if len(defaults) > 1 else {}
    on_nodes = (owner for owner in owners if isinstance(owner, OwnerConflict) and owner.node)
    for conflict in sorted(on_nodes, key=lambda conflict: conflict.node):
        for name in conflict.names:
            found.setdefault(name, conflict)
    return found
