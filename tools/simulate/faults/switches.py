"""People at where drivers come from: who owns them, how they are compiled, which NVIDIADrivers there are, and for which nodes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from gpuward import names
from kubesandbox.store import copy
from tools.simulate.drives import CLUSTER_POLICY, DRIVERS, Governor
from tools.simulate.faults.humans import LEFT_BY_NVIDIA, meddle
from tools.simulate.faults.kinds import End, kind
from tools.simulate.modes import (
    BRANCHES,
    CRD,
    FIRST_VERSION,
    KERNELS,
    OBJECTS,
    POOL,
    POOLS,
    PRECOMPILED,
    modes_with,
    modes_with_moves,
)
from tools.simulate.people import POLICIES, POLICY
from tools.simulate.policies import VERSIONS

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]
WITH_OBJECTS = modes_with(OBJECTS)
ADDED = (*POOLS, *POOLS, "default", "default-too")
"""The names of NVIDIADrivers that somebody adds."""
SELECTORS: tuple[Object, ...] = (*({"nodeSelector": {POOL: pool}} for pool in POOLS), {"default": True}, {})
"""What an NVIDIADriver comes to select: a pool, what no other one selects, everything."""


def _random(world: SimulatedWorld, fault: Fault) -> Random:
    return world.scenario.random(f"{fault.at}/{fault.kind}")


@kind("switch-owner", weight=5, lasts=(20.0, 300.0), modes=modes_with(CRD))
def switch_owner(world: SimulatedWorld, fault: Fault) -> End | None:
    """Leave drivers to NVIDIADrivers, or take them back; half the time for a while."""
    if world.cluster_policy() is None:
        return None
    now = world.uses_crd()
    if not now and not world.driver_names():
        world.add_driver("default", _random(world, fault))
    _leave_drivers(world, not now)
    return (lambda: _leave_drivers(world, now)) if fault.level < 0.5 else None


def _leave_drivers(world: SimulatedWorld, wanted: bool) -> None:
    world.change_driver(CLUSTER_POLICY, lambda spec: spec.update(useNvidiaDriverCRD=wanted))


@kind("switch-compilation", weight=5, lasts=(20.0, 300.0), modes=modes_with(PRECOMPILED))
def switch_compilation(world: SimulatedWorld, fault: Fault) -> End | None:
    """Use precompiled drivers, or drivers that are compiled on the node; half the time for a while."""
    now = world.is_precompiled(CLUSTER_POLICY)
    _precompile(world, not now)
    return (lambda: _precompile(world, now)) if fault.level < 0.5 else None


def _precompile(world: SimulatedWorld, wanted: bool) -> None:
    world.change_driver(CLUSTER_POLICY, lambda spec: spec.update(
        usePrecompiled=wanted, version=BRANCHES[0] if wanted else FIRST_VERSION))
    world.former_versions.pop(CLUSTER_POLICY, None)


@kind("add-nvidiadriver", weight=3, lasts=(60.0, 600.0), modes=WITH_OBJECTS)
def add_driver(world: SimulatedWorld, fault: Fault) -> End | None:
    """Write one more NVIDIADriver, for a pool or for all that are left; what is there may select the same nodes."""
    name = _random(world, fault).choice(ADDED)
    if name in world.driver_names():
        return None
    world.add_driver(name, _random(world, fault), precompiled=world.mode.precompiled)
    return (lambda: world.remove_driver(name)) if fault.level < 0.5 else None


@kind("delete-nvidiadriver", weight=1, modes=WITH_OBJECTS)
def delete_driver(world: SimulatedWorld, fault: Fault) -> None:
    """Delete an NVIDIADriver for good, unless it is the last one."""
    found = world.driver_names()
    if len(found) > 1 and (name := world.pick(found, fault)):
        world.remove_driver(name)


@kind("edit-selector", weight=3, lasts=(30.0, 300.0), modes=WITH_OBJECTS)
def edit_selector(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let an NVIDIADriver choose other nodes for a while: another pool, all, or those that no other one selects."""
    name = world.pick(world.driver_names(), fault)
    if name is None:
        return None
    before = dict(world.sandbox.store.get(DRIVERS, None, name)["spec"])
    chosen = copy(_random(world, fault).choice(SELECTORS))

    def choose(wanted: Object) -> None:
        def change(obj: Object) -> None:
            obj["spec"].pop("nodeSelector", None)
            obj["spec"] |= {"default": False, **wanted}

        world.sandbox.store.modify(DRIVERS, None, name, change)

    choose(chosen)
    return lambda: choose({key: before[key] for key in ("default", "nodeSelector") if key in before})


