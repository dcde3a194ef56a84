"""How the drivers of a fleet stand, pool by pool: the nodes that get their driver from one DaemonSet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.departed import Departure, departure
from gpuward.model.snapshot import Snapshot
from gpuward.model.systems import kernel_of, system_of
from gpuward.model.versions import version_of
from gpuward.model.views import DaemonSetView, NodeView
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import why_refused
from gpuward.report.groups import Group
from gpuward.report.nodes import GroupReport, NodeReport, group_reports
from gpuward.report.versions import asked_version, wanted_daemonsets

NOBODY = "no NVIDIADriver"
"""Whose the nodes are that no NVIDIADriver takes."""


class PoolReport(msgspec.Struct, frozen=True):
    """Hold how the nodes of one driver DaemonSet stand."""

    owner: str
    """The kind and the name of the resource that the driver comes from."""
    daemonset: str = ""
    """Empty where no DaemonSet is for these nodes, or not yet."""
    target: str = ""
    kernel: str = ""
    """The kernel that a precompiled driver is for; empty for one that compiles on the node."""
    system: str = ""
    """The operating system that its nodes are placed by."""
    nodes: tuple[str, ...] = ()
    loaded: Mapping[str, int] = {}
    """How many nodes have which version loaded, with a question mark where that is doubtful; empty text for none."""
    kernels: Mapping[str, int] = {}
    systems: Mapping[str, int] = {}
    groups: tuple[GroupReport, ...] = ()
    held: Mapping[str, int] = {}
    """How many nodes wait for which reason."""
    up_to_date: int = 0
    """How many nodes have the target, whatever else is wrong with them."""
    problem: str = ""
    """Why the NVIDIADriver cannot be followed."""
    gone: str = ""
    """That the NVIDIADriver is gone, and what becomes of its drivers."""

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "owner": self.owner, "daemonSet": self.daemonset or None, "target": self.target or None,
            "precompiledFor": self.kernel or None, "placedBySystem": self.system or None, "nodes": list(self.nodes),
            "loaded": {version or "none": count for version, count in self.loaded.items()},
            "kernels": dict(self.kernels), "systems": dict(self.systems), "upToDate": self.up_to_date,
            "groups": {str(one.group): one.nodes for one in self.groups}, "holds": dict(self.held),
            "problem": self.problem or None, "gone": self.gone or None,
        }


def pool_reports(reports: Iterable[NodeReport], snapshot: Snapshot, policies: PoliciesInForce, *,
                 idle: bool = True) -> list[PoolReport]:
    """Return the pools of these nodes by owner and DaemonSet; with `idle` also the NVIDIADrivers that have none."""
    reports = list(reports)
    wanted = wanted_daemonsets((one.node for one in reports), snapshot, policies)
    pools: dict[tuple[str, str], list[NodeReport]] = {}
    sets: dict[tuple[str, str], DaemonSetView | None] = {}
    for one in reports:
        ds = wanted.get(one.node)
        key = _owner(ds, snapshot.nodes.get(one.node), policies), ds.name if ds is not None else ""
        pools.setdefault(key, []).append(one)
        sets[key] = ds
    found = [_pool(owner, sets[owner, name], pools[owner, name], snapshot) for owner, name in pools]
    owners = {owner for owner, _ in pools}
    if idle and policies.in_force:
        found += [PoolReport(owner) for owner in map(_title, policies.active) if owner not in owners]
    asked = {_title(each): (asked_version(each), why_refused(policies, each.view.name)) for each in policies.active}
    told = (_asking(pool, *asked.get(pool.owner, ("", ""))) for pool in found)
    return sorted(told if policies.in_force else found, key=lambda pool: (pool.owner, pool.daemonset))


def _title(driver: ActiveDriver) -> str:
    return f"NVIDIADriver {driver.view.name}"


def _asking(pool: PoolReport, version: str, problem: str) -> PoolReport:
    """Return a pool with what its NVIDIADriver asks for where no DaemonSet has it, and what is wrong with that."""
    return msgspec.structs.replace(pool, target=pool.target or version, problem=problem)


def _owner(ds: DaemonSetView | None, node: NodeView | None, policies: PoliciesInForce) -> str:
    if ds is not None and ds.owner is not None:
        return f"{ds.owner.kind} {ds.owner.name}"
    if policies.in_force:
        owner = node.labels.get(names.DRIVER_OWNER, "") if node is not None else ""
        return f"NVIDIADriver {owner}" if owner else NOBODY
    view = policies.policy.view
    return f"ClusterPolicy {view.name}" if view is not None else "no ClusterPolicy"


def _pool(owner: str, ds: DaemonSetView | None, reports: Sequence[NodeReport], snapshot: Snapshot) -> PoolReport:
    nodes = [node for one in reports if (node := snapshot.nodes.get(one.node)) is not None]
    selector = ds.node_selector if ds is not None else {}
    return PoolReport(
        owner, ds.name if ds is not None else "",
        gone=_gone(ds, snapshot) if ds is not None else "",
        target=version_of(ds.image) if ds is not None else "",
        kernel=selector.get(names.DRIVER_KERNEL, ""),
        system=selector.get(names.DRIVER_OS, ""),
        nodes=tuple(sorted(one.node for one in reports)),
        loaded=_counted(one.told for one in reports),
        kernels=_counted(node.kernel or kernel_of(node.labels) for node in nodes),
        systems=_counted(system_of(node.labels) for node in nodes),
        groups=tuple(group_reports(reports)),
        up_to_date=sum(one.up_to_date for one in reports),
        held=_counted(one.reason for one in reports if one.reason and one.group is not Group.UP_TO_DATE),
    )


def _gone(ds: DaemonSetView, snapshot: Snapshot) -> str:
    """Say that the NVIDIADriver of a DaemonSet is gone, and what becomes of its drivers; empty if it is there."""
    owner = ds.node_selector.get(names.DRIVER_OWNER, "")
    match departure(ds, snapshot):
        case Departure.LEFT:
            return (f"NVIDIADriver {owner} is gone, and DaemonSet {ds.name} is an orphan: its drivers run on, and none is "
                    "upgraded; make an NVIDIADriver that selects these nodes, or set driver.useNvidiaDriverCRD of the "
                    "ClusterPolicy to false")
        case Departure.REMOVED:
            return f"NVIDIADriver {owner} is gone, and the drivers of DaemonSet {ds.name} leave its nodes"
        case Departure.UNKNOWN:
            return f"NVIDIADriver {owner} is gone, or goes: what becomes of DaemonSet {ds.name} is not known yet"
        case None:
            return ""


def _counted(values: Iterable[str]) -> dict[str, int]:
    """Count values, the most frequent first, and by name where two are equally frequent."""
    return dict(sorted(Counter(values).items(), key=lambda each: (-each[1], each[0])))
