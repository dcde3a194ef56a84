"""People at the policies: limits, invalid edits, pauses, driver versions, gpuward's own settings."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault as PodFault
from tools.simulate.drives import CLUSTER_POLICY
from tools.simulate.faults.kinds import End, kind
from tools.simulate.people import DAEMONSETS, POLICIES, is_driver
from tools.simulate.policies import (
    BROKEN_LIMIT,
    BROKEN_SETTINGS,
    TOO_LARGE,
    VERSIONS,
    follow_again,
    is_broken,
    rollout_policy,
    upgrade_policy,
)

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

BEING_EMPTIED = (State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED)


def _random(world: SimulatedWorld, fault: Fault) -> Random:
    return world.scenario.random(f"{fault.at}/{fault.kind}")


@kind("change-driver", weight=1)
def change_driver(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for another driver version, newer or older."""
    if governor := world.governor(fault):
        world.ask_for_another(governor, fault.level)


@kind("bad-driver", weight=3, lasts=(120.0, 300.0))
def bad_driver(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for a driver version that crashes on every node."""
    governor = world.governor(fault)
    if governor is None:
        return None
    world.be_impatient(
        deadlines={str(State.POD_RESTART_REQUIRED): "1m"}, retries=int(2 * fault.level),
        failureBudget={"nodes": 0, "percent": 0})
    broken = PodFault(FaultKind.DRIVER_CRASH, image=f"*{world.ask_for_another(governor, _random(world, fault).random())}*")
    world.sandbox.faults.add(broken)
    return lambda: world.sandbox.faults.clear(broken)


@kind("too-large-driver", weight=2, lasts=(20.0, 300.0))
def too_large_driver(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for more than any machine has, so that driver pods find no place, and correct that later."""
    governor = world.governor(fault)
    if governor is None:
        return None
    world.change_driver(governor, lambda spec: spec.update(resources=TOO_LARGE))
    return lambda: world.change_driver(governor, lambda spec: spec.update(resources={}))


@kind("roll-back", weight=2)
def roll_back(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for the driver version before, while nodes are on their way to the new one if there are any."""
    governors = [each for each in world.governors() if each in world.former_versions]
    if governor := world.pick(governors, fault):
        world.ask_for_version(governor, world.former_versions[governor])


@kind("keep-cordon-and-roll-back", weight=4, lasts=(20.0, 300.0))
def keep_cordon_and_roll_back(world: SimulatedWorld, fault: Fault) -> End:
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
def driver_off(world: SimulatedWorld, fault: Fault) -> End:
    """Turn the driver off for a while, which removes it from all nodes."""
    world.change_policy(lambda spec: spec["driver"].update(enabled=False))
    return lambda: world.change_policy(lambda spec: spec["driver"].update(enabled=True))


@kind("delete-driver-daemonset", weight=1)
def delete_driver_daemonset(world: SimulatedWorld, fault: Fault) -> None:
    """Delete a driver DaemonSet by hand, with its pods or without."""
    found = [ds for ds in world.sandbox.store.list(DAEMONSETS, names.DEFAULT_NAMESPACE) if is_driver(ds)]
    if ds := world.pick(found, fault):
        propagation = "Orphan" if fault.level < 0.7 else "Background"
        world.sandbox.store.delete(DAEMONSETS, names.DEFAULT_NAMESPACE, ds["metadata"]["name"], propagation=propagation)


@kind("change-template", weight=1)
def change_template(world: SimulatedWorld, fault: Fault) -> None:
    """Change the driver's template in a way that leaves the driver what it is."""
    value = {"limits": {"memory": f"{1 + int(fault.level * 8)}Gi"}}
    if governor := world.governor(fault):
        world.change_driver(governor, lambda spec: spec.update(resources=value))


@kind("change-labels", weight=1)
def change_labels(world: SimulatedWorld, fault: Fault) -> None:
    """Change a label that all operands carry, or the drivers of an NVIDIADriver."""
    label = {"team": f"team-{int(fault.level * 5)}"}
    governor = world.governor(fault)
    if governor is None or governor.resource == POLICIES:
        world.change_policy(lambda spec: spec["daemonsets"].setdefault("labels", {}).update(label))
    else:
        world.change_driver(governor, lambda spec: spec.setdefault("labels", {}).update(label))


@kind("change-limits", weight=3)
def change_limits(world: SimulatedWorld, fault: Fault) -> None:
    """Draw another upgrade policy."""
    policy = upgrade_policy(_random(world, fault))

    def change(spec: Object) -> None:
        policy["autoUpgrade"] = spec.get("upgradePolicy", {}).get("autoUpgrade", True)
        spec["upgradePolicy"] = policy

    if governor := world.governor(fault):
        world.change_driver(governor, change)


@kind("break-policy", weight=2, lasts=(5.0, 300.0))
def break_policy(world: SimulatedWorld, fault: Fault) -> End | None:
    """Write a limit that cannot be followed, and correct it later."""
    governor = CLUSTER_POLICY if fault.level < 0.3 else world.governor(fault)
    if governor is None:
        return None
    before = world.upgrade_of(governor).get("maxUnavailable", "25%")
    world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(maxUnavailable=BROKEN_LIMIT))

    def end() -> None:
        if world.upgrade_of(governor).get("maxUnavailable") == BROKEN_LIMIT:
            good = before if before != BROKEN_LIMIT else "25%"
            world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(maxUnavailable=good))

    return end


