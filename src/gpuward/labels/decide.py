"""Decide the labels of every node: one pure function from nodes and a policy to patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from gpuward import names
from gpuward.labels.cordons import HANDED_OVER_WITHIN, is_handed_over, with_cordon, without_note, without_offers
from gpuward.labels.discovery import KeptOperands, Loss, busy, has_gpu, is_lost, is_outage, judge_loss
from gpuward.labels.driver_managers import DriverManagers
from gpuward.labels.drivers import DriverLabels, claim_of
from gpuward.labels.policy import KNOWN, MIG_MANAGER, LabelPolicy
from gpuward.labels.settled import Settled
from gpuward.model.actions import PatchNode
from gpuward.model.driver import heeds_variable, owner_uid, spares_default_runtime, uses_driver
from gpuward.model.leaving import Leaving, leaving_of
from gpuward.model.record import format_time
from gpuward.model.removal import DriverKept
from gpuward.model.resetting import Manager
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.withheld import loaded_last
from gpuward.model.workloads import HOST_DRIVERS, OperandsKept, Workload, WorkloadKeeper, WorkloadKept, workload_of

MIG_PRODUCTS = ("h100", "a100", "a30")


class Labelling(msgspec.Struct, frozen=True):
    """Hold one decision about the labels of all nodes."""

    patches: tuple[PatchNode, ...] = ()
    """One for each node whose labels are not as they should be, by node name."""
    wake_at: float | None = None
    """When time alone changes the decision."""
    kept: Mapping[str, KeptOperands] = {}
    """Nodes that keep their operands though discovery sees no GPU there, and why."""
    used: Mapping[str, WorkloadKept | OperandsKept | DriverKept] = {}
    """Nodes that stay as they are while pods use their GPUs: they should be for something else, or nothing, or lose a driver."""
    troubles: Mapping[str, str] = {}
    """Nodes about whose labels nothing could be decided, and why."""


def decide_labels(snapshot: Snapshot, policy: LabelPolicy, now: float, settled: Settled | None = None) -> Labelling:
    """Return what to change about the labels of nodes; of nodes that are in doubt or on their way out nothing.

    `settled` carries what is known from earlier calls.
    """
    settled = settled or Settled()
    settled.prepare(snapshot, policy)
    nodes = [node for name, node in sorted(snapshot.nodes.items()) if name not in snapshot.unsettled and not node.deleting]
    outage = cache(lambda: is_outage(snapshot.nodes.values()))
    rules = _Rules(snapshot.namespace, policy, now, outage, DriverLabels(snapshot, policy, now), spares_default_runtime(snapshot),
                   WorkloadKeeper(snapshot, policy.workloads), DriverManagers(snapshot), leaving_of(snapshot),
                   {manager: manager.is_there(snapshot) for manager in policy.resetting})
    found: list[_Found] = []
    troubles: dict[str, str] = {}
    for node in nodes:
        pods = snapshot.pods.get(node.name, ())
        if settled.holds(node, pods):
            continue
        try:
            found.append(one := _decide(node, pods, rules))
        except Exception as error:  # a bug that one node brings to light must not stop the labels of the others
            troubles[node.name] = f"{type(error).__name__}: {error}"
            continue
        if one.settled:
            settled.add(node, pods)
    losses = {one.node: one.loss for one in found if one.loss is not None}
    return Labelling(
        patches=tuple(one.patch for one in found if one.patch is not None),
        wake_at=min((until for until in (*(loss.until for loss in losses.values()), *(one.until for one in found))
                     if until is not None), default=None),
        kept={name: loss.kept for name, loss in losses.items() if loss.kept},
        used={one.node: one.used for one in found if one.used is not None},
        troubles=troubles,
    )


class _Found(NamedTuple):
    """Hold what was decided about one node."""

    node: str
    patch: PatchNode | None = None
    loss: Loss | None = None
    settled: bool = False
    """Whether its labels are right, whatever time it is."""
    until: float | None = None
    """When time alone changes the decision, unless its loss says so."""
    used: WorkloadKept | OperandsKept | DriverKept | None = None


class _Rules(NamedTuple):
    namespace: str
    policy: LabelPolicy
    now: float
    outage: Callable[[], bool]
    drivers: DriverLabels
    spared: bool
    workloads: WorkloadKeeper
    managers: DriverManagers
    leaving: Leaving
    resetting: Mapping[Manager, bool]
    """The managers that may take GPUs from virtual machines, each with whether its DaemonSet is there."""

    def used(self, node: NodeView, pods: Sequence[PodView]) -> bool:
        """Tell whether pods of a node need its driver, whatever its GPUs are for."""
        variable = heeds_variable(node, self.spared)
        return any((pod.uses_vm_gpu and not pod.finished) or uses_driver(pod, self.namespace, variable=variable) for pod in pods)

    def later(self, node: NodeView, pods: Sequence[PodView]) -> frozenset[str]:
        """Return the labels of operands that come to a node once nothing uses its GPUs."""
        return self._later(node, pods, self.resetting)

    def lacks_manager(self, node: NodeView, pods: Sequence[PodView]) -> bool:
        """Tell whether such an operand has no pod on a node that is used: its DaemonSet may go without news of the node."""
        return bool(self._later(node, pods, dict.fromkeys(self.resetting, False)))

    def _later(self, node: NodeView, pods: Sequence[PodView], managers: Mapping[Manager, bool]) -> frozenset[str]:
        users = self.workloads.users(node, pods) if managers else ()
        return frozenset(manager.label for manager, there in managers.items()
                         if manager.comes_later(node, pods, users, self.namespace, there=there))

    def handed_over_until(self, node: NodeView, pods: Sequence[PodView]) -> float | None:
        """Return until when nothing is to offer the GPUs of a host that gets another driver; None where something may."""
        if not is_handed_over(node, pods, self.namespace) or self.workloads.users(node, pods) or node.record is None:
            return None
        until = node.record.changing + HANDED_OVER_WITHIN
        return until if self.now < until or self.leaving.is_offered(pods) else None

    def finished(self, patch: PatchNode | None, node: NodeView, pods: Sequence[PodView]) -> PatchNode | None:
        """Return a node's patch with what a driver manager left given back, and with our cordon where its driver goes by it."""
        patch = self.managers.give_back(patch, node, pods)
        return patch if self.workloads.users(node, pods) else with_cordon(patch, node, pods, self.leaving, self.now)


