"""Decide what brings the operands about as the ClusterPolicy describes them, and what its status says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.errors import PolicyError
from gpuward.labels.discovery import has_gpu
from gpuward.labels.policy import label_settings
from gpuward.model.actions import Action, DeleteObject, PatchAnnotations, PatchStatus
from gpuward.model.driver import driver_daemonsets
from gpuward.model.placement import Placing, placed_nodes
from gpuward.model.rights import missing_rights
from gpuward.model.snapshot import Snapshot, Untaken
from gpuward.model.states import AT_REST
from gpuward.model.views import NodeView, PolicyView
from gpuward.model.workloads import Workload, Workloads
from gpuward.operands.applied import not_applied
from gpuward.operands.changes import Prepared, changes, prepare
from gpuward.operands.cluster import cluster_facts, running_drivers
from gpuward.operands.driver.kernels import homeless, is_left_behind, left_daemon_sets, removal, stale_driver_daemon_sets
from gpuward.operands.driver.switched_off import switched_off, while_needed
from gpuward.operands.driver.tolerating import no_longer_tolerated, that_tolerate
from gpuward.operands.driver.unwanted import ending
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.nvidiadriver.status import NOT_APPLIED
from gpuward.operands.pod_security import labelled, not_labelled
from gpuward.operands.render import render
from gpuward.operands.rollout import Rollout, beside, held_up, unchecked, without_drivers
from gpuward.operands.sandboxes.going import due
from gpuward.operands.sandboxes.handing_over import behind_hosts, hand_over, waits_for_hosts
from gpuward.operands.sandboxes.host_by_host import by_host, replacements, told_of_hosts
from gpuward.operands.sandboxes.in_use import spare_drivers_in_use
from gpuward.operands.sandboxes.resetting import behind_machines, waits_for_machines
from gpuward.operands.state import OperandState
from gpuward.operands.status import Verdict, failed, invalid, judged, status_of
from gpuward.operands.statuses import Worded, lacking, refusal, status_write, waiting_states
from gpuward.operands.unmounted import named_by, unmounted
from gpuward.operands.unnoted import unnoted
from gpuward.operands.yet_to_go import kept, refused_to_go, yet_to_go
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.kept import remember
from gpuward.policy.lastrollout import rollout_to_remember
from gpuward.policy.lastvalid import to_remember
from gpuward.policy.unmade import NOT_FOLLOWED

IGNORED = "ignored"
KIND = "ClusterPolicy"
DRIVERS = "NVIDIADriver"
DRIVER_STATE = "state-driver"
_NOT_FOLLOWED = ("InvalidPolicy", "the ClusterPolicy is invalid")
_Key = tuple[str, int, ClusterPolicy | None, ClusterFacts]


class Reconciliation(msgspec.Struct, frozen=True):
    """Hold what one pass over the policies decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None
    verdict: Verdict | None = None
    waiting: Mapping[str, str] = {}
    """What each state that is not ready waits for."""
    rights: str = ""
    """Which rights are missing that gpuward can do without."""
    held: tuple[str, str] = ("", "")
    """Why nodes are not even upgraded to the driver that people ask for: the reason of the condition, and what is said."""


class OperandMemory:
    """Keep what a policy was rendered to last, and when words were written: it saves work and paces writes."""

    def __init__(self) -> None:
        self.rendered: tuple[_Key, tuple[OperandState, ...], tuple[Prepared, ...]] | None = None
        self.worded = Worded()


