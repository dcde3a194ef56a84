"""Whose nodes are after a change of NVIDIADrivers, what becomes of their drivers, and whether the change sets others at odds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from gpuward.model.driver import is_driver_pod, is_hosts_driver_pod
from gpuward.model.owners import Claim, NodeOwner, NoOwner, OwnedBy, OwnerConflict, conflicts, name_of, owner_of
from gpuward.model.views import NodeView
from gpuward.model.workloads import is_for_virtual_machines
from gpuward.upgrade.remedies.fixes import DecisionFacts
from gpuward.upgrade.scope import is_to_have_driver

IN_QUESTION = "in question"


class Fate(StrEnum):
    """Say what becomes of the driver of a node."""

    NONE = ""
    REPLACED = "replaced"
    GOES = "goes"
    STAYS = "stays"


class After(NamedTuple):
    """Say of a node whose it is after a change."""

    node: NodeView
    before: NodeOwner
    owner: NodeOwner
    claim: Claim | None
    """Of the NVIDIADriver that has it then."""

    @property
    def key(self) -> str:
        """Return its owner; empty for none."""
        return IN_QUESTION if isinstance(self.owner, OwnerConflict) else name_of(self.owner, "")


def claims_of(case: DecisionFacts) -> tuple[Claim, ...]:
    """Return what NVIDIADrivers say about nodes."""
    return (case.policy.placing.claims if case.policy.placing is not None else None) or ()


def owners_of(case: DecisionFacts, claims: tuple[Claim, ...]) -> Iterator[tuple[NodeView, NodeOwner]]:
    """Return whose each node with GPUs is."""
    return ((node, owner_of(node.name, node.labels, claims)) for node in case.snapshot.nodes.values() if node.gpu_present)


def judged(case: DecisionFacts, claims: tuple[Claim, ...]) -> dict[str, OwnerConflict]:
    """Return which NVIDIADrivers are in a conflict."""
    return conflicts((owner for _, owner in owners_of(case, claims)), claims)


def after(case: DecisionFacts, change: Callable[[DecisionFacts], DecisionFacts]) -> list[After]:
    """Return whose each node is after a change."""
    changed = change(case)
    then = claims_of(changed)
    by_name = {claim.name: claim for claim in then}
    owners = zip(owners_of(case, claims_of(case)), owners_of(changed, then), strict=True)
    return [After(node, before, owner, by_name.get(owner.name) if isinstance(owner, OwnedBy) else None)
            for (node, before), (_, owner) in owners]


def fate(each: After, case: DecisionFacts) -> Fate:
    """Return what becomes of a driver whose NVIDIADriver is not for its node any more. What no DaemonSet owns stays where no
    other driver comes.
    """
    hosts = is_for_virtual_machines(each.node)
    is_driver = is_hosts_driver_pod if hosts else is_driver_pod
    there = (pod for pod in case.snapshot.pods.get(each.node.name, ()) if is_driver(pod, case.snapshot.namespace))
    driver = next((pod for pod in there if not (pod.deleting or pod.finished)), None)
    if driver is None:
        return Fate.NONE
    if each.claim is not None and each.claim.is_for_hosts == hosts and (hosts or is_to_have_driver(each.node)):
        return Fate.REPLACED
    return Fate.STAYS if driver.owner is None else Fate.GOES


def evicts(each: After, case: DecisionFacts, before: Claim | None) -> bool:
    """Tell whether a node is emptied for that: no virtual machine is evicted, nor anybody where upgrades are not automatic."""
    found, workloads = fate(each, case), case.policy.workloads
    if is_for_virtual_machines(each.node) or (workloads is not None and workloads.enabled):
        return False
    if found is Fate.REPLACED and before is None:
        return each.claim is not None and each.claim.auto_upgrade
    return found in (Fate.REPLACED, Fate.GOES) and (before is None or before.auto_upgrade)


def counted(found: list[After], case: DecisionFacts, *, drivers: bool = False) -> str:
    """Say who has how many nodes, and what becomes of their drivers."""
    groups = Counter((each.key, fate(each, case) if drivers else Fate.NONE) for each in found)
    hosts = {each.key for each in found if each.claim is not None and each.claim.is_for_hosts}
    ordered = sorted(groups.items(), key=lambda group: (not group[0][0], group[0][0] == IN_QUESTION, group[0]))
    return " and ".join(_group(name, count, of, hosts=name in hosts) for (name, of), count in ordered)


def _group(name: str, count: int, of: Fate, *, hosts: bool) -> str:
    many = count > 1
    if name == IN_QUESTION:
        text = f"{count} {'are' if many else 'is'} still in question"
    elif not name:
        text = f"{count} {'have' if many else 'has'} no NVIDIADriver"
    else:
        text = f"{owner_named(name, hosts=hosts)} then has {count}"
    its = "their drivers" if many else "its driver"
    told = {Fate.REPLACED: f"{its} {'are' if many else 'is'} replaced", Fate.GOES: f"{its} {'go' if many else 'goes'}",
            Fate.STAYS: f"{its} {'stay' if many else 'stays'}"}
    return f"{text} ({told[of]})" if of in told else text


def owner_named(name: str, *, hosts: bool) -> str:
    """Return the name of an NVIDIADriver, and that its drivers are not for containers."""
    return f"{name}, which is for hosts of vGPUs," if hosts else name


def spoils(before: DecisionFacts, later: DecisionFacts, name: str) -> bool:
    """Tell whether a change of NVIDIADrivers, or of a node's labels, sets some of them at odds that were not, or gives the node
    to none that can bring it a driver.
    """
    claims, known = claims_of(later), claims_of(before)
    node, was = later.snapshot.nodes.get(name), before.snapshot.nodes.get(name)
    if node is None or was is None:
        return False
    owner = owner_of(name, node.labels, claims)
    if claims == known and owner == owner_of(name, was.labels, known):
        return False
    if judged(later, claims).keys() - judged(before, known).keys():
        return True
    if isinstance(owner, OwnerConflict | NoOwner):
        return True
    claim = next((each for each in claims if isinstance(owner, OwnedBy) and each.name == owner.name), None)
    return claim is not None and (claim.conflict is not None or claim.is_for_hosts)
