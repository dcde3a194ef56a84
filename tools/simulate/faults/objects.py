"""People at what the operator made, and at the policies themselves: they delete and edit whatever there is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kubesandbox.store import copy
from tools.simulate.drives import DRIVERS
from tools.simulate.faults.humans import LEFT_BY_NVIDIA, meddle
from tools.simulate.faults.kinds import End, kind
from tools.simulate.modes import modes_with
from tools.simulate.people import POLICIES, POLICY
from tools.simulate.wild import changed_somewhere

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

PROPAGATIONS = ("Background", "Background", "Foreground", "Orphan")


def _random(world: SimulatedWorld, fault: Fault) -> Random:
    return world.scenario.random(f"{fault.at}/{fault.kind}")


def _some_object(world: SimulatedWorld, fault: Fault) -> tuple[str, str, str] | None:
    """Choose an object that the operator made, or that was made for one: first a kind, so that rare ones are hit too."""
    kinds: dict[str, list[tuple[str, str, str]]] = {}
    for resource, namespace, name in sorted(world.made.places()):
        kinds.setdefault(resource, []).append((resource, namespace, name))
    if not kinds:
        return None
    places = kinds[sorted(kinds)[int(fault.level * len(kinds))]]
    return world.pick(places, fault)


@kind("delete-object", weight=6)
def delete_object(world: SimulatedWorld, fault: Fault) -> None:
    """Delete an object of the operator's by hand, with what belongs to it or without."""
    if place := _some_object(world, fault):
        propagation = _random(world, fault).choice(PROPAGATIONS)
        world.tell("", f"people delete {'/'.join(place)} ({propagation})")
        world.sandbox.store.delete(*place, propagation=propagation)


@kind("edit-object", weight=4)
def edit_object(world: SimulatedWorld, fault: Fault) -> None:
    """Edit an object of the operator's by hand, somewhere; the API server may refuse what comes of it."""
    if place := _some_object(world, fault):
        obj = copy(world.sandbox.store.get(*place))
        where = changed_somewhere(obj, _random(world, fault))
        world.tell("", f"people edit {'/'.join(place)}: {where}")
        world.sandbox.store.update(place[0], obj)


def _again(world: SimulatedWorld, resource: str, name: str) -> End:
    """Return what writes an object as it is now, if there is none of that name by then."""
    body = copy(world.sandbox.store.get(resource, None, name))
    body = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": name}, "spec": body["spec"]}

    def end() -> None:
        found = world.sandbox.store.find(resource, None, name)
        ends = found is not None and bool(found["metadata"].get("deletionTimestamp"))
        if ends and not world.heals:
            world.later(5.0, end)
            return
        if ends:  # nobody waits any longer for what it has to take with it
            world.sandbox.store.modify(resource, None, name, lambda obj: obj["metadata"].update(finalizers=[]))
        if ends or found is None:
            world.sandbox.apply(body)

    return end


@kind("recreate-policy", weight=3, lasts=(0.0, 120.0))
def recreate_policy(world: SimulatedWorld, fault: Fault) -> End:
    """Delete the ClusterPolicy, and write it again: everything that it made goes and comes back."""
    end = _again(world, POLICIES, POLICY)
    if world.sandbox.store.find(POLICIES, None, "second") is not None:
        world.sandbox.store.delete(POLICIES, None, "second")
    world.sandbox.store.delete(POLICIES, None, POLICY, propagation=_random(world, fault).choice(PROPAGATIONS[1:]))
    if fault.level > 0.5:
        meddle(world, fault, world.gpu_nodes(), LEFT_BY_NVIDIA)
    return end


@kind("recreate-nvidiadriver", weight=3, lasts=(0.0, 120.0), modes=modes_with())
def recreate_driver(world: SimulatedWorld, fault: Fault) -> End | None:
    """Delete an NVIDIADriver, and write it again: its drivers go at once, as is documented."""
    name = world.pick(world.driver_names(), fault)
    if name is None:
        return None
    end = _again(world, DRIVERS, name)
    world.remove_driver(name, _random(world, fault).choice(PROPAGATIONS[1:]))
    return end
