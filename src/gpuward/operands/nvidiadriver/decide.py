"""Decide what brings the drivers of every NVIDIADriver about, and what the status of each says.

What is wrong with one holds up that one: its objects stay as they are, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.model.actions import Action, DeleteObject, PatchAnnotations
from gpuward.model.placement import placed_nodes
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Ref
from gpuward.operands.changes import Prepared, changes, prepare
from gpuward.operands.cluster import cluster_facts, running_drivers
from gpuward.operands.decide import awaits_labels
from gpuward.operands.driver.pod import STARTUP_PROBE
from gpuward.operands.driver.tolerating import no_longer_tolerated, that_tolerate
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.nvidiadriver import status as verdicts
from gpuward.operands.nvidiadriver.departing import departing, departing_hosts, outliving, superseded_hosts
from gpuward.operands.nvidiadriver.owners import removals, with_owners
from gpuward.operands.nvidiadriver.pools import Pool, app_name, is_unknown, owns, pools_of
from gpuward.operands.nvidiadriver.render import NAME, render_driver, startup_probe
from gpuward.operands.nvidiadriver.takeover import Found, taking_over, there_for
from gpuward.operands.sandboxes.going import due
from gpuward.operands.state import OperandState
from gpuward.operands.status import Verdict, status_of
from gpuward.operands.statuses import Worded, lacking, refusal, status_write, unapplied, waiting_states
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.kept import KeptClaim, remember
from gpuward.policy.lastvalid import to_remember
from gpuward.policy.nvidiadrivers import PoliciesInForce

KIND: Final = "NVIDIADriver"
_Key = tuple[str, int, NVIDIADriver | None, tuple[Pool, ...], ClusterFacts, str, tuple[Ref | None, str], tuple[Found, ...]]


_FINE: Final = (verdicts.READY.reason, verdicts.WAITING.reason, verdicts.NOT_APPLIED)


class Rendered(msgspec.Struct, frozen=True):
    """Hold what one NVIDIADriver makes."""

    state: OperandState
    prepared: tuple[Prepared, ...]
    missing: tuple[Prepared, ...] = ()
    """What is made only where it is not there, as an edit is not followed."""

    @property
    def daemon_sets(self) -> list[str]:
        """Return the names of its DaemonSets in the order of the alphabet."""
        return sorted(obj["metadata"]["name"] for obj in self.state.objects if obj["kind"] == "DaemonSet")


class Driving(msgspec.Struct, frozen=True):
    """Hold what one pass over the NVIDIADrivers decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None
    verdicts: Mapping[str, Verdict] = {}
    waiting: Mapping[str, str] = {}
    """What each NVIDIADriver that is not ready waits for."""
    made: Mapping[str, frozenset[str]] = {}
    """The DaemonSets of each NVIDIADriver that can be followed."""


class DriverMemory:
    """Keep what the NVIDIADrivers were rendered to last, when words were written, and since when some are gone."""

    def __init__(self) -> None:
        self.rendered: dict[str, tuple[_Key, Rendered]] = {}
        self.worded = Worded()
        self.gone_since: dict[str, float] = {}
        """When each DaemonSet was seen first to be one whose drivers are to go with their NVIDIADriver, by its uid."""


def decide_drivers(snapshot: Snapshot, policies: PoliciesInForce, images: Mapping[str, str], now: float,
                   memory: DriverMemory) -> Driving:
    """Return the writes that the NVIDIADrivers need, and the status of each, while the ClusterPolicy leaves drivers to them."""
    driving = _decided(snapshot, policies, images, now, memory)
    hosts = departing_hosts(snapshot, driving.made, now, placed=policies.in_force) if policies.policy.valid is not None else ()
    gone = removals(snapshot, memory.gone_since, now)
    wakes = [at for at in (driving.wake_at, due(snapshot, now), gone.wake_at) if at is not None]
    return msgspec.structs.replace(driving, actions=with_owners([*driving.actions, *hosts], snapshot, policies, gone.noted),
                                   wake_at=min(wakes, default=None))


