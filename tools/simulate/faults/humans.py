"""People at nodes: they cordon, relabel, annotate, and delete pods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from gpuward import names
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS, UNDISTURBED, State
from tools.simulate.faults.kinds import End, kind
from tools.simulate.modes import POOLS

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

RELABELS = tuple(str(state) for state in State if state)
UNDER_WAY = (
    *sorted(IN_PROGRESS - {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED}), *[State.CORDON_REQUIRED] * 2,
)
"""States of a node under way; the first is drawn more often, as our own upgrades never rest in it."""
LEFT_BY_NVIDIA = tuple(sorted({str(state) for state in (*UNDISTURBED, State.POD_RESTART_REQUIRED)}))
"""States in which people set nodes while there is no ClusterPolicy: they lead back into the queue."""
GARBAGE_RECORDS = ("{", "null", '{"state":"nonsense","since":"yesterday"}', "[]", '{"state":"upgrade-done"}', "ü" * 50,
                   '{"state":"cordon-required","since":"0001-01-01T00:00:00Z","cordon":"gpuward"}')


def _annotate(world: SimulatedWorld, node: str, key: str, value: str) -> None:
    world.change_node(node, lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))


@kind("cordon", weight=3, lasts=(10.0, 900.0))
def cordon(world: SimulatedWorld, fault: Fault) -> End | None:
    """Cordon a node for a while."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.cordon(node, True)
    return lambda: world.cordon(node, False)


@kind("uncordon", weight=2)
def uncordon(world: SimulatedWorld, fault: Fault) -> None:
    """Lift whatever cordon a node carries."""
    cordoned = [node for node in world.gpu_nodes() if world.is_cordoned(node)]
    if node := world.pick(cordoned, fault):
        world.cordon(node, False)


@kind("relabel", weight=4)
def relabel(world: SimulatedWorld, fault: Fault) -> None:
    """Set a node's state by hand."""
    if node := world.some_node(fault):
        world.label(node, names.UPGRADE_STATE, RELABELS[int(fault.level * len(RELABELS))])


