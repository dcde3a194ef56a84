"""The ClusterPolicy controller: brings the operands about and reports on them in the policy's status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import structlog

from gpuward import names
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.statuses import StatusWriter, lacking, waiting_states
from gpuward.controllers.surroundings import Surroundings
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.errors import PolicyError
from gpuward.labels.discovery import has_gpu
from gpuward.labels.policy import label_settings
from gpuward.model.actions import Action, DeleteObject, PatchAnnotations, PatchStatus
from gpuward.model.placement import Placing, placed_nodes
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PolicyView
from gpuward.operands.changes import Prepared, changes, is_applied, prepare
from gpuward.operands.cluster import cluster_facts
from gpuward.operands.driver_kernels import left_daemon_sets, removal, stale_driver_daemon_sets
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.nvidiadriver_status import NOT_FOLLOWED
from gpuward.operands.render import render
from gpuward.operands.rollout import held_up, rollout_of
from gpuward.operands.state import OperandState
from gpuward.operands.status import Verdict, failed, invalid, judged
from gpuward.policy.clusterpolicy import ActivePolicy, PolicyReader
from gpuward.policy.kept import remember
from gpuward.ports import Outcome
from gpuward.upgrade.unmanaged import driver_daemonsets

IGNORED = "ignored"
DRIVERS = "NVIDIADriver"
DRIVER_STATE = "state-driver"


class Reconciliation(msgspec.Struct, frozen=True):
    """Hold what one pass over the policies decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None
    verdict: Verdict | None = None
    waiting: Mapping[str, str] = {}
    """What each state that is not ready waits for."""


