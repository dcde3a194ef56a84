"""What of the policies in force cannot be followed as people wrote it, in the words in which people are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuward import names
from gpuward.model.departed import SOON
from gpuward.model.owners import NoOwner, OwnedBy, OwnerConflict, owner_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.unmade import why_unmade


def refusals(drivers: PoliciesInForce) -> tuple[str, ...]:
    """Return what cannot be followed: the ClusterPolicy, each NVIDIADriver while drivers are theirs, and the RolloutPolicy."""
    own = [refusal(drivers, each.view.name) for each in drivers.active] if drivers.in_force else []
    return tuple(text for text in (refusal(drivers), *own, *unfollowed_settings(drivers)) if text)


def not_followed(drivers: PoliciesInForce) -> dict[str, int]:
    """Count the policies that cannot be followed, by their kind."""
    own = [refusal(drivers, each.view.name) for each in drivers.active] if drivers.in_force else []
    return {"ClusterPolicy": int(bool(refusal(drivers))), "NVIDIADriver": sum(map(bool, own)),
            "RolloutPolicy": len(unfollowed_settings(drivers))}


def unfollowed_settings(drivers: PoliciesInForce) -> tuple[str, ...]:
    """Return why the RolloutPolicy cannot be followed; nothing if it can."""
    rollout = drivers.policy.rollout
    return (f"{rollout.title} cannot be followed: {_first(rollout.problems)}",) if rollout.problems else ()


def unlisted(drivers: PoliciesInForce, snapshot: Snapshot) -> str:
    """Say that NVIDIADrivers bring the drivers and cannot be listed; empty where they can, or where drivers are not theirs."""
    if not drivers.in_force or drivers.known:
        return ""
    why = snapshot.unlisted.get("NVIDIADriver", "")
    return f"NVIDIADrivers cannot be listed{why and ': '}{why}"


def unread_words(drivers: PoliciesInForce) -> tuple[str, ...]:
    """Return which annotations cannot be read by which people steer a rollout: they count as if they were not there."""
    policy = drivers.policy
    found = [(f"ClusterPolicy {policy.view.name}", policy.resume_problem)] if policy.view is not None else []
    if drivers.in_force:
        found += [(f"NVIDIADriver {each.view.name}", each.resume_problem) for each in drivers.active]
    return tuple(f"{title}: {problem}" for title, problem in found if problem is not None)


def problems_besides(drivers: PoliciesInForce) -> int:
    """Return how many problems there are besides those of the first policy that cannot be followed."""
    own = [len(drivers.policy.problems) or int(bool(refusal(drivers)))]
    own += [_count(each, drivers) for each in drivers.active] if drivers.in_force else []
    counts = [count for count in (*own, len(drivers.policy.rollout.problems)) if count]
    return sum(counts[1:])


def _count(each: ActiveDriver, drivers: PoliciesInForce) -> int:
    told = len(each.problems) or int(bool(why_unmade(each.view)))
    return told + (each.view.name in drivers.conflicts) + (each.view.name in drivers.overlaps)


def refusal(drivers: PoliciesInForce, driver: str = "", *, besides: int = 0) -> str:
    """Say why an NVIDIADriver, or without one the ClusterPolicy, cannot be followed, and that so many problems are `besides`;
    empty if it can.
    """
    if not driver:
        view = drivers.policy.view
        told = [*map(str, drivers.policy.problems)] or ([why_unmade(view)] if view is not None and why_unmade(view) else [])
        why = "" if view is None else _first(told, besides)
        return f"ClusterPolicy {view.name} cannot be followed: {why}" if view is not None and why else ""
    why = why_refused(drivers, driver)
    return f"NVIDIADriver {driver} cannot be followed: {why}" if why else ""


def why_refused(drivers: PoliciesInForce, driver: str) -> str:
    """Say what is wrong with an NVIDIADriver; empty where nothing is."""
    return next((_why(each, drivers) for each in drivers.active if each.view.name == driver), "")


def endings(drivers: PoliciesInForce, snapshot: Snapshot) -> tuple[str, ...]:
    """Return which NVIDIADrivers are being deleted that have nodes of their own, or leave some to nobody, and what keeps them."""
    if not drivers.going:  # it is asked in each pass
        return ()
    owners = {node.labels.get(names.DRIVER_OWNER) for node in snapshot.nodes.values()}
    left = frozenset(each.view.name for node in drivers.owners for each in left_by(node, drivers, snapshot))
    upgrades = {each.driver: each for each in drivers.upgrades if each.going}
    return tuple(f"NVIDIADriver {ending(each.view)}{becomes(upgrades[each.view.name], drivers, snapshot)}"
                 for each in drivers.going if each.view.name in owners | left)


def departures(drivers: PoliciesInForce, snapshot: Snapshot) -> tuple[str, ...]:
    """Return which NVIDIADrivers whose drivers are still there were deleted or left nodes to nobody, and what becomes of them."""
    gone = (f"NVIDIADriver {each.driver} was deleted{told}" for each in drivers.upgrades
            if each.gone and (told := becomes(each, drivers, snapshot)))
    return (*gone, *filter(None, (_deselected(each, drivers, snapshot) for each in drivers.upgrades)))


def _deselected(policy: UpgradePolicy, drivers: PoliciesInForce, snapshot: Snapshot) -> str:
    """Say of an NVIDIADriver that is there how many nodes lose its driver, as no NVIDIADriver selects them any more."""
    if not policy.driver or policy.gone or policy.going or not policy.auto_upgrade:
        return ""
    count = sum(isinstance(drivers.owners.get(name), NoOwner) and node.labels.get(names.DRIVER_OWNER) == policy.driver
                for name, node in snapshot.nodes.items())
    if not count:
        return ""
    nodes, lose = ("1 node", "it loses") if count == 1 else (f"{count} nodes", "they lose")
    return (f"NVIDIADriver {policy.driver} selects {nodes} no more, nor does another one: {lose} the driver{_each(count)} "
            "once it is emptied; correct nodeSelector or the labels to keep it")


def becomes(policy: UpgradePolicy, drivers: PoliciesInForce, snapshot: Snapshot, only: str = "") -> str:
    """Say what becomes of the nodes of an NVIDIADriver that goes, or of this one alone; nothing where it has none."""
    nodes = [name for name, node in snapshot.nodes.items() if node.labels.get(names.DRIVER_OWNER) == policy.driver
             and only in ("", name)]
    if not nodes:
        return ""
    if policy.unseen:
        return f": {SOON}" if policy.unseen == SOON else ": whether its drivers go is not seen yet"
    counts: Counter[str] = Counter()
    for name in nodes:
        owner = drivers.owners.get(name)
        counts["?" if isinstance(owner, OwnerConflict) else owner.name if isinstance(owner, OwnedBy) else ""] += 1
    kept, lost = counts.pop("?", 0), counts.pop("", 0)
    if not policy.auto_upgrade:
        return f": {_nodes(len(nodes), only, 'keeps', 'keep')} the driver, as upgrades are off"
    when = "once nothing uses it" if policy.free_only else "once it is emptied"
    wrong = _of_another_type(policy, drivers)
    told = [f"{_nodes(count, only, 'goes', 'go')} to NVIDIADriver {name}{_each(count)} {when}"
            for name, count in sorted(counts.items()) if name not in wrong]
    ways = [(f"NVIDIADriver {name}, which is for {_them(count)}, is of type {wrong[name]}", count)
            for name, count in sorted(counts.items()) if name in wrong]
    ways += [(f"no other NVIDIADriver is for {_them(lost)}", lost)] if lost else []
    told += [f"{_nodes(count, only, 'loses', 'lose')} the driver{_each(count)} {when}, as {why}" for why, count in ways]
    whose = "it is" if kept == 1 else "they are"
    told += [f"{_nodes(kept, only, 'waits', 'wait')} until it is clear whose {whose}"] if kept else []
    return f": {'; '.join(told)}"


def _of_another_type(policy: UpgradePolicy, drivers: PoliciesInForce) -> dict[str, str]:
    """Return the types of the NVIDIADrivers without a driver for the nodes of one that goes: only one of the two is for hosts."""
    hosts = any(each.claim.is_for_hosts for each in drivers.going if each.view.name == policy.driver)
    return {claim.name: claim.driver_type for claim in drivers.claims if claim.driver_type and claim.is_for_hosts is not hosts}


def _each(count: int) -> str:
    return "" if count == 1 else ", each"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _nodes(count: int, only: str, one: str, several: str) -> str:
    if only:
        return f"this node {one}"
    return f"{count} node {one}" if count == 1 else f"{count} nodes {several}"


def left_by(node: str, drivers: PoliciesInForce, snapshot: Snapshot) -> tuple[ActiveDriver, ...]:
    """Return the NVIDIADrivers that select a node which is nobody's, and have it no more as they are being deleted: kubectl lists
    them beside the others.
    """
    if not isinstance(drivers.owners.get(node), NoOwner):
        return ()
    labels = snapshot.nodes[node].labels
    return tuple(each for each in drivers.going if isinstance(owner_of(node, labels, (each.claim,)), OwnedBy))


def ending(view: PolicyView) -> str:
    """Say that a policy is being deleted, and what keeps it."""
    finalizers = view.body.get("metadata", {}).get("finalizers") or ()
    return f"{view.name} is being deleted" + (f", and is kept by its finalizers {', '.join(finalizers)}" if finalizers else "")


def _first(problems: Sequence[object], besides: int = 0) -> str:
    """Return the first problem, and how many more there are."""
    left = len(problems) - 1 + besides
    more = f" (and {left} more problem{'s' if left > 1 else ''}: `gpuward check` names all)" if left > 0 else ""
    return f"{problems[0]}{more}" if problems else ""


def _why(each: ActiveDriver, drivers: PoliciesInForce) -> str:
    conflict, told = drivers.conflicts.get(each.view.name), "; ".join(map(str, each.problems)) or why_unmade(each.view)
    return "; ".join(filter(None, (str(conflict or ""), told, str(drivers.overlaps.get(each.view.name, "")))))