@kind("relabel-required", weight=2)
def relabel_required(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for a node's upgrade by its label, as NVIDIA's page tells people to do after a failure."""
    failed = [node for node in world.gpu_nodes() if world.state_label(node) == State.FAILED]
    if node := world.pick(failed or world.gpu_nodes(), fault):
        world.label(node, names.UPGRADE_STATE, State.UPGRADE_REQUIRED)


@kind("relabel-garbage", weight=1, lasts=(5.0, 600.0))
def relabel_garbage(world: SimulatedWorld, fault: Fault) -> End | None:
    """Set a node's state to none of the known ones, and take that back."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.label(node, names.UPGRADE_STATE, "upgrade-please")

    def end() -> None:
        if world.state_label(node) == "upgrade-please":
            world.label(node, names.UPGRADE_STATE, None)

    return end


@kind("unlabel", weight=1)
def unlabel(world: SimulatedWorld, fault: Fault) -> None:
    """Take a node's state away."""
    if node := world.some_node(fault):
        world.label(node, names.UPGRADE_STATE, None)


@kind("skip", weight=2, lasts=(20.0, 900.0))
def skip(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask that a node be left alone for a while."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.label(node, names.UPGRADE_SKIP, "true")
    return lambda: world.label(node, names.UPGRADE_SKIP, None)


@kind("request-upgrade", weight=2)
def request(world: SimulatedWorld, fault: Fault) -> None:
    """Ask for a node's upgrade by NVIDIA's annotation."""
    if node := world.some_node(fault):
        _annotate(world, node, names.UPGRADE_REQUESTED, "true")


@kind("safe-load", weight=1)
def safe_load(world: SimulatedWorld, fault: Fault) -> None:
    """Let a driver pod wait for leave to load, where there is one to say so."""
    if (node := world.some_node(fault)) and world.driver_pods(node):
        _annotate(world, node, names.SAFE_LOAD, "nvidia-driver-daemonset")


@kind("garbage-record", weight=1)
def garbage_record(world: SimulatedWorld, fault: Fault) -> None:
    """Write nonsense where gpuward keeps its memory of a node."""
    if node := world.some_node(fault):
        _annotate(world, node, names.UPGRADE_RECORD, GARBAGE_RECORDS[int(fault.level * len(GARBAGE_RECORDS))])
        world.watch.record_was_overwritten(node)


@kind("delete-driver-pod", weight=4)
def delete_driver_pod(world: SimulatedWorld, fault: Fault) -> None:
    """Delete a driver pod by hand, in whatever state the pod and its node are: rare ones are as likely as common ones."""
    if pod := world.pick_pod(_of_some_state(world, world.driver_pods(), fault), fault):
        world.delete_pod(pod)


@kind("delete-validator-pod", weight=2)
def delete_validator_pod(world: SimulatedWorld, fault: Fault) -> None:
    """Delete a validator pod by hand, in whatever state."""
    if pod := world.pick_pod(_of_some_state(world, world.pods(names.VALIDATOR_APP), fault), fault):
        world.delete_pod(pod)


def _of_some_state(world: SimulatedWorld, pods: list[Object], fault: Fault) -> list[Object]:
    """Return the pods that are in one of the states that there are: of the node, of the pod, and whether it is ready."""
    groups: dict[tuple[str, str, bool], list[Object]] = {}
    for pod in pods:
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())
        key = world.state_label(pod["spec"].get("nodeName", "")), str(pod["status"].get("phase")), ready
        groups.setdefault(key, []).append(pod)
    return groups[sorted(groups)[int(fault.level * len(groups))]] if groups else []


@kind("delete-workload-pod", weight=2)
def delete_workload_pod(world: SimulatedWorld, fault: Fault) -> None:
    """Delete a pod of a workload by hand."""
    if pod := world.pick_pod(world.workload_pods(), fault):
        world.delete_pod(pod)


@kind("resume", weight=1)
def resume(world: SimulatedWorld, fault: Fault) -> None:
    """Let a rollout go on that its failure budget has paused."""
    world.annotate_policy(names.RESUMED_AT, format_time(world.now()) if fault.level < 0.9 else "now, please")


@kind("operands-off", weight=2, lasts=(20.0, 400.0))
def operands_off(world: SimulatedWorld, fault: Fault) -> End | None:
    """Take the operands off a node for a while, best one that failed or waits for jobs, and meddle with its label meanwhile."""
    rare = world.nodes_in(State.FAILED, State.WAIT_FOR_JOBS_REQUIRED)
    node = world.pick(rare or world.gpu_nodes(), fault)
    if node is None:
        return None
    world.label(node, names.DEPLOY_OPERANDS, "false")
    if fault.level > 0.2:
        meddle(world, fault, [node], RELABELS)
    return lambda: world.label(node, names.DEPLOY_OPERANDS, None)


@kind("taint", weight=2, lasts=(20.0, 300.0))
def taint(world: SimulatedWorld, fault: Fault) -> End | None:
    """Taint a node, best one that failed, so that its driver pod goes and none comes; send it into the queue meanwhile."""
    node = world.pick(world.nodes_in(State.FAILED, State.VALIDATION_REQUIRED) or world.gpu_nodes(), fault)
    if node is None:
        return None
    world.later(fault.seconds / 2, lambda: world.label(node, names.UPGRADE_STATE, State.UPGRADE_REQUIRED))
    return with_taint(world, node, {"key": "example.com/repair", "effect": "NoExecute"})


def with_taint(world: SimulatedWorld, node: str, mark: Object) -> End:
    """Give a node a taint, and return what takes it away."""
    # Two people may repair one node at a time, and a taint is there once.
    world.change_node(node, lambda obj: obj["spec"].update(
        taints=[*(one for one in obj["spec"].get("taints", ()) if one != mark), mark]))

    def end(obj: Object) -> None:
        obj["spec"]["taints"] = [one for one in obj["spec"].get("taints", ()) if one != mark]

    return lambda: world.change_node(node, end)


def meddle(world: SimulatedWorld, fault: Fault, nodes: Sequence[str], states: Sequence[str], times: int = 6) -> None:
    """Set the state of one of some nodes by hand, some times while a fault lasts."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}/meddle")
    drawn = [(random.choice(nodes), random.choice(states)) for _ in range(times)]
    for number, (node, state) in enumerate(drawn, 1):
        world.later(fault.seconds * number / (times + 1), partial(world.label, node, names.UPGRADE_STATE, state))


@kind("nvidia-takes-over", weight=5, lasts=(10.0, 600.0))
def nvidia_takes_over(world: SimulatedWorld, fault: Fault) -> End | None:
    """Leave some nodes as NVIDIA's operator does in mid-upgrade: no memory of ours, its own of a cordon that was there before."""
    nodes, first = world.gpu_nodes(), int(fault.pick * len(world.gpu_nodes()))
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    cordoned = [node for node in (nodes[first:] + nodes[:first])[:1 + int(3 * fault.level)] if _take_over(world, node, random)]

    def end() -> None:
        for node in cordoned:
            world.cordon(node, False)

    return end


def _take_over(world: SimulatedWorld, node: str, random: Random) -> bool:
    """Leave one node so; return whether it was cordoned by that."""
    state, cordoned, foreign = random.choice(UNDER_WAY), random.random() < 0.8, random.random() < 0.6

    def change(obj: Object) -> None:
        obj["metadata"].setdefault("labels", {})[names.UPGRADE_STATE] = str(state)
        annotations = obj["metadata"].setdefault("annotations", {})
        for key in (names.UPGRADE_RECORD, names.INITIALLY_UNSCHEDULABLE):
            annotations.pop(key, None)
        if cordoned:
            obj["spec"]["unschedulable"] = True
        if cordoned and foreign:
            annotations[names.INITIALLY_UNSCHEDULABLE] = "true"

    world.change_node(node, change)
    world.watch.record_was_overwritten(node)
    return cordoned


@kind("garbage-clocks", weight=1)
def garbage_clocks(world: SimulatedWorld, fault: Fault) -> None:
    """Write nonsense where the start times of a node's waits are, and of its loss of discovery."""
    keys = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.DISCOVERY_LOST)
    if node := world.some_node(fault):
        _annotate(world, node, keys[int(fault.level * len(keys))], "since yesterday" if fault.pick < 0.5 else "9" * 30)


@kind("claim-driver", weight=1, lasts=(20.0, 200.0))
def claim_driver(world: SimulatedWorld, fault: Fault) -> End | None:
    """Write a name of one's own where the operator notes whose driver a node has."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.label(node, names.DRIVER_OWNER, ("somebody", *POOLS)[int(3 * fault.level)])
    return lambda: world.label(node, names.DRIVER_OWNER, None)