def _decide(node: NodeView, pods: Sequence[PodView], rules: _Rules) -> _Found:
    policy, drivers, kept = rules.policy, rules.drivers, rules.workloads.kept(node, pods)
    workload = policy.workloads.wanted(node.labels.get(names.WORKLOAD_CONFIG)) if kept is None else kept.workload
    if is_lost(node):
        grace = policy.discovery_grace
        loss = judge_loss(node, used=rules.used(node, pods), outage=rules.outage(), grace=grace, now=rules.now)
        return _Found(node.name, _keep(node, loss) if loss.kept else rules.finished(
            _patch(node, workload, pods, rules), node, pods), loss)
    if has_gpu(node) or not busy(node, used=rules.used(node, pods)):
        operands = None if policy.remove_at_once else rules.workloads.operands(node, pods)
        until = rules.handed_over_until(node, pods)
        patch = _patch(node, workload, pods, rules, kept=operands is not None)
        patch = rules.finished(without_offers(patch) if until is not None else without_note(patch, node), node, pods)
        settled = patch is None and kept is None and operands is None and not (
            drivers.is_open(node, pods) or rules.managers.left_anything(node) or rules.lacks_manager(node, pods))
        ends = until if until is not None and until > rules.now else drivers.rests_until(node)
        return _Found(node.name, patch, settled=settled and until is None, until=ends,
                      used=kept or operands or drivers.kept_for(node, pods))
    return _Found(node.name, _told(node, policy, pods, drivers))


def _told(node: NodeView, policy: LabelPolicy, pods: Sequence[PodView], drivers: DriverLabels) -> PatchNode | None:
    """Take from a node that keeps its operands for its pods what tells the driver manager that gpuward empties it, where that
    is over: its driver DaemonSet waits for it.
    """
    starting = drivers.is_replaced(pods)
    changed = _annotations(node, policy, True, node.labels.get(names.DRIVER_OWNER), starting=starting)
    if None not in changed.values():
        return None
    return PatchNode(
        node.ref,
        annotations=changed,
        expect_labels={key: node.labels.get(key) for key in sorted(policy.read)},
        expect_annotations={key: node.annotations.get(key) for key in changed},
        why="upgrades are not automatic any more",
    )


def _keep(node: NodeView, loss: Loss) -> PatchNode | None:
    """Leave a node's operands, and remember on it since when it lacks its labels, so that a restart begins no new grace."""
    since = format_time(loss.since) if loss.since is not None else None
    current = node.annotations.get(names.DISCOVERY_LOST)
    if current == since:
        return None
    return PatchNode(
        node.ref,
        annotations={names.DISCOVERY_LOST: since},
        expect_annotations={names.DISCOVERY_LOST: current},
        has_annotations=node.has_annotations,
        why="discovery sees no GPU" if since else "discovery is out",
    )


