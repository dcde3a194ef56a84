"""People, kubelets and programs at labels and annotations: every key that the operator reads, with values of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from tools.simulate import wild
from tools.simulate.faults.kinds import End, kind
from tools.simulate.people import DAEMONSETS, POLICIES, POLICY
from tools.simulate.policies import NVIDIA_DRIVERS

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]
Place = tuple[str, str | None, str]

ELSEWHERE: Final = 0.4
"""How often it is not a node, but a driver pod, a DaemonSet of the operator's, an NVIDIADriver or the ClusterPolicy."""


def _mark(world: SimulatedWorld, fault: Fault, field: str, key: str, value: str) -> None:
    """Write a label or an annotation of something that drivers follow from."""
    pods: list[Place] = [("pods", str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"])) for pod in world.driver_pods()]
    sets: list[Place] = [(of, where, name) for of, where, name in sorted(world.made.places()) if of == DAEMONSETS]
    policies: list[Place] = [*((NVIDIA_DRIVERS, None, name) for name in world.driver_names()), (POLICIES, None, POLICY)]
    kinds: list[list[Place]] = [pods, sets, policies]
    place = world.pick(kinds[int(fault.level * len(kinds))], fault)
    if place is None or world.sandbox.store.find(*place) is None:
        return
    world.tell("", f"people write {field} of {place[0]} {place[2]}: {key}={value[:60]!r}")
    world.sandbox.store.modify(*place, lambda obj: obj["metadata"].setdefault(field, {}).update({key: value}))


@kind("wild-annotation", weight=4)
def wild_annotation(world: SimulatedWorld, fault: Fault) -> None:
    """Write something absurd into an annotation of a node, as whoever has its kubelet may, or of what holds drivers."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    if random.random() < ELSEWHERE:
        _mark(world, fault, "annotations", random.choice(wild.OBJECT_NOTES), wild.text(random))
        return
    key = wild.KEYS[int(fault.level * len(wild.KEYS))]
    value = wild.record(random) if key == names.UPGRADE_RECORD and random.random() < 0.7 else wild.text(random)
    if node := world.some_node(fault):
        world.tell(node, f"people annotate {key}={value[:200]!r}")
        world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))
        world.watch.record_was_overwritten(node)


@kind("wild-time", weight=3)
def wild_time(world: SimulatedWorld, fault: Fault) -> None:
    """Write a time that cannot be where the operator keeps since when something is so."""
    keys = (names.DISCOVERY_LOST, names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, *[names.UPGRADE_RECORD] * 3)
    key, time = keys[int(fault.level * len(keys))], wild.ABSURD_TIMES[int(fault.pick * 6)]
    if node := world.some_node(fault):
        state = world.state_label(node) or "upgrade-done"
        value = f'{{"state":"{state}","since":"{time}","cordon":"gpuward"}}' if key == names.UPGRADE_RECORD else time
        world.tell(node, f"people annotate {key}={value!r}")
        world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))
        world.watch.record_was_overwritten(node)


@kind("wild-label", weight=2, lasts=(5.0, 120.0))
def wild_label(world: SimulatedWorld, fault: Fault) -> End | None:
    """Write something absurd into a label of a node, and take it away again; or into one of what holds drivers."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    if random.random() < ELSEWHERE:
        _mark(world, fault, "labels", random.choice(wild.OBJECT_LABELS), random.choice(wild.LABELS))
        return None
    key, value = wild.KEYS[int(fault.level * len(wild.KEYS))], random.choice(wild.LABELS)
    node = world.some_node(fault)
    if node is None:
        return None
    world.tell(node, f"people label {key}={value!r}")
    world.label(node, key, value)
    return lambda: world.label(node, key, None)


@kind("wild-policy-annotation", weight=2)
def wild_policy_annotation(world: SimulatedWorld, fault: Fault) -> None:
    """Write something absurd into an annotation of whatever drivers follow from."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    key = random.choice(wild.POLICY_NOTES)
    if governor := world.governor(fault):
        notes = world.sandbox.store.get(governor.resource, None, governor.name)["metadata"].get("annotations") or {}
        value = wild.note(notes.get(key, ""), random)
        world.tell("", f"people annotate {governor.name} {key}={value[:60]!r}")
        world.sandbox.store.modify(governor.resource, None, governor.name, lambda obj: obj["metadata"].setdefault(
            "annotations", {}).update({key: value}))
