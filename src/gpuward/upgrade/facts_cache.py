"""Gather the facts of every managed node from a snapshot, anew only for nodes of which something has changed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set

import msgspec

from gpuward import names
from gpuward.model.driver import driver_daemonsets, heeds_variable, is_driver_pod, spares_default_runtime
from gpuward.model.leaving import leaving_of
from gpuward.model.operand_pods import unready_operands
from gpuward.model.orphans import is_without_driver
from gpuward.model.placement import Placement, Placements
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Record, only_remembers
from gpuward.model.selectors import matches
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.staging import PrestageMode
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.taints import Taint, tolerated
from gpuward.model.unserved import DriverLabelUnknown
from gpuward.model.views import NodeView, PodView
from gpuward.model.withheld import is_withheld, living_daemonsets, loaded_alone, replaces, selecting, with_driver
from gpuward.upgrade.driver_image import image_hold
from gpuward.upgrade.evictable_pods import EvictablePods, pods_to_drain, pods_to_evict
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.module_holders import holder_daemonsets, module_holders_on
from gpuward.upgrade.scope import concerns, drives, is_expected, is_to_have_policys, is_unlabelled
from gpuward.upgrade.staged import next_daemonset, next_images
from gpuward.upgrade.targets import AWAITED, UNSETTLED, Target, elsewhere, targets_of
from gpuward.upgrade.unserved import of_hosts, unserved


class RolloutContext:
    """Hold what the facts of all nodes depend on."""

    def __init__(self, snapshot: Snapshot, policy: UpgradePolicy, doubtful: Set[str], now: float = 0.0) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.doubtful = doubtful
        """Nodes that a write on its way may start: they are managed whatever else is known of them."""
        driving = [ds for ds in driver_daemonsets(snapshot) if drives(ds, policy)]
        self.daemonsets = {ds.uid: ds.name for ds in driving}
        self.selectors = tuple(ds.node_selector for ds in driving if not ds.deleting)
        self.driving = driving
        self.validating = tuple(ds.tolerations for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace
                                and ds.name == names.VALIDATOR_APP and not ds.deleting and ds.tolerations is not None)
        """What validator pods tolerate, where that is known."""
        self.tolerations = (*(ds.tolerations for ds in driver_daemonsets(snapshot)), *self.validating)
        self.shapes = {} if policy.rollout.prestage.mode is PrestageMode.OFF else {
            ds.uid: (ds.shape, ds.pull_secrets, ds.account, ds.deleting) for ds in driver_daemonsets(snapshot)}
        self.left = frozenset(ds.uid for ds in driver_daemonsets(snapshot) if ds.deleting and ds.leaves_pods)
        self.digests = {ds.uid: ds.config_digest for ds in driving}
        self.living = living_daemonsets(snapshot)
        self.unplaced = _unplaced(snapshot, self.daemonsets)
        self.targets = targets_of(snapshot, self.daemonsets, now)
        others = {ds.uid for ds in driver_daemonsets(snapshot)} - self.daemonsets.keys() if policy.placing is not None else ()
        self.elsewhere = targets_of(snapshot, others, now) if others else {}
        self.holder_daemonsets = holder_daemonsets(snapshot)
        self.leaving = leaving_of(snapshot)
        self.spared = spares_default_runtime(snapshot)
        self.placements = Placements(snapshot, None if policy.unowned else policy.placing)

    def same_as(self, other: RolloutContext) -> bool:
        """Tell whether a node's facts cannot differ for any of this."""
        return (
            self.policy == other.policy and self.daemonsets == other.daemonsets
            and self.targets == other.targets and self.elsewhere == other.elsewhere
            and self.selectors == other.selectors and self.placements.selectors == other.placements.selectors
            and self.spared == other.spared and self.digests == other.digests and self.living == other.living
            and self.tolerations == other.tolerations
            and self.left == other.left
            and self.shapes == other.shapes and self.snapshot.images == other.snapshot.images
            and self.snapshot.watched_since == other.snapshot.watched_since
            and self.holder_daemonsets == other.holder_daemonsets and self.leaving == other.leaving
        )


