"""What a RolloutPolicy lets nodes wait for: checks of a wave, idle GPUs, images, pods that cannot be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault as PodFault
from tools.simulate.faults.humans import with_taint
from tools.simulate.faults.kinds import LED, VERBS, End, kind
from tools.simulate.gangs import is_of_gang
from tools.simulate.policies import checks, opportunistic, prestage, undrainable
from tools.simulate.prometheus import Mood

if TYPE_CHECKING:
    from tools.simulate.drives import Governor
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

GANG_STARTS: Final = 15.0
"""Seconds within which the pods of a gang run, where there is room for them."""
UNKNOWN: Final = (Mood.SILENT, Mood.NAN, Mood.WARNS, Mood.DOWN)


def _ask_under(world: SimulatedWorld, fault: Fault, **settings: Any) -> bool:
    """Write settings of the RolloutPolicy, and ask for another driver; return whether there is one to ask for."""
    governor = world.governor(fault)
    if governor is None:
        return False
    world.be_impatient(**settings)
    world.ask_for_another(governor, world.scenario.random(f"{fault.at}/{fault.kind}/driver").random())
    return True


def _checked(world: SimulatedWorld, fault: Fault) -> bool:
    """Ask for another driver under a canary with a check, unless people have waves with checks already."""
    waves = (world.rollout_spec() or {}).get("waves") or ()
    if any(wave.get("analysis") for wave in waves):
        return _ask_under(world, fault)
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    return _ask_under(world, fault, waves=[{"name": "canary", "nodes": 1, "analysis": checks(random)}], windows=[])


def _in_a_mood(world: SimulatedWorld, mood: Mood) -> End:
    world.prometheus.moods.append(mood)
    return lambda: world.prometheus.moods.remove(mood)


@kind("checked-rollout", stream=VERBS)
def checked_rollout(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for another driver whose canary is measured."""
    _checked(world, fault)


@kind("check-fails", weight=3, lasts=(30.0, 300.0), stream=VERBS)
def check_fails(world: SimulatedWorld, fault: Fault) -> End:
    """Let what is measured of a canary be bad, now or for as long as the next rollout lasts."""
    if fault.level < 0.7:
        _checked(world, fault)
    return _in_a_mood(world, Mood.FAILS)


@kind("check-unknown", weight=2, lasts=(30.0, 300.0), stream=VERBS)
def check_unknown(world: SimulatedWorld, fault: Fault) -> End:
    """Let nothing be known of a canary."""
    if fault.level < 0.7:
        _checked(world, fault)
    return _in_a_mood(world, UNKNOWN[int(fault.pick * len(UNKNOWN))])


