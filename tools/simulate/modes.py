"""Where drivers come from in a run: the ClusterPolicy or NVIDIADrivers, compiled on the node or before; and what may change."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple

from gpuward.sandbox.samples import sample_policy
from kubesandbox.builders import SYSTEMS
from tools.simulate.policies import upgrade_policy

Object = dict[str, Any]

POOL: Final = "example.com/pool"
"""The node label by which NVIDIADrivers choose nodes."""
POOLS: Final = ("a", "b")
FIRST_VERSION: Final = "595.91.07"
BRANCHES: Final = ("595", "600", "610")
"""Driver versions where drivers are precompiled: the kernel's version is put behind them."""
KERNELS: Final = (SYSTEMS["ubuntu22.04"].kernel, "5.15.0-119-generic")


class Mode(NamedTuple):
    """Hold what a run begins with, and what people change about it in the run."""

    drivers: tuple[str, ...] = ()
    """The NVIDIADrivers, of which `default` selects no pool; without any the driver is the ClusterPolicy's."""
    precompiled: bool = False
    kernels: int = 2
    """How many kernels the nodes have; more than one only where nodes of several operating systems or kernels are told apart."""
    switches: frozenset[str] = frozenset()


CRD, PRECOMPILED, OBJECTS = "crd", "precompiled", "objects"
"""What may be switched: who owns drivers, how they are compiled, and which NVIDIADrivers there are."""

MODES: Final[Mapping[str, Mode]] = {
    "clusterpolicy": Mode(),
    "nvidiadriver": Mode(("default",), switches=frozenset({OBJECTS})),
    "two-nvidiadrivers": Mode(POOLS, switches=frozenset({OBJECTS})),
    "overlapping-nvidiadrivers": Mode(("default", "a"), switches=frozenset({OBJECTS})),
    "precompiled": Mode(precompiled=True, kernels=1),
    "precompiled-two-kernels": Mode(precompiled=True),
    "precompiled-nvidiadriver": Mode(("default",), precompiled=True, switches=frozenset({OBJECTS})),
    "switched-owner": Mode(("default",), switches=frozenset({CRD, OBJECTS})),
    "switched-compilation": Mode(switches=frozenset({PRECOMPILED})),
}


FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "compiled": ("clusterpolicy", "switched-compilation"),
    "NVIDIADrivers": ("nvidiadriver", "two-nvidiadrivers", "overlapping-nvidiadrivers", "switched-owner"),
    "precompiled": ("precompiled", "precompiled-two-kernels", "precompiled-nvidiadriver"),
}
"""The modes that are alike."""


def modes_with(*switches: str) -> frozenset[str]:
    """Return the modes in which NVIDIADrivers have a part, or those with one of these switches."""
    return frozenset(name for name, mode in MODES.items() if (mode.switches.intersection(switches) if switches else mode.drivers))


def modes_with_moves() -> frozenset[str]:
    """Return the modes in which a node's driver may have to come from another DaemonSet than the one that it has."""
    return frozenset(name for name, mode in MODES.items() if mode.drivers or mode.precompiled or PRECOMPILED in mode.switches)


def kernel_of(node: str, kernels: int, nodes: list[str]) -> str:
    """Return a node's kernel: the last nodes of a fleet have the second one."""
    return KERNELS[0] if kernels < 2 or nodes.index(node) < (len(nodes) + 1) // 2 else KERNELS[1]


def nvidia_driver(name: str, random: Random, *, precompiled: bool) -> Object:
    """Return an NVIDIADriver: a default one if its name begins so, or one for the nodes of a pool."""
    chosen: Object = {"default": True} if name.startswith("default") else {"default": False, "nodeSelector": {POOL: name}}
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": {
        **chosen, "driverType": "gpu", "repository": "nvcr.io/nvidia", "image": "driver",
        "version": BRANCHES[0] if precompiled else FIRST_VERSION, "usePrecompiled": precompiled,
        "manager": sample_policy()["spec"]["driver"]["manager"], "upgradePolicy": upgrade_policy(random)}}