class FactsCache:
    """Keep facts from one gathering to the next. It changes nothing about them but the time that they take."""

    def __init__(self) -> None:
        self._common: RolloutContext | None = None
        self._facts: dict[str, tuple[NodeView, Sequence[PodView], bool, Sequence[PodView], NodeFacts | None]] = {}

    def prepare(self, common: RolloutContext) -> None:
        """Forget everything if it may be out of date, and nodes that are gone in any case."""
        if self._common is None or not common.same_as(self._common):
            self._facts = {}
        elif len(self._facts) > len(common.snapshot.nodes):
            self._facts = {name: facts for name, facts in self._facts.items() if name in common.snapshot.nodes}
        self._common = common

    def facts_of(self, node: NodeView, pods: Sequence[PodView], common: RolloutContext) -> NodeFacts | None:
        """Return a node's facts, those from before if it is the same node with the same pods."""
        known, doubtful = self._facts.get(node.name), node.name in common.doubtful
        unplaced = common.unplaced.get(node.name, ())
        same = known is not None and known[0] is node and known[1] is pods and known[2] == doubtful and known[3] == unplaced
        if known is not None and same and _same_memories(known[4], node, (*pods, *unplaced), common):
            return known[4]
        facts = _node_facts(node, pods, common)
        self._facts[node.name] = (node, pods, doubtful, unplaced, facts)
        return facts


def gather(
    snapshot: Snapshot, policy: UpgradePolicy, memory: FactsCache | None = None, doubtful: Set[str] = frozenset()
) -> list[NodeFacts]:
    """Return the facts of every managed node, by name: a node that is to have a driver pod or has one, an upgrade under way or a
    cordon of ours, and the doubtful ones, which a write on its way may start.
    """
    memory = memory or FactsCache()
    common = RolloutContext(snapshot, policy, doubtful)
    memory.prepare(common)
    found = (memory.facts_of(snapshot.nodes[name], snapshot.pods.get(name, ()), common) for name in sorted(snapshot.nodes))
    return [facts for facts in found if facts is not None]


def _unplaced(snapshot: Snapshot, daemonsets: Container[str]) -> dict[str, tuple[PodView, ...]]:
    """Return the driver pods that have no node yet, by the node that they were made for: nothing gives them a new template."""
    found: dict[str, tuple[PodView, ...]] = {}
    for pod in snapshot.pods.get("", ()):
        owned = pod.owner is not None and pod.owner.uid in daemonsets and is_driver_pod(pod, snapshot.namespace)
        if owned and pod.meant_for and not (pod.deleting or pod.finished):
            found[pod.meant_for] = (*found.get(pod.meant_for, ()), pod)
    return found


def _same_memories(facts: NodeFacts | None, node: NodeView, pods: Sequence[PodView], common: RolloutContext) -> bool:
    """Tell whether what is no part of a node or its pods is the same: what was refused and evicted there."""
    seen = common.snapshot
    if facts is None:
        return node.uid not in seen.refused_writes
    if facts.refused != seen.refused_writes.get(node.uid) or facts.evicted != seen.evicted.get(node.name, {}):
        return False
    return not (seen.refusals or facts.refusals) or facts.refusals == _refused(pods, seen.refusals)


def _refused(pods: Sequence[PodView], refusals: Mapping[str, Refusal]) -> dict[str, Refusal]:
    return {pod.uid: refusals[pod.uid] for pod in pods if pod.uid in refusals}