@kind("pause", weight=2, lasts=(5.0, 600.0))
def pause(world: SimulatedWorld, fault: Fault) -> End | None:
    """Turn automatic upgrades off for a while."""
    governor = world.governor(fault)
    if governor is None:
        return None
    world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(autoUpgrade=False))
    return lambda: world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(autoUpgrade=True))


@kind("refused-sandbox", weight=1, lasts=(5.0, 200.0))
def refused_sandbox(world: SimulatedWorld, fault: Fault) -> End:
    """Ask for virtual machines in a ClusterPolicy that cannot be followed, and take that back: nothing may come of it."""
    workload = "container" if fault.level < 0.3 else "vm-passthrough"
    world.change_policy(lambda spec: spec.update(
        sandboxWorkloads={"enabled": True, "defaultWorkload": workload}, cdi={"enabled": False, "nriPluginEnabled": True}))
    return lambda: world.change_policy(follow_again)


@kind("change-rollout-policy", weight=2)
def change_rollout_policy(world: SimulatedWorld, fault: Fault) -> None:
    """Write gpuward's own settings anew."""
    world.set_rollout_policy(rollout_policy(_random(world, fault)))


@kind("break-rollout-policy", weight=2, lasts=(5.0, 300.0))
def break_rollout_policy(world: SimulatedWorld, fault: Fault) -> End:
    """Write settings that cannot be followed, and correct them later."""
    before = world.rollout_spec() or {}
    world.set_rollout_policy(before | BROKEN_SETTINGS[int(fault.pick * len(BROKEN_SETTINGS))])

    def end() -> None:
        if is_broken(world.rollout_spec() or {}):
            world.set_rollout_policy(before if not is_broken(before) else {})

    return end


@kind("garbage-kept-policy", weight=1)
def garbage_kept_policy(world: SimulatedWorld, fault: Fault) -> None:
    """Write nonsense where gpuward keeps the last policy that could be followed."""
    world.annotate_policy(names.VALID_UPGRADE_POLICY, "{" if fault.level < 0.5 else '{"max_unavailable":"abc"}')
    world.annotate_policy(names.VALID_SPEC, "{" if fault.level < 0.5 else '{"driver":{"version":7}}')


@kind("second-policy", weight=1, lasts=(5.0, 300.0))
def second_policy(world: SimulatedWorld, fault: Fault) -> End:
    """Write another ClusterPolicy, with other wishes, beside the one in force: it is to be ignored."""
    spec = world.policy_spec()
    other = {**spec, "driver": {**spec["driver"], "version": VERSIONS[0], "upgradePolicy": upgrade_policy(_random(world, fault))}}
    world.sandbox.apply({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "second"}, "spec": other})

    def end() -> None:
        if world.sandbox.store.find(POLICIES, None, "second") is not None:
            world.sandbox.store.delete(POLICIES, None, "second")

    return end


@kind("remove-rollout-policy", weight=1)
def remove_rollout_policy(world: SimulatedWorld, fault: Fault) -> None:
    """Take gpuward's own settings away."""
    world.remove_rollout_policy()
