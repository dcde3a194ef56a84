"""How each operand of the GPU stack stands: how many of its pods are ready, and which one is stuck, where, and in what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from gpuward import names
from gpuward.labels.discovery import has_gpu
from gpuward.model.driver import driver_daemonsets, is_hosts_daemonset, is_newest, revisions_of
from gpuward.model.hosts import told_of_use
from gpuward.model.listing import MOST_NAMED, all_of, listed
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.stuck import StuckPod, stuck_pod
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.workloads import is_for_virtual_machines
from gpuward.operands.facts import ClusterFacts, Context
from gpuward.operands.held_up import HeldUp, held_up
from gpuward.operands.readiness import waits_for
from gpuward.operands.render import OPERANDS, OperandModule
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import why_refused
from gpuward.report.versions import asked_version

DRIVER = "driver"
NO_DAEMONSET = "its DaemonSet does not exist"
_STATE_PREFIX = "state-"
_STAY_IN_USE = frozenset({names.VFIO_MANAGER_APP, names.VGPU_MANAGER_APP, names.CC_MANAGER_APP, names.VGPU_DEVICE_MANAGER_APP,
                         names.MPS_DAEMON_APP})
"""The DaemonSets whose pods stay while others use the GPUs of their nodes."""
Pods = Mapping[str, Sequence[PodView]]


class OperandReport(msgspec.Struct, frozen=True):
    """Hold how one operand stands."""

    name: str
    """As its state of the ClusterPolicy, without the prefix: `device-plugin`."""
    daemonsets: tuple[str, ...] = ()
    ready: int = 0
    desired: int = 0
    waits: str = ""
    """What it waits for; empty where it is as it should be."""
    stuck: StuckPod | None = None
    older: int = 0
    """Pods that have an older template, and run on until their node has its turn."""
    unready: tuple[str, ...] = ()
    """The nodes of pods that are not ready."""
    unplaced: tuple[str, ...] = ()
    """The nodes for which pods are made that have no place there yet."""
    missing: int = 0
    """Pods that are not there."""
    held_up: HeldUp | None = None
    """What its new template waits for, where that comes to no further node meanwhile."""
    unserved: int = 0
    """The nodes of an NVIDIADriver none of which is one for its type of driver."""

    @property
    def is_waiting(self) -> bool:
        """Tell whether it waits for more than the turn of nodes whose pods have an older template."""
        return bool(self.waits) and not (self.older and self.ready >= self.desired)

    @property
    def awaits_users(self) -> bool:
        """Tell whether pods run on with an older template while the GPUs of their nodes are used: no upgrade tells of these."""
        return bool(self.older) and self.ready >= self.desired and not _STAY_IN_USE.isdisjoint(self.daemonsets)

    def is_troubled(self, under_way: Set[str], waiting: Set[str] = frozenset()) -> bool:
        """Tell whether it waits for more than nodes that are upgraded now, or wait to be. An NVIDIADriver without nodes is no
        trouble; nodes that its type of driver is not for say so themselves.
        """
        nothing = (bool(self.unserved) or not self.daemonsets) and self.name != DRIVER
        return self.is_waiting and not nothing and not self.is_explained_by(under_way, waiting)

    def is_explained_by(self, under_way: Set[str], waiting: Set[str] = frozenset()) -> bool:
        """Tell whether nothing is wrong but on nodes that are upgraded now, which takes pods away for a while, and on those that
        wait for their turn: where drivers are to come from elsewhere their pods have no place until then.
        """
        troubled = self.stuck is not None and self.stuck.in_trouble
        there = self.ready + len(self.unready) + len(self.unplaced) + self.missing >= self.desired > 0
        placed = under_way >= set(self.unready) and under_way | waiting >= set(self.unplaced)
        return there and not troubled and placed and self.missing <= len(under_way)


def operand_reports(snapshot: Snapshot, policies: PoliciesInForce) -> list[OperandReport]:
    """Return a report for each operand that the ClusterPolicy in force wants, drivers of NVIDIADrivers among them."""
    policy = policies.policy.policy
    if policies.policy.view is None or policy is None:
        return []
    ctx = Context(policy, ClusterFacts(namespace=snapshot.namespace), {})
    wanted = [operand for operand in OPERANDS if _name(operand) != DRIVER and operand.enabled(ctx)]
    pods = _by_owner(snapshot)
    found = [_report(_name(operand), _named(operand, ctx), snapshot, pods) for operand in wanted]
    return [*_drivers(snapshot, policies, pods), *(one for one in found if one is not None)]


def told_of_templates(node: str, reports: Iterable[OperandReport]) -> Iterator[str]:
    """Say of a node which operands have an older template there, and what the new one waits for, or that it is waited for."""
    held: dict[str, list[str]] = {}
    for one in reports:
        if (up := one.held_up) is not None and node in up.awaited:
            where = listed(up.older, MOST_NAMED)
            held.setdefault(f"its new template waits for the pod here, and has not come to {where}", []).append(one.name)
        elif up is not None and node in up.older:
            pods = "that" if len(up.awaited) == 1 else "those"
            held.setdefault(f"the pod here has an older template: the new one waits for {pods} on {up.told}", []).append(one.name)
    yield from (f"{all_of(operands)}: {told}" for told, operands in held.items())


def moving_nodes(plan: Plan) -> tuple[Set[str], Set[str]]:
    """Return the nodes whose upgrade is under way, and those that wait for theirs."""
    def within(states: Set[State]) -> Set[str]:
        return {name for name, status in plan.nodes.items() if status.state in states}

    return within(IN_PROGRESS), within({State.UPGRADE_REQUIRED})


def _by_owner(snapshot: Snapshot) -> Pods:
    """Return the pods of our namespace by the uid of their owner."""
    found: dict[str, list[PodView]] = {}
    for on_node in snapshot.pods.values():
        for pod in on_node:
            if pod.owner is not None and pod.namespace == snapshot.namespace:
                found.setdefault(pod.owner.uid, []).append(pod)
    return found


def _name(operand: OperandModule) -> str:
    return operand.NAME.removeprefix(_STATE_PREFIX)


def _named(operand: OperandModule, ctx: Context) -> frozenset[str]:
    return frozenset(ref.name for ref in operand.refs(ctx) if ref.kind == "DaemonSet")


def _report(name: str, named: frozenset[str], snapshot: Snapshot, pods: Pods) -> OperandReport | None:
    """Return the report of an operand, None for one that has no DaemonSet under any policy."""
    if not named:
        return None
    there = [ds for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace and ds.name in named]
    if not there and not any(node.gpu_present for node in snapshot.nodes.values()):
        return OperandReport(name, tuple(sorted(named)), waits=_no_node(snapshot))
    return _sum(name, there, snapshot, pods) if there else OperandReport(
        name, tuple(sorted(named)), waits=NO_DAEMONSET)


def _no_node(snapshot: Snapshot) -> str:
    """Say why no node is labelled as one with GPUs."""
    seen = any(map(has_gpu, snapshot.nodes.values()))
    return "no operator has labelled the nodes that have GPUs" if seen else "no node with GPUs is known"


def _drivers(snapshot: Snapshot, policies: PoliciesInForce, pods: Pods) -> list[OperandReport]:
    """Return a report for each that drivers come from, whether or not it is to have any now."""
    found: dict[str, list[DaemonSetView]] = {}
    if policies.in_force:
        found = {_title(each): [] for each in policies.active}
    elif not policies.policy.upgrades.off:
        found = {DRIVER: []}
    hosts = [ds for ds in snapshot.daemonsets if is_hosts_daemonset(ds, snapshot.namespace) and ds.owner is not None]
    for ds in (*driver_daemonsets(snapshot), *hosts):
        nvidia_driver = ds.owner is not None and ds.owner.kind == "NVIDIADriver"
        found.setdefault(f"{DRIVER} of NVIDIADriver {ds.owner.name}" if nvidia_driver and ds.owner else DRIVER, []).append(ds)
    missing = _without_daemonset(snapshot, policies)
    return [_of_driver(_sum(name, there, snapshot, pods) if there else None, missing.get(name)) or OperandReport(
        name, waits=NO_DAEMONSET) for name, there in found.items()]


def _of_driver(there: OperandReport | None, without: OperandReport | None) -> OperandReport | None:
    """Return the report of drivers: of DaemonSets that no node is for, what is said without them."""
    if there is None or there.desired or without is None or not without.unserved:
        return there or without
    return msgspec.structs.replace(there, waits=without.waits, unserved=without.unserved)


def _without_daemonset(snapshot: Snapshot, policies: PoliciesInForce) -> Mapping[str, OperandReport]:
    """Return the reports of drivers for which no DaemonSet is there: what they wait for, and how many nodes are theirs."""
    gpu_nodes = [node for node in snapshot.nodes.values() if node.gpu_present]
    if not gpu_nodes:
        nobody = _no_node(snapshot)
        return {name: OperandReport(name, waits=nobody) for name in (DRIVER, *map(_title, policies.active))}
    found = {}
    for each in policies.active if policies.in_force else ():
        own = [node for node in gpu_nodes if node.labels.get(names.DRIVER_OWNER) == each.view.name]
        served = [node for node in own if _serves(each, node)]
        why = why_refused(policies, each.view.name)
        lacks = NO_DAEMONSET if served else _unserved(each, len(own)) or "no node is its own"
        waits = f"no driver {asked_version(each)} is made: {why}" if why else lacks
        unserved = len(own) if not served else 0
        found[_title(each)] = OperandReport(_title(each), desired=len(served), waits=waits, unserved=unserved)
    return found


def _serves(driver: ActiveDriver, node: NodeView) -> bool:
    """Tell whether an NVIDIADriver's type of driver is for what a node's GPUs are for."""
    if driver.claim.is_for_hosts:
        return node.labels.get(names.DEPLOY_VGPU_MANAGER) == "true"
    return not is_for_virtual_machines(node)


def _unserved(driver: ActiveDriver, nodes: int) -> str:
    """Say that none of the nodes of an NVIDIADriver is one for its type of driver; empty where it has no nodes."""
    if not nodes:
        return ""
    serves = "is a host of vGPUs" if driver.claim.is_for_hosts else "runs containers"
    which = f"none of its {nodes} nodes {serves}" if nodes > 1 else f"its only node is none that {serves}"
    return f"it is of type {driver.claim.driver_type}, and {which}" if driver.claim.driver_type else which


def _title(driver: ActiveDriver) -> str:
    return f"{DRIVER} of NVIDIADriver {driver.view.name}"


def _sum(name: str, daemonsets: Sequence[DaemonSetView], snapshot: Snapshot, pods: Pods) -> OperandReport:
    uids = sorted({ds.uid for ds in daemonsets})
    own = [pod for uid in uids for pod in pods.get(uid, ())]
    # Pods that its DaemonSet no longer wants on their nodes are there, and waited for, until their upgrade.
    desired = sum(max(ds.desired, sum(pod.is_owned_by(ds.uid) and not pod.deleting for pod in own)) for ds in daemonsets)
    ready = sum(pod.ready and not pod.deleting for pod in own)
    told = (waits_for(ds, own, snapshot.revisions, snapshot.nodes.values()) for ds in daemonsets)
    held = next(filter(None, (held_up(ds, own, snapshot.revisions, snapshot.nodes.values()) for ds in daemonsets)), None)
    waits = str(held) if held is not None else next(filter(None, told), "")
    older = sum(older_pods(ds, own, snapshot) for ds in daemonsets if ds.on_delete)
    if older and ready >= desired:
        used = "".join(told_of_use(ds, snapshot) for ds in daemonsets if ds.name in _STAY_IN_USE)
        waits = f"{older} of {desired} pods have an older template{used}"
    unplaced = {pod.meant_for for pod in own if not pod.node and pod.meant_for}
    unready = {pod.node for pod in own if (not pod.ready or pod.deleting) and (pod.node or not pod.meant_for)}
    return OperandReport(
        name, tuple(ds.name for ds in daemonsets), ready, desired, waits,
        stuck_pod(_as_heard_of(own, snapshot)) if ready < desired else None, older, tuple(sorted(unready)),
        tuple(sorted(unplaced)), max(0, desired - len(own)), held,
    )


def _as_heard_of(pods: Iterable[PodView], snapshot: Snapshot) -> Iterator[PodView]:
    """Yield pods with what their nodes make of them: of one whose node is not Ready, nobody knows what it does."""
    for pod in pods:
        node = snapshot.nodes.get(pod.node)
        lost = pod.begun and not pod.ready and node is not None and not node.ready
        yield msgspec.structs.replace(pod, unheard=True) if lost else pod


def older_pods(ds: DaemonSetView, pods: Iterable[PodView], snapshot: Snapshot) -> int:
    """Count the pods of a DaemonSet that run another template than its newest."""
    found = revisions_of(ds.uid, snapshot.revisions)
    return sum(pod.is_owned_by(ds.uid) and not is_newest(pod, ds, found) for pod in pods) if found.same else 0
