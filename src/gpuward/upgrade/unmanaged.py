"""Say why a node is none of those whose driver is upgraded."""

from __future__ import annotations

from gpuward import names
from gpuward.model.abandoned import WHAT_TO_DO, is_abandoned
from gpuward.model.driver import driver_daemonsets, owner_uid, spares_default_runtime
from gpuward.model.explain import sentence
from gpuward.model.orphans import kept_for
from gpuward.model.placement import Placements
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView
from gpuward.model.waits import WaitsFor
from gpuward.model.withheld import is_unwanted, runs_on_loaded
from gpuward.model.workloads import WorkloadKeeper, is_for_virtual_machines
from gpuward.upgrade.host_driver import told_of_host


def why_unmanaged(
    node: NodeView, snapshot: Snapshot, policy: UpgradePolicy, *, off: str = "", managed: bool | None = None
) -> str:
    """Return what a node lacks that the driver of a managed node has, the first thing in the order in which they come about;
    `off` is the ClusterPolicy by which drivers are switched off. Drivers of hosts are `managed` where the vGPU manager is on;
    None where that is not known, or NVIDIADrivers bring them.
    """
    if not node.gpu_present:
        seen = any(node.labels.get(label) == "true" for label in names.NFD_GPU_LABELS)
        if seen:
            return (f"discovery saw a GPU, but the label {names.GPU_PRESENT}=true is not there yet: the operator sets it, and an "
                    "event on the node says why if it may not")
        discovered = any(key.startswith(names.NFD_PREFIX) for key in node.labels)
        return ("node feature discovery found no GPU of NVIDIA's on it" if discovered
                else "node feature discovery has not labelled it, so it is not known to have a GPU")
    if is_for_virtual_machines(node):
        return f"its GPUs serve virtual machines{_kept(node, snapshot, policy, managed=managed)}"
    if off:
        return f"{off} has driver.enabled: false{_running_on(node, snapshot)}"
    if policy.unowned:
        return "no NVIDIADriver selects it"
    drivers = driver_daemonsets(snapshot)
    if not drivers:
        return f"there is no driver DaemonSet in namespace {snapshot.namespace}"
    if is_unwanted(node):
        return f"its label {names.DEPLOY_DRIVER}=false says that it is to have no driver{_loaded_on(node, snapshot)}"
    if node.labels.get(names.DEPLOY_DRIVER) == names.PRE_INSTALLED:
        said = f"its host has a driver of its own, as its label {names.DEPLOY_DRIVER}={names.PRE_INSTALLED} says"
        return f"{said}{_loaded_on(node, snapshot)}"
    if lacking := missing_labels(node, drivers):
        unwanted = node.labels.get(names.DEPLOY_OPERANDS) == "false"
        why = (f"its label {names.DEPLOY_OPERANDS}=false says that it is to have nothing of the GPU stack" if unwanted
               else f"no driver DaemonSet is meant for it: {lacking}")
        return f"{why}{_loaded_on(node, snapshot)}"
    return "no driver pod runs on it yet"


def missing_labels(node: NodeView, drivers: list[DaemonSetView]) -> str:
    """Say which labels a node lacks for each driver DaemonSet; nothing if it has those of one."""
    lacking = []
    for ds in drivers:
        wrong = [key for key, value in ds.node_selector.items() if node.labels.get(key) != value]
        if not wrong:
            return ""
        texts = (f"{key}={ds.node_selector[key]} ({'it has ' + node.labels[key] if key in node.labels else 'it has none'})"
                 for key in sorted(wrong))
        lacking.append(f"{ds.name} wants {', '.join(texts)}")
    return "; ".join(lacking)


def _kept(node: NodeView, snapshot: Snapshot, policy: UpgradePolicy, *, managed: bool | None) -> str:
    """Say what keeps a node from being for something else, or from losing its host's driver, if it should."""
    keeper = WorkloadKeeper(snapshot, policy.workloads) if policy.workloads is not None else None
    pods = snapshot.pods.get(node.name, ())
    what: WaitsFor | None = keeper.kept(node, pods) if keeper is not None else None
    what = what or Placements(snapshot, policy.placing).kept_for(node, pods)
    what = what or kept_for(node, pods, snapshot.namespace, spared=spares_default_runtime(snapshot))
    return told_of_host(node, snapshot, policy, managed=managed) if what is None else f"; it {sentence(Hold(what))}"


def _loaded_on(node: NodeView, snapshot: Snapshot) -> str:
    """Say that pods need a driver that has no driver pod any more."""
    return "; its driver pod is gone, and pods run on the driver that is loaded" if runs_on_loaded(node, snapshot) else ""


def _running_on(node: NodeView, snapshot: Snapshot) -> str:
    """Say which driver a node has that nobody takes away: an NVIDIADriver's, or one that is left in the kernel."""
    owned = ((ds.uid, ds.owner) for ds in driver_daemonsets(snapshot))
    owners = {uid: owner.name for uid, owner in owned if owner is not None and owner.kind == "NVIDIADriver"}
    for pod in snapshot.pods.get(node.name, ()):
        if (name := owners.get(owner_uid(pod))) and not pod.deleting:
            return f"; driver pod {pod.name} runs on until NVIDIADriver {name} is deleted"
    if is_abandoned(node, snapshot):
        return f"; its driver is still loaded, nobody serves it, and the node offers its GPUs: {WHAT_TO_DO}"
    return ""
