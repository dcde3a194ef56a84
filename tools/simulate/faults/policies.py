"""People at the policies: limits, invalid edits, pauses, driver versions, gpuward's own settings."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from gpuward import names
from gpuward.model.states import State
from tools.simulate.faults.kinds import End, kind
from tools.simulate.people import DAEMONSETS, POLICIES
from tools.simulate.policies import BROKEN_LIMIT, BROKEN_SETTINGS, VERSIONS, is_broken, rollout_policy, upgrade_policy

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import World

Object = dict[str, Any]

BEING_EMPTIED = (State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED)


def _random(world: World, fault: Fault) -> Random:
    return world.scenario.random(f"{fault.at}/{fault.kind}")


@kind("change-driver", weight=1)
def change_driver(world: World, fault: Fault) -> None:
    """Ask for another driver version, newer or older."""
    versions = [version for version in VERSIONS if version != world.driver_version()]
    world.set_driver_version(versions[int(fault.pick * len(versions))])


@kind("roll-back", weight=2)
def roll_back(world: World, fault: Fault) -> None:
    """Ask for the driver version before, while nodes are on their way to the new one if there are any."""
    if world.former_driver:
        world.set_driver_version(world.former_driver)


@kind("keep-cordon-and-roll-back", weight=4, lasts=(20.0, 300.0))
def keep_cordon_and_roll_back(world: World, fault: Fault) -> End:
    """Claim the cordon of a node that is being emptied, as NVIDIA's operator notes one that was there before, and roll back."""
    claimed: list[str] = []

    def look(times: int) -> None:
        if node := world.pick(world.nodes_in(*BEING_EMPTIED), fault):
            note = {names.INITIALLY_UNSCHEDULABLE: "true"}
            world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update(note))
            claimed.append(node)
            roll_back(world, fault)
        elif times:
            world.later(1.0, lambda: look(times - 1))

    look(20)

    def end() -> None:
        for node in claimed:
            world.cordon(node, False)

    return end


@kind("driver-off", weight=0.5, lasts=(5.0, 120.0))
def driver_off(world: World, fault: Fault) -> End:
    """Turn the driver off for a while, which removes it from all nodes."""
    world.change_policy(lambda spec: spec["driver"].update(enabled=False))
    return lambda: world.change_policy(lambda spec: spec["driver"].update(enabled=True))


@kind("delete-driver-daemonset", weight=1)
def delete_driver_daemonset(world: World, fault: Fault) -> None:
    """Delete the driver's DaemonSet by hand, with its pods or without."""
    for ds in world.sandbox.store.list(DAEMONSETS, names.DEFAULT_NAMESPACE):
        if ds["metadata"]["labels"].get("app") == names.DRIVER_APP:
            propagation = "Orphan" if fault.level < 0.7 else "Background"
            world.sandbox.store.delete(DAEMONSETS, names.DEFAULT_NAMESPACE, ds["metadata"]["name"], propagation=propagation)


@kind("change-template", weight=1)
def change_template(world: World, fault: Fault) -> None:
    """Change the driver's template in a way that leaves the driver what it is."""
    value = {"limits": {"memory": f"{1 + int(fault.level * 8)}Gi"}}
    world.change_policy(lambda spec: spec["driver"].update(resources=value))


@kind("change-labels", weight=0.5)
def change_labels(world: World, fault: Fault) -> None:
    """Change a label that all operands carry."""
    world.change_policy(lambda spec: spec["daemonsets"].setdefault("labels", {}).update(team=f"team-{int(fault.level * 5)}"))


@kind("change-limits", weight=3)
def change_limits(world: World, fault: Fault) -> None:
    """Draw another upgrade policy."""
    policy = upgrade_policy(_random(world, fault))

    def change(spec: Object) -> None:
        policy["autoUpgrade"] = spec["driver"]["upgradePolicy"].get("autoUpgrade", True)
        spec["driver"]["upgradePolicy"] = policy

    world.change_policy(change)


@kind("break-policy", weight=2, lasts=(5.0, 300.0))
def break_policy(world: World, fault: Fault) -> End:
    """Write a limit that cannot be followed, and correct it later."""
    before = world.upgrade_spec().get("maxUnavailable", "25%")
    world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(maxUnavailable=BROKEN_LIMIT))

    def end() -> None:
        if world.upgrade_spec().get("maxUnavailable") == BROKEN_LIMIT:
            good = before if before != BROKEN_LIMIT else "25%"
            world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(maxUnavailable=good))

    return end


@kind("pause", weight=2, lasts=(5.0, 600.0))
def pause(world: World, fault: Fault) -> End:
    """Turn automatic upgrades off for a while."""
    world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(autoUpgrade=False))
    return lambda: world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(autoUpgrade=True))


@kind("change-rollout-policy", weight=2)
def change_rollout_policy(world: World, fault: Fault) -> None:
    """Write gpuward's own settings anew."""
    world.set_rollout_policy(rollout_policy(_random(world, fault)))


@kind("break-rollout-policy", weight=2, lasts=(5.0, 300.0))
def break_rollout_policy(world: World, fault: Fault) -> End:
    """Write settings that cannot be followed, and correct them later."""
    before = world.rollout_spec() or {}
    world.set_rollout_policy(before | BROKEN_SETTINGS[int(fault.pick * len(BROKEN_SETTINGS))])

    def end() -> None:
        if is_broken(world.rollout_spec() or {}):
            world.set_rollout_policy(before if not is_broken(before) else {})

    return end


@kind("garbage-kept-policy", weight=1)
def garbage_kept_policy(world: World, fault: Fault) -> None:
    """Write nonsense where gpuward keeps the last upgrade policy that could be followed."""
    world.annotate_policy(names.VALID_UPGRADE_POLICY, "{" if fault.level < 0.5 else '{"max_unavailable":"abc"}')


@kind("second-policy", weight=1, lasts=(5.0, 300.0))
def second_policy(world: World, fault: Fault) -> End:
    """Write another ClusterPolicy, with other wishes, beside the one in force: it is to be ignored."""
    spec = world.policy_spec()
    other = {**spec, "driver": {**spec["driver"], "version": VERSIONS[0], "upgradePolicy": upgrade_policy(_random(world, fault))}}
    world.sandbox.apply({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "second"}, "spec": other})

    def end() -> None:
        if world.sandbox.store.find(POLICIES, None, "second") is not None:
            world.sandbox.store.delete(POLICIES, None, "second")

    return end


@kind("remove-rollout-policy", weight=1)
def remove_rollout_policy(world: World, fault: Fault) -> None:
    """Take gpuward's own settings away."""
    world.remove_rollout_policy()
