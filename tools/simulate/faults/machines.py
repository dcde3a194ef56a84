"""Nodes and what runs on them: they fail, leave and come; drivers crash, validators hang, pods do not end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault as PodFault
from tools.simulate.faults.kinds import End, kind
from tools.simulate.modes import KERNELS

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

FINALIZER = "cloud.example.com/volumes"
"""What holds a node that is being deleted."""


@kind("node-not-ready", weight=2, lasts=(5.0, 400.0))
def not_ready(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let a kubelet report trouble."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.sandbox.set_node_ready(node, False)
    return lambda: world.recover(node)


@kind("node-silent", weight=2, lasts=(20.0, 600.0))
def silent(world: SimulatedWorld, fault: Fault) -> End | None:
    """Stop a kubelet: its pods hang as they are."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.sandbox.disconnect(node)
    return lambda: world.recover(node)


@kind("node-removed", weight=1)
def removed(world: SimulatedWorld, fault: Fault) -> None:
    """Take a node away, as an autoscaler or a failing machine does."""
    node = world.some_node(fault)
    if node is not None and len(world.gpu_nodes()) > 2:
        world.sandbox.remove_node(node)


@kind("node-deleting", weight=2, lasts=(10.0, 300.0))
def deleting(world: SimulatedWorld, fault: Fault) -> End | None:
    """Delete a node that a finalizer still holds, best one that waits; an empty one of the same name may come after it."""
    node = world.pick(world.nodes_in(State.UPGRADE_REQUIRED) or world.gpu_nodes(), fault)
    if node is None or len(world.gpu_nodes()) <= 2:
        return None
    world.change_node(node, lambda obj: obj["metadata"].update(finalizers=[FINALIZER]))
    world.sandbox.remove_node(node)

    def end() -> None:
        world.change_node(node, lambda obj: obj["metadata"].update(finalizers=[]))
        if fault.level < 0.6:
            world.add_gpu_node(node)

    return end


@kind("node-added", weight=1)
def added(world: SimulatedWorld, fault: Fault) -> None:
    """Let an autoscaler add a node."""
    if len(world.gpu_nodes()) < 2 * world.scenario.nodes:
        world.add_gpu_node(f"gpu-new-{fault.at:.0f}")


@kind("node-replaced", weight=1, lasts=(0.0, 30.0))
def replaced(world: SimulatedWorld, fault: Fault) -> End | None:
    """Take a node away, and bring an empty one of the same name."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.sandbox.remove_node(node)
    return lambda: world.add_gpu_node(node)


@kind("second-driver-pod", weight=2, lasts=(20.0, 400.0))
def second_driver_pod(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let a driver pod that nobody owns run on a node beside its own, best on one that waits."""
    node = world.pick(world.nodes_in(State.UPGRADE_REQUIRED) or world.gpu_nodes(), fault)
    if node is None:
        return None
    return world.run_second_driver(f"former-driver-{fault.at:.3f}".replace(".", "-"), node)