def _patch(
    node: NodeView, workload: Workload, pods: Sequence[PodView], rules: _Rules, *, kept: bool = False
) -> PatchNode | None:
    """Return the change of a node's labels and annotations; its operands stay as they are where they are `kept`."""
    policy, drivers = rules.policy, rules.drivers
    present = has_gpu(node)
    wanted: dict[str, str | None] = {}
    if present != node.gpu_present and (present or names.GPU_PRESENT in node.labels):
        wanted[names.GPU_PRESENT] = "true" if present else "false"
    if not present:
        wanted |= _removed(node, KNOWN)
    elif not kept:
        wanted |= _operands(node, policy, workload, rules.later(node, pods), managed=drivers.is_starting(pods))
    elif node.record is not None and node.record.changing:
        wanted |= {key: "true" for key in policy.operand_labels(workload_of(node.labels) or workload)
                   if key in names.OFFERED_BY and not node.labels.get(key)}
    if present:
        wanted |= _mig_config(node, pods, rules)
        wanted |= drivers.of(node, {**node.labels, **wanted}, pods)
    changed = {key: value for key, value in wanted.items() if node.labels.get(key) != value}
    annotations = _annotations(node, policy, present, wanted.get(names.DRIVER_OWNER, node.labels.get(names.DRIVER_OWNER)),
                               starting=drivers.is_replaced(pods))
    if names.DISCOVERY_LOST in node.annotations:
        annotations[names.DISCOVERY_LOST] = None
    if not changed and not annotations:
        return None
    concerns = _concerns_driver(node, changed)
    return PatchNode(
        node.ref,
        labels=changed,
        annotations=annotations,
        expect_labels={key: node.labels.get(key) for key in sorted({*changed, *policy.read})},
        has_annotations=node.has_annotations,
        known_pods={pod.uid: owner_uid(pod) for pod in pods} if concerns else None,
        drivers=drivers.coming(node, changed) if concerns else None,
        why="the node has GPUs" if present else "the node has no GPUs",
    )


def _concerns_driver(node: NodeView, changed: Iterable[str]) -> bool:
    """Tell whether a driver pod may go by a change of these labels, or come where a driver may be loaded already."""
    labels = (key for key in changed if key in names.PLACED_BY or key in HOST_DRIVERS)
    return any(key in node.labels or bool(loaded_last(node)) for key in labels)


def _operands(
    node: NodeView, policy: LabelPolicy, workload: Workload, later: frozenset[str], *, managed: bool
) -> Mapping[str, str | None]:
    """Return the operand labels to set and to remove; a value that somebody else chose is left alone.

    While a driver starts, labels without a value are `managed`: the driver manager writes one for each operand each time that it
    begins, and they turn nothing on.
    """
    if node.labels.get(names.DEPLOY_OPERANDS) == "false":
        return _removed(node, KNOWN)
    effective = policy.operand_labels(workload) - later
    for_containers = workload is Workload.CONTAINER
    spared = {MIG_MANAGER} if for_containers else frozenset()
    others = KNOWN - effective - spared
    labels: dict[str, str | None] = dict(_removed(node, (key for key in others if node.labels.get(key) or not managed)))
    labels |= {key: "true" for key in effective if not node.labels.get(key)}
    if for_containers and mig_capable(node) and MIG_MANAGER not in node.labels:
        labels[MIG_MANAGER] = "true"
    return labels


def _removed(node: NodeView, keys: Iterable[str]) -> dict[str, str | None]:
    return {key: None for key in keys if key in node.labels}


def mig_capable(node: NodeView) -> bool:
    """Tell whether a node's GPUs can be partitioned: by the discovery label, or by the product's name."""
    if node.labels.get(names.VGPU_HOST_DRIVER):
        return False
    if (capable := node.labels.get(names.MIG_CAPABLE)) is not None:
        return capable == "true"
    product = node.labels.get(names.GPU_PRODUCT, "").lower()
    return any(name in product for name in MIG_PRODUCTS)


def _mig_config(node: NodeView, pods: Sequence[PodView], rules: _Rules) -> dict[str, str | None]:
    """Return the layout of nodes for which nobody has chosen one. The MIG manager applies it at once, and takes away the MIG
    devices of pods in which nothing runs just then: so it comes once no pod uses the GPUs.
    """
    default = rules.policy.default_mig_config
    if not default or node.labels.get(names.MIG_CONFIG) or not mig_capable(node) or rules.workloads.users(node, pods):
        return {}
    return {names.MIG_CONFIG: default}


def _annotations(
    node: NodeView, policy: LabelPolicy, present: bool, owner: str | None, *, starting: bool
) -> dict[str, str | None]:
    """Return the change of the annotation by which the driver manager knows that the node is emptied for it. One that is about
    to start has to do that itself: upgrades were not automatic when its pod came.
    """
    current = node.annotations.get(names.UPGRADE_ENABLED)
    wanted = policy.driver_upgrades
    if policy.claims is not None and not policy.sandbox_workloads:
        claim = claim_of(policy.claims, owner)
        if claim is None:
            return {}
        wanted = claim.auto_upgrade
    enabled = "true" if wanted and present else None
    return {} if current == enabled or (enabled and starting) else {names.UPGRADE_ENABLED: enabled}