@kind("idle-rollout", weight=3, stream=VERBS)
def idle_rollout(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for another driver that nodes are to get when nobody uses them."""
    _ask_under(world, fault, opportunistic=opportunistic(world.scenario.random(f"{fault.at}/{fault.kind}")))


@kind("prestaged-rollout", weight=3, lasts=(20.0, 300.0), stream=VERBS)
def prestaged_rollout(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver whose images are to be on nodes before; some cannot be pulled for a while."""
    if not _ask_under(world, fault, prestage=prestage(world.scenario.random(f"{fault.at}/{fault.kind}"))) or fault.level < 0.5:
        return None
    broken = PodFault(FaultKind.IMAGE_PULL, node=world.some_node(fault) or "*", pod=f"{names.STAGING_APP}-*")
    world.sandbox.faults.add(broken)
    return lambda: world.sandbox.faults.clear(broken)


@kind("disk-pressure", weight=2, lasts=(20.0, 200.0), stream=VERBS)
def disk_pressure(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let a node's disk be nearly full for a while."""
    node = world.some_node(fault)
    if node is None:
        return None
    _set_pressure(world, node, "True")
    return lambda: _set_pressure(world, node, "False")


def _set_pressure(world: SimulatedWorld, node: str, status: str) -> None:
    def change(obj: Object) -> None:
        for condition in obj["status"].get("conditions") or ():
            if condition["type"] == "DiskPressure":
                condition["status"] = status

    if world.sandbox.store.find("nodes", None, node) is not None:
        world.sandbox.store.patch_status("nodes", None, node, change)


@kind("pods-undrainable", weight=4, lasts=(60.0, 300.0), stream=VERBS)
def pods_undrainable(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver while pods do not end, and say what is to become of their nodes."""
    chosen = undrainable(world.scenario.random(f"{fault.at}/{fault.kind}"))
    if not _ask_under(world, fault, undrainable=chosen | {"after": "20s"}):
        return None
    broken = PodFault(FaultKind.STUCK_TERMINATING, pod="inference-*" if fault.level < 0.5 else "*")
    world.sandbox.faults.add(broken)
    return lambda: world.sandbox.faults.clear(broken)


@kind("jobs-undrainable", weight=2, lasts=(60.0, 200.0), stream=VERBS)
def jobs_undrainable(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver while jobs run that are waited for, and do not end in the time that is given."""
    chosen = undrainable(world.scenario.random(f"{fault.at}/{fault.kind}")) | {"after": "20s"}
    governor = world.governor(fault)
    if governor is None:
        return None
    world.run_workload("training")
    world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(
        waitForCompletion={"podSelector": "app=training", "timeoutSeconds": 0}))

    def ask() -> None:
        _ask_under(world, fault, undrainable=chosen)

    world.later(fault.seconds / 5, ask)
    return lambda: world.remove_workload("training")


@kind("wave-by-wave", stream=LED)
def wave_by_wave(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for another driver in one wave, of which one node at a time may be out of service."""
    _ask_under(world, fault, waves=[{"name": "all", "nodes": "100%", "maxUnavailable": 1}])


@kind("canary-overdue", lasts=(80.0, 300.0), stream=LED)
def canary_overdue(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver under a canary whose pods do not end in the time that they are given."""
    settings = {"deadlines": {"pod-deletion-required": "30s"}, "retries": 0, "failureBudget": {"nodes": 5}}
    if not _ask_under(world, fault, waves=[{"name": "canary", "nodes": 1}], **settings):
        return None
    broken = PodFault(FaultKind.STUCK_TERMINATING, pod="inference-*")
    world.sandbox.faults.add(broken)
    return lambda: world.sandbox.faults.clear(broken)


@kind("gang-returns", lasts=(50.0, 60.0), stream=LED)
def gang_returns(world: SimulatedWorld, fault: Fault) -> End:
    """Start a gang, and ask for another driver everywhere once it runs. Nodes on which it does not run are skipped at first, so
    that it finds room there alone, with the driver that is to go.
    """
    world.be_impatient(gangs={"mode": "Together", "until": "4m"})
    world.run_gang()
    skipped: list[str] = []

    def ask() -> None:
        found = {pod["spec"].get("nodeName") for pod in world.sandbox.store.list("pods") if is_of_gang(pod)}
        skipped.extend(node for node in world.gpu_nodes() if node not in found)
        for node in skipped:
            world.label(node, names.UPGRADE_SKIP, "true")
        for governor in world.governors():
            world.ask_for_another(governor, fault.level)

    def end() -> None:
        for node in skipped:
            world.label(node, names.UPGRADE_SKIP, None)

    world.later(GANG_STARTS, ask)
    return end


@kind("gang-waits", lasts=(60.0, 100.0), stream=LED)
def gang_waits(world: SimulatedWorld, fault: Fault) -> End | None:
    """Start a gang on two nodes that follow one driver, and ask for another driver once it runs. Where two nodes may be under way
    at once, both wait for a third one, whose pods do not end for a while.
    """
    following: dict[Governor | None, list[str]] = {}
    for node in world.gpu_nodes():
        following.setdefault(world.governor_of(node), []).append(node)
    alike = max((nodes for owner, nodes in following.items() if owner is not None), key=len, default=[])
    if len(alike) < 3:
        return None
    first, *others = alike[:3]
    shut = [node for node in world.gpu_nodes() if node not in others and not world.is_cordoned(node)]
    for node in shut:
        world.cordon(node, True)
    world.be_impatient(gangs={"mode": "Together", "until": "4m"})
    world.run_gang()
    broken = PodFault(FaultKind.STUCK_TERMINATING, node=first, pod="*")

    def ask() -> None:
        for node in shut:
            world.cordon(node, False)
        world.sandbox.faults.add(broken)
        for governor in world.governors():
            world.ask_for_another(governor, fault.level)

    world.later(GANG_STARTS, ask)
    return lambda: world.sandbox.faults.clear(broken)


@kind("device-plugin-overdue", lasts=(100.0, 150.0), stream=LED)
def device_plugin_overdue(world: SimulatedWorld, fault: Fault) -> End | None:
    """Take the operands off a node while its driver is replaced; its device plugin does not end in the time that it is given."""
    node = world.some_node(fault)
    if node is None or not _ask_under(world, fault, deadlines={"pod-restart-required": "30s"}):
        return None
    broken = PodFault(FaultKind.STUCK_TERMINATING, node=node, pod="*")
    world.sandbox.faults.add(broken)
    world.later(fault.seconds / 10, lambda: world.label(node, names.DEPLOY_OPERANDS, "false"))

    def end() -> None:
        world.sandbox.faults.clear(broken)
        world.label(node, names.DEPLOY_OPERANDS, None)

    return end


@kind("driver-repelled", lasts=(100.0, 200.0), stream=LED)
def driver_repelled(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver while a node has a taint with which its driver pod runs on, and the next one would not come."""
    node = world.some_node(fault)
    if node is None or not _ask_under(world, fault):
        return None
    return with_taint(world, node, {"key": "example.com/team", "effect": "NoSchedule"})