@kind("change-pool", weight=3, lasts=(30.0, 300.0), modes=modes_with())
def change_pool(world: SimulatedWorld, fault: Fault) -> End | None:
    """Put a node, or all of them, into another pool for a while, or for good."""
    pool = POOLS[int(2 * fault.pick)] if fault.level < 0.9 else "none"
    nodes = world.gpu_nodes() if fault.level > 0.7 else [node for node in [world.some_node(fault)] if node]
    before = {node: world.node(node)["metadata"]["labels"].get(POOL) for node in nodes}
    for node in nodes:
        world.label(node, POOL, pool)

    def end() -> None:
        for node, value in before.items():
            world.label(node, POOL, value)

    return end if fault.level < 0.35 or pool == "none" else None


@kind("move-in-pause", weight=5, lasts=(40.0, 300.0), modes=modes_with_moves())
def move_in_pause(world: SimulatedWorld, fault: Fault) -> End:
    """Turn upgrades off, and let nodes be for another NVIDIADriver, or for another kernel, meanwhile."""
    governors, nodes = world.governors(), world.gpu_nodes()
    labels = {node: dict(world.node(node)["metadata"]["labels"]) for node in nodes}
    kernels = {node: world.node(node)["status"]["nodeInfo"]["kernelVersion"] for node in nodes}
    _upgrade_by_itself(world, governors, False)

    def move() -> None:
        for node in nodes:
            pool, kernel = labels[node].get(POOL), labels[node].get(names.NFD_KERNEL)
            world.label(node, POOL, next(each for each in POOLS if each != pool))
            if world.mode.precompiled or PRECOMPILED in world.mode.switches:
                other = next(each for each in KERNELS if each != kernel)
                world.tell_kernel(node, other)
                world.label(node, names.NFD_KERNEL, other)

    world.later(10.0, move)

    def end() -> None:
        for node in nodes:
            world.label(node, POOL, labels[node].get(POOL))
            world.tell_kernel(node, world.discovered.get(node, {}).get(names.NFD_KERNEL) or kernels[node])
            world.rediscover(node)
        _upgrade_by_itself(world, governors, True)

    return end


def _upgrade_by_itself(world: SimulatedWorld, governors: list[Governor], wanted: bool) -> None:
    for governor in governors:
        if world.sandbox.store.find(governor.resource, None, governor.name) is not None:
            world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(autoUpgrade=wanted))


@kind("delete-policy-in-rollout", weight=1, lasts=(60.0, 240.0), modes=modes_with())
def delete_policy(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver, and delete the ClusterPolicy while nodes are on their way to it; it comes back later."""
    governor = world.governor(fault)
    if governor is None or governor.resource != DRIVERS:
        return None
    version = str(world.driver_spec(governor)["version"])
    offered = BRANCHES if world.is_precompiled(governor) else VERSIONS
    world.ask_for_version(governor, next(each for each in offered if each != version))
    body = world.sandbox.store.get(POLICIES, None, POLICY)
    again = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": POLICY}, "spec": body["spec"]}

    def delete() -> None:
        if world.sandbox.store.find(POLICIES, None, "second") is None:
            world.sandbox.store.delete(POLICIES, None, POLICY)

    world.later(5.0 + 15.0 * fault.level, delete)
    if fault.pick > 0.5:
        meddle(world, fault, world.gpu_nodes(), LEFT_BY_NVIDIA)

    def end() -> None:
        if world.sandbox.store.find(POLICIES, None, POLICY) is None:
            world.sandbox.apply(again)

    return end