@kind("driver-pod-evicted", weight=1)
def driver_pod_evicted(world: SimulatedWorld, fault: Fault) -> None:
    """Let the kubelet evict a node's driver pod, best on one that waits: its DaemonSet makes the next one at once."""
    node = world.pick(world.nodes_in(State.UPGRADE_REQUIRED) or world.gpu_nodes(), fault)
    for pod in world.driver_pods(node) if node is not None else ():
        world.sandbox.evict_for_shortage(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _without_discovery(node: Object) -> None:
    labels = node["metadata"]["labels"]
    for key in [key for key in labels if key.startswith(names.NFD_PREFIX)]:
        del labels[key]


def _gpu_unseen(node: Object) -> None:
    for key in names.NFD_GPU_LABELS:
        node["metadata"]["labels"].pop(key, None)


@kind("discovery-node", weight=1, lasts=(5.0, 900.0))
def discovery_of_a_node(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let discovery take a node's GPU labels away, and bring them back."""
    node = world.some_node(fault)
    if node is None:
        return None
    world.change_node(node, _gpu_unseen if fault.level < 0.7 else _without_discovery)
    return lambda: world.rediscover(node)


@kind("discovery-outage", weight=0.5, lasts=(5.0, 900.0))
def discovery_outage(world: SimulatedWorld, fault: Fault) -> End:
    """Let discovery take the labels of all nodes away."""
    nodes = world.gpu_nodes()
    for node in nodes:
        world.change_node(node, _gpu_unseen if fault.level < 0.7 else _without_discovery)

    def end() -> None:
        for node in nodes:
            world.rediscover(node)

    return end


EDITS: tuple[tuple[str, str | None], ...] = (
    (names.NFD_KERNEL, "6.1.0-9-other"), (names.NFD_OS_VERSION, "20.04"), (names.NFD_OS_ID, "debian"), (names.NFD_KERNEL, None),
    (names.NFD_OS_VERSION, None), (names.NFD_OS_ID, None))
"""What discovery may come to say of a node, or to say no more."""


@kind("discovery-edited", weight=3, lasts=(5.0, 400.0))
def discovery_edited(world: SimulatedWorld, fault: Fault) -> End:
    """Let discovery say something else about the system of one node or of all of them, for a while."""
    key, value = EDITS[int(fault.level * len(EDITS))]
    nodes = world.gpu_nodes() if fault.pick > 0.7 else [node for node in [world.some_node(fault)] if node]
    for node in nodes:
        world.label(node, key, value)

    def end() -> None:
        for node in nodes:
            world.rediscover(node)

    return end


@kind("kernel-changed", weight=2)
def kernel_changed(world: SimulatedWorld, fault: Fault) -> None:
    """Let a machine start anew with another kernel, as after an update of its system."""
    if node := world.some_node(fault):
        world.reboot(node, KERNELS[int(fault.level * len(KERNELS))])


def _pods(world: SimulatedWorld, fault: Fault, kind_of_fault: FaultKind, pod: str = "*") -> End:
    """Break pods of one kind on one node, or on all of them."""
    node = "*" if fault.level > 0.85 else world.some_node(fault) or "*"
    broken = PodFault(kind_of_fault, node=node, pod=pod)
    world.sandbox.faults.add(broken)
    return lambda: world.sandbox.faults.clear(broken)


@kind("driver-crash", weight=2, lasts=(30.0, 1200.0))
def driver_crash(world: SimulatedWorld, fault: Fault) -> End:
    """Let driver containers crash while they install."""
    return _pods(world, fault, FaultKind.DRIVER_CRASH)


@kind("driver-never-ready", weight=1, lasts=(30.0, 1200.0))
def driver_never_ready(world: SimulatedWorld, fault: Fault) -> End:
    """Let driver containers never get ready."""
    return _pods(world, fault, FaultKind.DRIVER_NEVER_READY)


@kind("validator-never-ready", weight=1, lasts=(30.0, 1200.0))
def validator_never_ready(world: SimulatedWorld, fault: Fault) -> End:
    """Let validators hang."""
    return _pods(world, fault, FaultKind.VALIDATOR_NEVER_READY)


@kind("driver-overdue", weight=3, lasts=(150.0, 300.0))
def driver_overdue(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver that does not get ready on some nodes in the time that it is given; one failure holds the others."""
    return _overdue(world, fault, FaultKind.DRIVER_NEVER_READY, State.POD_RESTART_REQUIRED)


@kind("validator-overdue", weight=4, lasts=(150.0, 300.0))
def validator_overdue(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for another driver that is not validated on some nodes in the time that it is given; one failure holds the others."""
    return _overdue(world, fault, FaultKind.VALIDATOR_NEVER_READY, State.VALIDATION_REQUIRED)


def _overdue(world: SimulatedWorld, fault: Fault, kind_of_fault: FaultKind, step: State) -> End | None:
    governor = world.governor(fault)
    if governor is None:
        return None
    nodes, first = world.gpu_nodes(), int(fault.pick * len(world.gpu_nodes()))
    broken = [PodFault(kind_of_fault, node=node) for node in (nodes[first:] + nodes[:first])[:1 + int(5 * fault.level)]]
    for one in broken:
        world.sandbox.faults.add(one)
    world.be_impatient(deadlines={str(step): "1m"}, retries=int(2 * fault.level), failureBudget={"nodes": 0, "percent": 0})
    world.ask_for_another(governor, fault.level)

    def end() -> None:
        for one in broken:
            world.sandbox.faults.clear(one)

    return end


@kind("image-pull", weight=1, lasts=(10.0, 600.0))
def image_pull(world: SimulatedWorld, fault: Fault) -> End:
    """Let images not be there."""
    return _pods(world, fault, FaultKind.IMAGE_PULL)


@kind("stuck-terminating", weight=2, lasts=(10.0, 900.0))
def stuck(world: SimulatedWorld, fault: Fault) -> End:
    """Let pods not end."""
    return _pods(world, fault, FaultKind.STUCK_TERMINATING)