def _decided(snapshot: Snapshot, policies: PoliciesInForce, images: Mapping[str, str], now: float,
             memory: DriverMemory) -> Driving:
    policy = policies.policy
    if policy.view is not None and policy.valid is None:
        return Driving(_missing(policies.active, policies, snapshot, images, memory) if policies.in_force else ())
    if not policies.active:
        return Driving(departing(snapshot, at_once=policy.upgrades.rollout.remove_at_once) if policies.gone else ())
    if not policies.in_force:
        off = policies.policy.switched_off
        found = {each.view.name: verdicts.disabled(_running(each, snapshot), off=off) for each in policies.active}
        return _told(Driving(verdicts=found), policies, now, memory)
    if policy.valid is not None and awaits_labels(snapshot):
        return Driving()
    found = {each.view.name: verdict for each in policies.active if (verdict := _refusal(each, policies)) is not None}
    able = [each for each in policies.active if each.view.name not in found and snapshot.references.known_for(each.view)]
    nodes = placed_nodes(snapshot, policies.placing)
    at_once = policy.upgrades.rollout.remove_at_once
    rendered = {each.view.name: _tolerating(_render(each, policies, snapshot, nodes, images, memory), snapshot, at_once=at_once)
                for each in able}
    for each in (each for each in policies.active if _is_in_conflict_alone(each, policies, snapshot)):
        beside = _render(each, policies, snapshot, nodes, images, memory).state.error
        found[each.view.name] = verdicts.and_failed(found[each.view.name], NAME, beside)
    made = {name: frozenset(one.daemon_sets) for name, one in rendered.items() if one.state.error is None}
    for name, host in superseded_hosts(snapshot, made).items():
        found[name] = verdicts.behind_machines(host)
        del rendered[name]
    waiting: dict[str, str] = {}
    shared = tuple(_probe(policies, rendered, snapshot))
    for name, one in rendered.items():
        waits = waiting_states([one.state], snapshot, one.prepared)
        if waits:
            waiting[name] = "; ".join(waits.values())
        error = one.state.error or refusal([*shared, *one.prepared], snapshot)
        lacks = lacking([one.state], snapshot)
        behind = unapplied(one.prepared, snapshot)
        found[name] = verdicts.judged(waits, lacks, behind) if not error else verdicts.failed(one.state.name, error)
    if policy.view is None:
        found |= {name: verdicts.alone(policy.upgrades.absent) for name in rendered if found[name].reason in _FINE}
    refused = [each for each in policies.active if each.problems or each.view.name in policies.conflicts]
    actions = [*_changes(policies, rendered, made, snapshot, nodes), *_missing(refused, policies, snapshot, images, memory)]
    return _told(Driving(actions, None, found, waiting, made), policies, now, memory)


def _missing(drivers: Iterable[ActiveDriver], policies: PoliciesInForce, snapshot: Snapshot, images: Mapping[str, str],
             memory: DriverMemory) -> Sequence[Action]:
    """Make what nodes that join need and is not there, as the last valid versions ask for it.

    While it is not settled whose nodes these are no DaemonSet is made for them; but drivers that run there, be it those of an
    earlier NVIDIADriver of the name, need an account to come up again.
    """
    able = [each for each in drivers if each.followed is not None and snapshot.references.known_for(each.view)]
    policy = policies.policy
    if not able or (policy.view is not None and policy.followed is None) or awaits_labels(snapshot):
        return ()
    nodes = placed_nodes(snapshot, policies.placing)
    rendered = {each.view.name: _render(each, policies, snapshot, nodes, images, memory) for each in able}
    needed = [_without_daemon_sets(one) if name in policies.conflicts else one
              for name, made in rendered.items() for one in made.prepared]
    prepared = [*_probe(policies, rendered, snapshot), *needed]
    return changes(prepared, snapshot, frozenset(each.view.uid for each in able if each.claim.auto_upgrade), only_missing=True)