def decide(snapshot: Snapshot, active: ActivePolicy, rollout: Rollout | None, images: Mapping[str, str], now: float,
           memory: OperandMemory) -> Reconciliation:
    """Return the writes that the active policy needs, and the status of every policy.

    While it is not known how the driver upgrade stands (`rollout`), the condition of it stays as it is. `images` are variables
    that name images: DRIVER_MANAGER_IMAGE, VALIDATOR_IMAGE, ...
    """
    view, rights = active.view, missing_rights(active.rollout.lacks(snapshot), snapshot.namespace)
    if view is None:
        return Reconciliation(rights=rights)
    others = [other for other in snapshot.policies if not other.deleting and other.uid != view.uid]
    ignored = [action for other in others if (action := _ignore(other)) is not None]
    if rollout is not None:
        rollout = msgspec.structs.replace(rollout, generation=view.generation)
        rollout = without_drivers(rollout, snapshot) if active.switched_off else rollout

    def told(verdict: Verdict, rollout: Rollout | None, actions: Sequence[Action] = (), waiting: Mapping[str, str] = {},
             held: tuple[str, str] = ("", "")) -> Reconciliation:
        verdict = msgspec.structs.replace(verdict, rights=rights)
        rollout = None if rollout is None else held_up(rollout, *held)
        wanted = status_of(verdict, view.body.get("status") or {}, snapshot.namespace, now, rollout)
        write = status_write(view, KIND, verdict, wanted, now, memory.worded)
        wakes = [at for at in (write.wake_at, due(snapshot, now)) if at is not None]
        return Reconciliation([*ignored, *actions, *write.actions], min(wakes, default=None), verdict, waiting, rights, held)

    if active.valid is None:
        made = [*_annotated(view, rollout_to_remember(view.body, active.rollout)), *_missing(active, snapshot, images, memory),
                *ending(snapshot)]
        return told(invalid(active.problems), rollout, made, held=_NOT_FOLLOWED)
    if why := _unlabelled(snapshot):
        return told(failed("node labels", why), rollout)
    if not snapshot.references.known_for(view) or awaits_labels(snapshot):
        return Reconciliation(ignored, rights=rights)
    facts = _facts(snapshot, active.valid)
    try:
        states, prepared = _render(active, active.valid, facts, images, memory)
    except PolicyError as problem:
        return told(invalid([problem]), rollout, held=_NOT_FOLLOWED)
    at_once = active.upgrades.rollout.remove_at_once
    if not at_once and (lacking_one := no_longer_tolerated(prepared, snapshot, "spec.daemonsets.tolerations")) is not None:
        missing = _only_missing(active.valid, view, that_tolerate(prepared, snapshot), snapshot)
        return told(invalid([lacking_one]), rollout, missing, held=_NOT_FOLLOWED)
    left = active.valid.spec.driver.is_left_to_nvidia_drivers
    rendered, prepared = prepared, by_host(prepared, snapshot)
    waiting = (waiting_states(states, snapshot, prepared) | told_of_hosts(rendered, snapshot)
               | waits_for_hosts(states, snapshot) | waits_for_machines(states, snapshot))
    behind = not_applied(active.valid, states, prepared, snapshot)
    emptying = frozenset({view.uid} if active.valid.spec.driver.is_upgraded else ())
    gone = _stale(active.valid, states, view, snapshot, at_once=at_once)
    gone += _taken_back(active.valid, snapshot) if not behind else []
    stays = refused_to_go(gone, snapshot)
    verdict = _judge(active, states, prepared, waiting, snapshot, facts)
    verdict = failed(DRIVER_STATE, stays) if stays and verdict.reason != NOT_FOLLOWED else verdict
    wanted = while_needed(prepared, snapshot, left=left) if left or (active.switched_off and not at_once) else prepared
    writes = [*_remember(active), *labelled(active.valid, snapshot),
              *hand_over(spare_drivers_in_use(behind_machines(changes(wanted, snapshot, emptying), snapshot), snapshot, now),
                         states, snapshot, now, left=left),
              *replacements(rendered, snapshot, now), *gone, *homeless(snapshot), *ending(snapshot)]
    behind = stays or behind or yet_to_go(gone, snapshot)
    if rollout is not None:
        rollout = unchecked(rollout, snapshot.images)
        rollout = rollout if (left_over := kept(snapshot)) in behind else beside(rollout, left_over)
        rollout = beside(rollout, unnoted(snapshot))
    return told(verdict, rollout, writes, waiting, (NOT_APPLIED, behind))


def _facts(snapshot: Snapshot, policy: ClusterPolicy) -> ClusterFacts:
    driver, sandboxes = policy.spec.driver, policy.spec.sandbox_workloads
    chosen = driver.is_precompiled and not driver.is_left_to_nvidia_drivers
    workloads = Workloads(sandboxes.is_enabled, Workload(sandboxes.default_workload))
    left = driver.is_enabled and not (chosen or driver.is_left_to_nvidia_drivers)
    nodes = placed_nodes(snapshot, Placing(precompiled=True)) if chosen else snapshot.nodes.values()
    return cluster_facts(snapshot.namespace, nodes, snapshot.references,
                         running=running_drivers(snapshot, workloads, left=left, hosts_left=policy.spec.has_vgpu_manager,
                                                 made=(names.DRIVER_APP,) if left else ()), workloads=workloads)