class ClusterPolicyController:
    """Keep the cluster's GPU stack as the active ClusterPolicy describes it."""

    name = "controllers.ClusterPolicy"

    def __init__(self, reader: PolicyReader, surroundings: Surroundings, images: Mapping[str, str], metrics: Metrics) -> None:
        self._reader = reader
        self._surroundings = surroundings
        self._images = images
        self._metrics = metrics
        self._log = structlog.get_logger(source=self.name)
        self._rendered: tuple[tuple[str, int, ClusterFacts], tuple[OperandState, ...], tuple[Prepared, ...]] | None = None
        self._said = ""
        self._statuses = StatusWriter("ClusterPolicy")
        self._plan: Plan | None = None
        """What the upgrade controller decided last, if it ever knew a node."""
        self._now = 0.0

    def follow(self, plan: Plan) -> None:
        """Let the status say how the driver upgrade stands under a plan, from the next pass on."""
        if plan.nodes or self._plan is not None:
            self._plan = plan

    def decide(self, snapshot: Snapshot, now: float) -> Reconciliation:
        """Return the writes that the active policy needs, and the status of every policy."""
        self._now, self._statuses.wake_at = now, None
        self._statuses.rollout = rollout_of(self._plan) if self._plan is not None else None
        active = self._reader.read(snapshot)
        if active.view is None:
            return Reconciliation()
        if self._statuses.rollout is not None:
            self._statuses.rollout = msgspec.structs.replace(self._statuses.rollout, generation=active.view.generation)
        others = [view for view in snapshot.policies if not view.deleting and view.uid != active.view.uid]
        ignored = [action for view in others if (action := _ignore(view)) is not None]
        if active.valid is None:
            verdict = invalid(active.problems)
            self._hold_up("InvalidPolicy", "the ClusterPolicy is invalid")
            actions = [*ignored, *self._statuses.write(active.view, verdict, snapshot.namespace, now)]
            return Reconciliation(actions, self._statuses.wake_at, verdict)
        if not self._surroundings.known_for(active.view) or awaits_labels(snapshot):
            return Reconciliation(ignored)
        facts = self._facts(snapshot, active.valid)
        try:
            states, prepared = self._render(active, facts)
        except PolicyError as problem:
            verdict = invalid([problem])
            actions = [*ignored, *self._statuses.write(active.view, verdict, snapshot.namespace, now)]
            return Reconciliation(actions, self._statuses.wake_at, verdict)
        waiting = waiting_states(states, snapshot)
        verdict = _judge(active.valid, states, waiting, snapshot, facts)
        self._hold_up("DriverNotApplied", _not_applied(active.valid, states, prepared, snapshot))
        actions = [
            *ignored,
            *_remember(active),
            *changes(prepared, snapshot),
            *_stale(active.valid, states, active.view, snapshot),
            *self._statuses.write(active.view, verdict, snapshot.namespace, now),
        ]
        return Reconciliation(actions, self._statuses.wake_at, verdict, waiting)

    def _hold_up(self, reason: str, why: str) -> None:
        if self._statuses.rollout is not None:
            self._statuses.rollout = held_up(self._statuses.rollout, reason, why)

    def report(self, snapshot: Snapshot, decision: Reconciliation, outcomes: Sequence[Outcome]) -> None:
        """Log each write and each change of the verdict; set the metrics."""
        for outcome in outcomes:
            action = outcome.action
            if not (outcome.error or outcome.dropped or outcome.idle or isinstance(action, PatchStatus)):
                self._log.info(type(action).__name__, object=action.lane, why=action.why)
        verdict = decision.verdict
        if verdict is None and not all(view.deleting for view in snapshot.policies):
            return
        gpu_nodes = sum(node.gpu_present for node in snapshot.nodes.values())
        self._metrics.reconciled(verdict, gpu_nodes=gpu_nodes, has_nfd_labels=has_nfd_labels(snapshot), now=self._now)
        said = verdict.reason if verdict else "absent"
        if said != self._said:
            self._said = said
            log = self._log.info if verdict is None or verdict.ready else self._log.warning
            details = {"waiting": dict(decision.waiting)} if decision.waiting else {}
            log("ClusterPolicy " + (verdict.state if verdict else said), message=verdict.message if verdict else "", **details)

    def _facts(self, snapshot: Snapshot, policy: ClusterPolicy) -> ClusterFacts:
        seen, driver = self._surroundings, policy.spec.driver
        chosen = driver.is_precompiled and not driver.is_left_to_nvidia_drivers
        return cluster_facts(
            snapshot.namespace,
            placed_nodes(snapshot, Placing(precompiled=True)) if chosen else snapshot.nodes.values(),
            driver_image=_driver_image(snapshot),
            has_service_monitor_crd=seen.has_service_monitors,
            config_maps=seen.config_maps,
            secrets=seen.secrets,
        )

    def _render(self, active: ActivePolicy, facts: ClusterFacts) -> tuple[tuple[OperandState, ...], tuple[Prepared, ...]]:
        """Render once for each policy and set of facts, as most passes change neither; return the states, plain and prepared."""
        assert active.view is not None
        assert active.policy is not None
        key = (active.view.uid, active.view.generation, facts)
        if self._rendered is None or self._rendered[0] != key:
            states = render(active.policy, facts, self._images)
            self._rendered = (key, states, prepare(states, active.view.ref))
        return self._rendered[1:]


def _not_applied(
    policy: ClusterPolicy, states: Sequence[OperandState], prepared: Sequence[Prepared], snapshot: Snapshot
) -> str:
    """Say why drivers are not even on the way to what people ask for, if they are not: nodes know the DaemonSets alone."""
    if policy.spec.driver.is_left_to_nvidia_drivers:
        troubled = ((view.name, _error(view)) for view in snapshot.drivers if not view.deleting)
        return next((f"NVIDIADriver {name} is not followed: {why}" for name, why in troubled if why), "")
    error = next((state.error for state in states if state.name == DRIVER_STATE and state.error is not None), None)
    if error is not None:
        return f"{DRIVER_STATE} cannot be brought about: {error}"
    wanted = (obj for one in prepared if one.state == DRIVER_STATE for obj in one.objects if obj.key[0] == "DaemonSet")
    pending = next((obj.ref.name for obj in wanted if not is_applied(obj, snapshot)), "")
    if pending:
        return f"DaemonSet {pending} is not applied yet"
    unseen = next((ds.name for ds in driver_daemonsets(snapshot) if not ds.settled), "")
    return f"DaemonSet {unseen} is not taken up by its controller yet" if unseen else ""


def _error(view: PolicyView) -> str:
    """Return why an NVIDIADriver is not followed, as its status says."""
    conditions = (view.body.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one.get("type") == "Error" and one.get("status") == "True")
    return next((str(one.get("message")) for one in found if one.get("reason") in NOT_FOLLOWED), "")