def _node_facts(node: NodeView, on_node: Sequence[PodView], common: RolloutContext) -> NodeFacts | None:
    snapshot, policy = common.snapshot, common.policy
    if not concerns(policy, node):
        return None
    pods = sorted(on_node, key=lambda pod: pod.ref)
    drivers = [_as_it_will_be(pod, node, common) for pod in pods if _drives_for(pod, node, common)]
    unplaced = common.unplaced.get(node.name, ())
    drivers = drivers or [coming for pod in unplaced if not (coming := _as_it_will_be(pod, node, common)).deleting]
    state = node.state if node.state is not None else State.UNKNOWN
    record = node.record or Record(state=state)
    cordon_left_behind = node.unschedulable and record.cordon is CordonOwner.GPUWARD
    validators = tuple(pod for pod in pods if pod.namespace == snapshot.namespace and _app(pod) == names.VALIDATOR_APP)
    driver = _as_left(_the_driver(drivers), common)
    served = with_driver(node) if is_withheld(node) else node
    withheld = served is not node and _would_be_replaced(served, pods, common)
    selected = any(selector.items() <= served.labels.items() for selector in common.selectors)
    kept = of_hosts(served, policy, None) if withheld and driver is None else None
    lacking = kept or unserved(served, policy, driver, record, validators, selected=selected)
    barred = node.uid in snapshot.refused_writes and is_unlabelled(node, policy)
    wanted = barred or selected or isinstance(lacking, DriverLabelUnknown) or is_expected(served, policy)
    wanted = wanted or (_is_under_way(state) and is_to_have_policys(served, policy))
    known = node.record is not None and not only_remembers(record)
    leftover = not wanted and node.state is not None and (state is not State.UNKNOWN or known)
    busy = cordon_left_behind or state in IN_PROGRESS or state is State.FAILED or leftover or node.name in common.doubtful
    if not drivers and not busy and not wanted and lacking is None:
        return None
    variable = heeds_variable(node, common.spared)
    moving = common.placements.moving(node, pods)
    removing = policy.off and driver is not None and driver.orphan and not driver.deleting
    would_repel, none_follows = _would_repel(served, moving, driver, common)
    following = _next_target(served, moving, common)
    target = elsewhere(moving, following, removing=removing) or common.targets.get(
        _daemonset_of(driver, served, common), UNSETTLED).of(driver)
    return NodeFacts(
        node=node,
        state=state,
        record=record,
        driver=driver,
        driver_pods=sum(not pod.deleting for pod in drivers),
        driver_leaving=driver is not None and not driver.deleting and any(pod.deleting for pod in drivers),
        driver_beside=driver is not None and any(_runs_beside(pod, driver, snapshot.namespace) for pod in pods),
        target=target.hash,
        target_digest=target.digest,
        target_version=target.version,
        target_since=target.created,
        edited=target.edited,
        image=image_hold(common.snapshot, served, driver, moving, _daemonset_of(driver, served, common), record.since),
        next_images=next_images(snapshot, policy, served, moving, _daemonset_of(driver, served, common)),
        same=target.same,
        moving=moving,
        next_target=following,
        removing=removing,
        wanted=wanted,
        selected=selected,
        repels=_repels(served, common) if selected and driver is None else (),
        would_repel=would_repel,
        none_follows=none_follows,
        unserved=lacking,
        departed=bool(record.driver) and policy.placing is not None and policy.placing.claim(record.driver) is None,
        validators=validators,
        operands=unready_operands(pods, snapshot.namespace),
        module_holders=module_holders_on(node, pods, common.holder_daemonsets, snapshot.namespace),
        device_plugin_going=common.leaving.device_plugin(node, pods),
        offering=common.leaving.offering(node, pods),
        leaving=_leaving(node, pods, record, common),
        driver_follows=bool(record.changing) and common.leaving.follows(node, pods),
        to_evict=pods_to_evict(pods, policy, snapshot.namespace, variable=variable),
        to_drain=pods_to_drain(pods, policy, snapshot.namespace, variable=variable) if policy.drain.enable else EvictablePods(),
        machines=tuple(pod for pod in pods if pod.uses_vm_gpu and pod.phase == "Running" and not pod.was_left_by(node)),
        jobs=_running(pods, policy.wait_for_completion.pod_selector),
        refusals=_refused((*pods, *unplaced), snapshot.refusals),
        evicted=snapshot.evicted.get(node.name, {}),
        refused=snapshot.refused_writes.get(node.uid),
        unschedulable=node.unschedulable,
        withheld=withheld,
        barred=barred,
        watched_since=snapshot.watched_since,
    )


def _next_target(node: NodeView, moving: Placement | None, common: RolloutContext) -> Target:
    """Return what a node's driver pod will be where it is moved to."""
    found = next_daemonset(common.snapshot, node, moving, "") if moving is not None else None
    return UNSETTLED if found is None else common.targets.get(found.uid) or common.elsewhere.get(found.uid, AWAITED)


def _leaving(node: NodeView, pods: Sequence[PodView], record: Record, common: RolloutContext) -> PodView | None:
    """Return what has to go before a node whose labels change may be given back; without a policy nobody changes them further."""
    if not record.changing:
        return None
    return common.leaving.from_node(node, pods) if common.policy.absent else common.leaving.from_changing(node, pods)


def _is_under_way(state: State) -> bool:
    return state in IN_PROGRESS or state is State.FAILED


def _would_be_replaced(node: NodeView, pods: Sequence[PodView], common: RolloutContext) -> bool:
    """Tell whether pods run on a driver that no driver pod holds, and that of the node's DaemonSet is another one."""
    loaded = loaded_alone(node, pods, common.snapshot.namespace, common.living, spared=common.spared)
    return loaded is not None and replaces(selecting(common.driving, node.labels), loaded)


