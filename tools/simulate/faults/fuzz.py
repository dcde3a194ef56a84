"""People, kubelets and programs at labels and annotations: every key that the operator reads, with values of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuward import names
from tools.simulate import wild
from tools.simulate.faults.kinds import End, kind

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import World

Object = dict[str, Any]


@kind("wild-annotation", weight=4)
def wild_annotation(world: World, fault: Fault) -> None:
    """Write something absurd into an annotation of a node: whoever has a node's kubelet may."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    key = wild.KEYS[int(fault.level * len(wild.KEYS))]
    value = wild.record(random) if key == names.UPGRADE_RECORD and random.random() < 0.7 else wild.text(random)
    if node := world.some_node(fault):
        world.tell(node, f"people annotate {key}={value[:200]!r}")
        world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))
        world.watch.record_was_overwritten(node)


@kind("wild-time", weight=2)
def wild_time(world: World, fault: Fault) -> None:
    """Write a time that cannot be where the operator keeps since when something is so."""
    keys = (names.DISCOVERY_LOST, names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.UPGRADE_RECORD)
    key, time = keys[int(fault.level * len(keys))], wild.ABSURD_TIMES[int(fault.pick * 6)]
    if node := world.some_node(fault):
        state = world.state_label(node) or "upgrade-done"
        value = f'{{"state":"{state}","since":"{time}","cordon":"gpuward"}}' if key == names.UPGRADE_RECORD else time
        world.tell(node, f"people annotate {key}={value!r}")
        world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))
        world.watch.record_was_overwritten(node)


@kind("wild-label", weight=2, lasts=(5.0, 120.0))
def wild_label(world: World, fault: Fault) -> End | None:
    """Write something absurd into a label of a node, and take it away again."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    key, value = wild.KEYS[int(fault.level * len(wild.KEYS))], random.choice(wild.LABELS)
    node = world.some_node(fault)
    if node is None:
        return None
    world.tell(node, f"people label {key}={value!r}")
    world.label(node, key, value)
    return lambda: world.label(node, key, None)


@kind("wild-policy-annotation", weight=2)
def wild_policy_annotation(world: World, fault: Fault) -> None:
    """Write something absurd into an annotation of whatever drivers follow from."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    key, value = random.choice(wild.POLICY_NOTES), wild.text(random)
    if governor := world.governor(fault):
        world.tell("", f"people annotate {governor.name} {key}={value[:60]!r}")
        world.sandbox.store.modify(governor.resource, None, governor.name, lambda obj: obj["metadata"].setdefault(
            "annotations", {}).update({key: value}))