def _ignore(view: PolicyView) -> Action | None:
    if (view.body.get("status") or {}).get("state") == IGNORED:
        return None
    return PatchStatus("ClusterPolicy", view.ref, {"state": IGNORED}, why="an older ClusterPolicy is in force")


def _driver_image(snapshot: Snapshot) -> str:
    """Return the image of the driver DaemonSet as it is: its operating system stays while any GPU node has it."""
    return next((ds.image for ds in snapshot.daemonsets if ds.name == names.DRIVER_APP), "")


def _stale(policy: ClusterPolicy, states: Sequence[OperandState], view: PolicyView, snapshot: Snapshot) -> list[Action]:
    """Delete the driver DaemonSets of kernels that no node runs any more, and of a mode that was switched off.

    Where drivers are left to NVIDIADrivers, or are precompiled now and were not before, or the other way round, the pods run on,
    owned by nobody, until the upgrade replaces them node by node.
    """
    owned = [ds for ds in snapshot.daemonsets if ds.owner is not None and ds.owner.uid == view.uid and not ds.deleting]
    if policy.spec.driver.is_left_to_nvidia_drivers:
        why = "drivers are left to NVIDIADrivers"
        known = DRIVERS not in snapshot.unlisted
        return [action for ds in left_daemon_sets(owned) if known for action in removal(ds, owned, snapshot, why)]
    why = "the policy makes other driver DaemonSets now"
    stale = [ds for state in states if state.name == "state-driver" for ds in stale_driver_daemon_sets(state, owned)]
    return [
        action for ds in stale
        for action in (removal(ds, owned, snapshot, why) if ds.desired or ds.misscheduled
                       else [DeleteObject("DaemonSet", ds.ref, why=why)])
    ]


def _remember(active: ActivePolicy) -> list[Action]:
    """Keep valid settings on the object: an invalid edit must not change them for nodes in progress, nor for nodes that join."""
    assert active.view is not None
    assert active.policy is not None
    annotations = active.view.body.get("metadata", {}).get("annotations") or {}
    text = remember(active.upgrades, labels=label_settings(active.policy))
    if annotations.get(names.VALID_UPGRADE_POLICY) == text:
        return []
    return [PatchAnnotations("ClusterPolicy", active.view.ref, {names.VALID_UPGRADE_POLICY: text}, why="it is valid")]


def _judge(policy: ClusterPolicy, states: Sequence[OperandState], waiting: Mapping[str, str], snapshot: Snapshot,
           facts: ClusterFacts) -> Verdict:
    left = policy.spec.driver.is_left_to_nvidia_drivers
    if left and DRIVERS in snapshot.unlisted:
        return failed("state-driver", f"NVIDIADriver objects cannot be listed: {snapshot.unlisted[DRIVERS]}")
    for state in states:
        if state.error is not None:
            return failed(state.name, state.error)
        for kind in sorted({obj["kind"] for obj in state.objects} & {kind for kind, why in snapshot.unlisted.items() if why}):
            return failed(state.name, f"{kind} objects cannot be listed: {snapshot.unlisted[kind]}")
    return judged(waiting, has_nfd_labels=has_nfd_labels(snapshot), has_gpu_nodes=facts.has_gpu_nodes,
                  upgrading=left and any(map(is_upgrading, snapshot.nodes.values())),
                  lacking=lacking(states, snapshot))


def is_upgrading(node: NodeView) -> bool:
    """Tell whether an NVIDIADriver owns a node that waits to be upgraded, is under way or failed; one left alone is no matter."""
    owned = names.DRIVER_OWNER in node.labels and node.labels.get(names.UPGRADE_SKIP) != "true"
    return owned and node.upgrade_label not in ("", State.DONE)


def awaits_labels(snapshot: Snapshot) -> bool:
    """Tell whether discovery saw GPUs but no node has been labelled yet.

    For that moment no node seems to have GPUs, and a status that says `ready` would be believed by whoever waits for it.
    """
    nodes = snapshot.nodes.values()
    return any(map(has_gpu, nodes)) and not any(node.gpu_present for node in nodes)


def has_nfd_labels(snapshot: Snapshot) -> bool:
    """Tell whether node feature discovery has labelled any node."""
    return any(key.startswith(names.NFD_PREFIX) for node in snapshot.nodes.values() for key in node.labels)