def _repels(node: NodeView, common: RolloutContext) -> tuple[Taint, ...]:
    """Return the taints that keep the driver pod away of each DaemonSet that is for the node, until somebody does something."""
    makers = selecting([ds for ds in common.driving if not ds.deleting], node.labels)
    lasting = [taint for taint in node.taints if not taint.of_a_start]
    repelled = [tuple(taint for taint in lasting if not tolerated((taint,), ds.tolerations or ()))
                if ds.tolerations is not None else () for ds in makers]
    return repelled[0] if repelled and all(repelled) else ()


def _would_repel(
    node: NodeView, moving: Placement | None, driver: PodView | None, common: RolloutContext
) -> tuple[tuple[Taint, ...], bool]:
    """Return the taints that keep a node's next driver pod away, or what validates it, until somebody does something, and whether
    it is the driver pod.
    """
    lasting = [taint for taint in node.taints if not taint.of_a_start]
    ds = next_daemonset(common.snapshot, node, moving, _daemonset_of(driver, node, common)) if lasting else None
    if ds is None or ds.deleting:
        return (), False
    drivers = (ds.tolerations,) if ds.tolerations is not None else ()
    taints = tuple(taint for taint in lasting if not all(tolerated((taint,), pods) for pods in (*drivers, *common.validating)))
    return taints, not all(tolerated(taints, pods) for pods in drivers)


def _runs_beside(pod: PodView, driver: PodView, namespace: str) -> bool:
    return pod.ready and not pod.deleting and pod.uid != driver.uid and is_driver_pod(pod, namespace)


def _app(pod: PodView) -> str:
    return pod.labels.get("app", "")


def _drives_for(pod: PodView, node: NodeView, common: RolloutContext) -> bool:
    """Tell whether a driver pod is a matter of the policy: one that nobody owns is not where none comes after it. One of another
    policy's DaemonSet is not, while that lives and selects the node: else it goes, or is about to, and the node is not rid of it
    until then.
    """
    if not is_driver_pod(pod, common.snapshot.namespace):
        return False
    if pod.owner is None:
        return not is_without_driver(node)
    if pod.owner.uid in common.daemonsets:
        return True
    selector = common.placements.selectors.get(pod.owner.uid)
    return pod.deleting or selector is None or not selector.items() <= node.labels.items()


def _as_it_will_be(pod: PodView, node: NodeView, common: RolloutContext) -> PodView:
    """Return a driver pod as one on its way out where its DaemonSet no longer selects the node: it is about to be deleted."""
    selector = common.placements.selectors.get(pod.owner.uid) if pod.owner is not None else None
    if pod.deleting or selector is None or selector.items() <= node.labels.items():
        return pod
    return msgspec.structs.replace(pod, deleting=True)


def _as_left(driver: PodView | None, common: RolloutContext) -> PodView | None:
    """Return a driver pod as nobody's where its DaemonSet goes, leaves it behind, and none comes after it."""
    if driver is None or driver.owner is None or driver.owner.uid not in common.left or not common.policy.unowned:
        return driver
    return msgspec.structs.replace(driver, owner=None, orphan=True)


def _the_driver(drivers: Iterable[PodView]) -> PodView | None:
    """Choose the pod that counts where a node has several: one that stays before one that goes, owned before orphaned."""
    return min(drivers, key=lambda pod: (pod.deleting, pod.orphan, -pod.created, pod.ref), default=None)


def _daemonset_of(driver: PodView | None, node: NodeView, common: RolloutContext) -> str:
    """Return the uid of the DaemonSet that a node's driver pod is of or, without one, of the DaemonSet that selects the node.
    There is none while two do: the one that is about to go would make the next pod as well.
    """
    daemonsets = common.daemonsets
    if driver is not None and driver.owner is not None and driver.owner.uid in daemonsets:
        return driver.owner.uid
    selecting = [ds.uid for ds in common.snapshot.daemonsets
                 if ds.uid in daemonsets and not ds.deleting and ds.node_selector.items() <= node.labels.items()]
    if len(selecting) > 1:
        return ""
    return min(selecting or daemonsets, key=lambda uid: (daemonsets[uid], uid), default="")


def _running(pods: Iterable[PodView], selector: str) -> tuple[PodView, ...]:
    if not selector:
        return ()
    return tuple(pod for pod in pods if pod.phase in ("Running", "Pending") and matches(selector, pod.labels))