def _without_daemon_sets(prepared: Prepared) -> Prepared:
    return msgspec.structs.replace(prepared, objects=tuple(obj for obj in prepared.objects if obj.key[0] != "DaemonSet"))


def _running(each: ActiveDriver, snapshot: Snapshot) -> int:
    """Return how many driver pods an NVIDIADriver still has, followed or not."""
    own = (ds for ds in snapshot.daemonsets if ds.is_owned_by(each.view.uid) and not ds.deleting)
    return sum(ds.available for ds in own)


def _told(driving: Driving, policies: PoliciesInForce, now: float, memory: DriverMemory) -> Driving:
    """Add the statuses; the namespace is not said in them, as NVIDIA's operator does not."""
    views = {each.view.name: each.view for each in policies.active}
    writes = [
        status_write(view, KIND, verdict, wanted, now, memory.worded)
        for name, verdict in driving.verdicts.items() for view in (views[name],)
        for wanted in (status_of(verdict, view.body.get("status") or {}, "", now, generation=view.generation),)
    ]
    return msgspec.structs.replace(
        driving,
        actions=[*driving.actions, *(action for write in writes for action in write.actions)],
        wake_at=min((write.wake_at for write in writes if write.wake_at is not None), default=None),
    )


def _render(each: ActiveDriver, policies: PoliciesInForce, snapshot: Snapshot, nodes: Sequence[NodeView],
            images: Mapping[str, str], memory: DriverMemory) -> Rendered:
    """Render once for each version, pools and facts, as most passes change none of them."""
    driver = each.followed
    assert driver is not None
    policy = policies.policy.followed
    pools = pools_of(driver, nodes)
    running = running_drivers(snapshot, made=(app_name(driver, pool) for pool in pools))
    facts = cluster_facts(snapshot.namespace, nodes, snapshot.references, running=running)
    root = policy.spec.host_paths.root_fs if policy is not None else "/"
    outlives, there = _outlives(each, policies), there_for(each.view, snapshot)
    key = (each.view.uid, each.view.generation, each.last, pools, facts, root, outlives, there)
    known = memory.rendered.get(each.view.name)
    if known is None or known[0] != key:
        state = taking_over(render_driver(driver, pools, facts, images, root), there)
        known = (key, Rendered(state, prepare([outliving(state, *outlives)], each.view.ref, KIND)))
        memory.rendered[each.view.name] = known
    return known[1]


def _tolerating(made: Rendered, snapshot: Snapshot, *, at_once: bool) -> Rendered:
    """Return what is rendered, or what is wrong with it where it would take drivers from under pods by a taint."""
    problem = None if at_once else no_longer_tolerated(made.prepared, snapshot, "spec.tolerations")
    if problem is None:
        return made
    return Rendered(OperandState(NAME, enabled=True, error=problem), (), tuple(that_tolerate(made.prepared, snapshot)))


def _outlives(each: ActiveDriver, policies: PoliciesInForce) -> tuple[Ref | None, str]:
    """Return by what its drivers outlive an NVIDIADriver: an owner beside it, and its upgrade policy."""
    view = policies.policy.view
    hosts = each.followed is not None and each.followed.spec.is_for_hosts
    if view is None or (policies.policy.upgrades.rollout.remove_at_once and not hosts):
        return None, ""
    return view.ref, remember(each.upgrades)


def _changes(policies: PoliciesInForce, rendered: Mapping[str, Rendered], made: Mapping[str, frozenset[str]],
             snapshot: Snapshot, nodes: Sequence[NodeView]) -> list[Action]:
    probe = _probe(policies, rendered, snapshot)
    prepared = [*probe, *(one for made in rendered.values() for one in made.prepared)]
    actions = [action for each in policies.active for action in _remember(each)]
    emptying = frozenset(each.view.uid for each in policies.active if each.claim.auto_upgrade)
    actions += changes(prepared, snapshot, emptying)
    actions += changes([one for made in rendered.values() for one in made.missing], snapshot, emptying, only_missing=True)
    actions += departing(snapshot, made, at_once=policies.policy.upgrades.rollout.remove_at_once)
    for each in policies.active:
        if each.view.name in rendered and rendered[each.view.name].state.error is None:
            actions += _stale(each, rendered[each.view.name], snapshot, nodes)
    return actions