def _missing(active: ActivePolicy, snapshot: Snapshot, images: Mapping[str, str], memory: OperandMemory) -> Sequence[Action]:
    """Make what nodes that join need and is not there, as the last valid version of the policy asks for it."""
    assert active.view is not None
    if active.last is None or not snapshot.references.known_for(active.view) or awaits_labels(snapshot):
        return ()
    try:
        _, prepared = _render(active, active.last, _facts(snapshot, active.last), images, memory)
    except PolicyError:
        return ()
    return _only_missing(active.last, active.view, prepared, snapshot)


def _only_missing(policy: ClusterPolicy, view: PolicyView, prepared: Sequence[Prepared], snapshot: Snapshot) -> list[Action]:
    emptying = frozenset({view.uid} if policy.spec.driver.is_upgraded else ())
    missing = changes(by_host(prepared, snapshot), snapshot, emptying, only_missing=True)
    return behind_machines(behind_hosts(missing, snapshot), snapshot)


def _render(active: ActivePolicy, policy: ClusterPolicy, facts: ClusterFacts, images: Mapping[str, str], memory: OperandMemory
            ) -> tuple[tuple[OperandState, ...], tuple[Prepared, ...]]:
    """Render once for each policy and set of facts, as most passes change neither; return the states, plain and prepared."""
    assert active.view is not None
    key = (active.view.uid, active.view.generation, active.last, facts)
    if memory.rendered is None or memory.rendered[0] != key:
        states = render(policy, facts, images)
        memory.rendered = (key, states, prepare(states, active.view.ref))
    return memory.rendered[1:]


def _ignore(view: PolicyView) -> Action | None:
    if (view.body.get("status") or {}).get("state") == IGNORED:
        return None
    return PatchStatus(KIND, view.ref, {"state": IGNORED}, why="an older ClusterPolicy is in force")


def _stale(policy: ClusterPolicy, states: Sequence[OperandState], view: PolicyView, snapshot: Snapshot, *,
           at_once: bool) -> list[Action]:
    """Delete the driver DaemonSets of kernels that no node runs any more, and of a mode that was switched off.

    Where drivers are left to NVIDIADrivers, or are precompiled now and were not before, or the other way round, the pods run on,
    owned by nobody, until the upgrade replaces them node by node; or ends them, where drivers are switched off. DaemonSets that
    an earlier ClusterPolicy left behind go in the same way: nobody would ever change them, and no other driver would get to their
    nodes.
    """
    owned = [ds for ds in snapshot.daemonsets if not ds.deleting and (
        ds.is_owned_by(view.uid) or is_left_behind(ds, snapshot.namespace))]
    if policy.spec.driver.is_left_to_nvidia_drivers:
        why = "drivers are left to NVIDIADrivers"
        known = DRIVERS not in snapshot.unlisted
        hosts = [DeleteObject("DaemonSet", ds.ref, orphan=True, why=why) for ds in owned if ds.name == names.VGPU_MANAGER_APP]
        gone = [action for ds in left_daemon_sets(owned) for action in removal(ds, owned, snapshot, why)]
        return [*gone, *hosts] if known else []
    if not policy.spec.driver.is_enabled:
        return switched_off(view.uid, snapshot, at_once=at_once)
    why = "the policy makes other driver DaemonSets now"
    stale = [ds for state in states if state.name == DRIVER_STATE for ds in stale_driver_daemon_sets(state, owned)]
    coming = [obj for state in states if state.name == DRIVER_STATE for obj in state.objects if obj["kind"] == "DaemonSet"]
    return [
        action for ds in stale
        for action in removal(ds, owned, snapshot, why, coming)
    ]


