"""What users run: disruption budgets come and go, workloads grow and shrink, pods appear on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault as PodFault
from tools.simulate.faults.kinds import End, kind

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld


@kind("budget-closes", weight=2, lasts=(10.0, 600.0))
def budget_closes(world: SimulatedWorld, fault: Fault) -> End:
    """Let nobody of a workload go for a while."""
    world.set_budget("inference", 0)
    return lambda: world.set_budget("inference", 1 + int(3 * fault.level))


@kind("budget-removed", weight=1, lasts=(10.0, 600.0))
def budget_removed(world: SimulatedWorld, fault: Fault) -> End:
    """Take a budget away, and bring it back."""
    world.remove_budget("inference")
    return lambda: world.set_budget("inference", 1)


@kind("second-budget", weight=1, lasts=(10.0, 300.0))
def second_budget(world: SimulatedWorld, fault: Fault) -> End:
    """Put a workload under two budgets: the API then evicts none of its pods."""
    world.set_budget("inference-too", 1, app="inference")
    return lambda: world.remove_budget("inference-too")


@kind("scale", weight=2)
def scale(world: SimulatedWorld, fault: Fault) -> None:
    """Run more or fewer pods of a workload."""
    world.scale("inference", int(fault.level * 2 * world.scenario.nodes))


@kind("jobs-run", weight=2, lasts=(40.0, 300.0))
def jobs_run(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for the upgrade of a node where a job runs that is to end first."""
    governor = world.governor(fault)
    if governor is None:
        return None
    world.change_driver(governor, lambda spec: spec["upgradePolicy"].update(
        waitForCompletion={"podSelector": "app=training", "timeoutSeconds": (0, 60)[int(2 * fault.level)]}))
    world.run_workload("training")
    world.later(fault.seconds / 3, lambda: _upgrade_one_with(world, fault, "training"))
    return lambda: world.remove_workload("training")


@kind("pods-overdue", weight=2, lasts=(60.0, 260.0))
def pods_overdue(world: SimulatedWorld, fault: Fault) -> End | None:
    """Ask for the upgrade of a node whose pods do not end in the time that they are given."""
    governor, broken = world.governor(fault), PodFault(FaultKind.STUCK_TERMINATING, pod="inference-*")
    if governor is None:
        return None
    world.change_driver(governor, lambda spec: spec["upgradePolicy"].setdefault("podDeletion", {}).update(
        force=True, deleteEmptyDir=True, timeoutSeconds=30))
    world.be_impatient(killAtDeadline=fault.level < 0.5)
    world.set_budget("inference", 2 * world.scenario.nodes)
    world.sandbox.faults.add(broken)
    _upgrade_one_with(world, fault, "inference")
    return lambda: world.sandbox.faults.clear(broken)


def _upgrade_one_with(world: SimulatedWorld, fault: Fault, app: str) -> None:
    """Ask for the upgrade of a node with a pod of a workload."""
    nodes = {str(pod["spec"].get("nodeName", "")) for pod in world.workload_pods() if pod["metadata"]["labels"].get("app") == app}
    if node := world.pick(sorted(nodes & set(world.gpu_nodes())), fault):
        world.label(node, names.UPGRADE_STATE, State.UPGRADE_REQUIRED)


@kind("bare-pod", weight=2, lasts=(20.0, 900.0))
def bare_pod(world: SimulatedWorld, fault: Fault) -> End | None:
    """Start a GPU pod without a controller on a node, past the scheduler; it ends by itself."""
    node = world.some_node(fault)
    if node is None:
        return None
    return world.run_bare_pod(f"bare-{fault.at:.3f}".replace(".", "-"), node, holds=False)


@kind("holder", weight=1, lasts=(20.0, 900.0))
def holder(world: SimulatedWorld, fault: Fault) -> End | None:
    """Start a pod on a node that holds the driver without asking for a GPU."""
    node = world.some_node(fault)
    if node is None:
        return None
    return world.run_bare_pod(f"holder-{fault.at:.3f}".replace(".", "-"), node, holds=True)


@kind("static-pod", weight=1, lasts=(20.0, 600.0))
def static_pod(world: SimulatedWorld, fault: Fault) -> End | None:
    """Let a node's kubelet run a GPU pod from a manifest on its disk: nothing can evict it."""
    node = world.some_node(fault)
    if node is None:
        return None
    return world.run_static_pod(f"static-{fault.at:.3f}".replace(".", "-"), node)


@kind("pod-with-claim", weight=2, lasts=(20.0, 900.0))
def pod_with_claim(world: SimulatedWorld, fault: Fault) -> End | None:
    """Start a pod whose ResourceClaim has GPUs, or devices that are none of NVIDIA's."""
    node = world.some_node(fault)
    if node is None:
        return None
    driver = names.DRA_DRIVER if fault.level < 0.7 else "net.example.com"
    return world.run_pod_with_claim(f"claim-{fault.at:.3f}".replace(".", "-"), node, driver, consumed=fault.level >= 0.35)