def _refusal(each: ActiveDriver, drivers: PoliciesInForce) -> Verdict | None:
    """Return the verdict on an NVIDIADriver that cannot be followed, whatever its objects are."""
    if conflict := drivers.conflicts.get(each.view.name):
        return verdicts.conflicting(str(conflict), node=conflict.node, more="; ".join(map(str, each.problems)))
    overlap = drivers.overlaps.get(each.view.name, "")
    return verdicts.refused((*each.problems, *filter(None, [overlap])), misplaced=each.is_misplaced) if each.problems else None


def _is_in_conflict_alone(each: ActiveDriver, policies: PoliciesInForce, snapshot: Snapshot) -> bool:
    """Tell whether others are in the way of an NVIDIADriver, and nothing else is wrong with it that is known so far."""
    return each.view.name in policies.conflicts and each.valid is not None and snapshot.references.known_for(each.view)


def _probe(drivers: PoliciesInForce, rendered: Mapping[str, Rendered], snapshot: Snapshot) -> Iterable[Prepared]:
    """Return the ConfigMap that all driver pods mount. It belongs to every NVIDIADriver that has a DaemonSet, wanted or there."""
    by_name = sorted(snapshot.daemonsets, key=lambda ds: ds.name, reverse=True)
    there = {ds.owner.uid: ds.name for ds in by_name if ds.owner is not None and ds.owner.kind == KIND}
    made = {name: next(iter(one.daemon_sets), "") for name, one in rendered.items()}
    sets = [(each, made.get(each.view.name) or there.get(each.view.uid, "")) for each in drivers.active]
    owners = [(each.driver, name) for each, name in sets if name and each.driver is not None]
    if not owners:
        return ()
    first = next(each for each, name in sets if name and each.driver is not None)
    state = OperandState(NAME, enabled=True, objects=(startup_probe(snapshot.namespace, owners),))
    return prepare([state], first.view.ref, KIND)


def _stale(each: ActiveDriver, made: Rendered, snapshot: Snapshot, nodes: Sequence[NodeView]) -> list[Action]:
    """Delete what an NVIDIADriver owns and does not make any more; nothing while discovery does not say what its nodes run, nor
    while driver pods use it: labels may be edited for a moment, and no driver goes by that.
    """
    assert each.driver is not None
    driver, precompiled = each.driver, each.driver.spec.is_precompiled
    if any(owns(driver, node) and is_unknown(node, precompiled=precompiled) for node in nodes):
        return []
    wanted = {obj.key for prepared in made.prepared for obj in prepared.objects} | {
        ("ConfigMap", snapshot.namespace, STARTUP_PROBE)}
    stale = [owned for key, owned in sorted(snapshot.owned.items())
             if owned.owner_uid == each.view.uid and key not in wanted and not owned.deleting]
    gone = {owned.uid for owned in stale if owned.kind == "DaemonSet"}
    if any(pod.owner is not None and pod.owner.uid in gone for pods in snapshot.pods.values() for pod in pods if pod.node):
        return []
    why = f"no node pool of {each.view.name} needs it"
    return [DeleteObject(owned.kind, Ref(owned.namespace, owned.name, owned.uid), orphan=owned.uid in gone,
                         if_empty=owned.uid in gone, why=why) for owned in stale]


def _remember(each: ActiveDriver) -> list[Action]:
    """Keep valid settings on the object: an invalid edit must not change them for nodes in progress, nor for nodes that join."""
    if each.problems:
        return []
    claim = KeptClaim(each.claim.selector, each.claim.default, each.claim.driver_type)
    changed = to_remember(each.view.body, remember(each.upgrades, claim=claim))
    return [PatchAnnotations(KIND, each.view.ref, changed, why="what it says is valid, and is kept")] if changed else []