def _taken_back(policy: ClusterPolicy, snapshot: Snapshot) -> list[Action]:
    """Delete the driver DaemonSets of NVIDIADrivers, without their pods, where drivers are the ClusterPolicy's again.

    Their NVIDIADrivers may stay, and take their nodes back when they are followed again. Else no pod of the ClusterPolicy's
    DaemonSets would get to these nodes; the upgrade replaces the pods that run on node by node. Where there are none of the
    ClusterPolicy's, as drivers are switched off, they stay until their NVIDIADriver is deleted, as with NVIDIA's operator.
    """
    if policy.spec.driver.is_left_to_nvidia_drivers or not policy.spec.driver.is_enabled:
        return []
    return [
        DeleteObject("DaemonSet", ds.ref, orphan=True, why="drivers are the ClusterPolicy's again")
        for ds in driver_daemonsets(snapshot)
        if names.DRIVER_OWNER in ds.node_selector and not ds.deleting and (ds.owner is None or ds.owner.kind == DRIVERS)
    ]


def _remember(active: ActivePolicy) -> list[Action]:
    """Keep valid settings on the object: an invalid edit must not change them for nodes in progress, nor for nodes that join."""
    assert active.view is not None
    assert active.policy is not None
    changed = to_remember(active.view.body, remember(active.upgrades, labels=label_settings(active.policy)))
    changed |= rollout_to_remember(active.view.body, active.rollout)
    return _annotated(active.view, changed)


def _annotated(view: PolicyView, changed: Mapping[str, str | None]) -> list[Action]:
    return [PatchAnnotations(KIND, view.ref, changed, why="what it says is valid, and is kept")] if changed else []


def _judge(active: ActivePolicy, states: Sequence[OperandState], prepared: Sequence[Prepared], waiting: Mapping[str, str],
           snapshot: Snapshot, facts: ClusterFacts) -> Verdict:
    left = active.valid is not None and active.valid.spec.driver.is_left_to_nvidia_drivers
    if left and DRIVERS in snapshot.unlisted:
        return failed("state-driver", f"NVIDIADriver objects cannot be listed: {snapshot.unlisted[DRIVERS]}")
    for state in states:
        if state.error is not None:
            return failed(state.name, state.error)
        for kind in sorted({obj["kind"] for obj in state.objects} & {kind for kind, why in snapshot.unlisted.items() if why}):
            return failed(state.name, f"{kind} objects cannot be listed: {snapshot.unlisted[kind]}")
    if why := not_labelled(active.valid, snapshot) if active.valid is not None else "":
        return failed("spec.psa.enabled", why)
    for one in prepared:
        if why := refusal([one], snapshot):
            return failed(one.state, why)
    return judged(waiting, has_nfd_labels=has_nfd_labels(snapshot), has_gpu_nodes=facts.has_gpu_nodes,
                  upgrading=left and any(map(is_upgrading, snapshot.nodes.values())),
                  lacking=[*named_by(unmounted(active, snapshot), snapshot.namespace), *lacking(states, snapshot)])


def is_upgrading(node: NodeView) -> bool:
    """Tell whether an NVIDIADriver owns a node that waits to be upgraded, is under way or failed; one left alone is no matter."""
    owned = names.DRIVER_OWNER in node.labels and node.labels.get(names.UPGRADE_SKIP) != "true"
    return owned and node.state not in AT_REST


def awaits_labels(snapshot: Snapshot) -> bool:
    """Tell whether discovery saw GPUs but no node has been labelled yet.

    For that moment no node seems to have GPUs, and a status that says `ready` would be believed by whoever waits for it.
    """
    nodes = snapshot.nodes.values()
    return any(map(has_gpu, nodes)) and not any(node.gpu_present for node in nodes)


def _unlabelled(snapshot: Snapshot) -> str:
    """Say which node may not be labelled, and why, where none with a GPU is: no operand is made then; empty otherwise."""
    if not awaits_labels(snapshot):
        return ""
    for node in sorted(filter(has_gpu, snapshot.nodes.values()), key=lambda each: each.name):
        refused = snapshot.refused_writes.get(node.uid)
        if refused is not None and refused.count >= Untaken.SURE:
            return f"node {node.name} cannot be labelled: {refused.message}"
    return ""


def has_nfd_labels(snapshot: Snapshot) -> bool:
    """Tell whether node feature discovery has labelled any node."""
    return any(key.startswith(names.NFD_PREFIX) for node in snapshot.nodes.values() for key in node.labels)
