"""How each managed node stands, and the groups that a fleet falls into: every node is in one, so their counts add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.cordons import is_driver_managers
from gpuward.model.driver import is_driver_pod
from gpuward.model.explain import sentence
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.report.behind import behind_stuck_waves
from gpuward.report.groups import Group, group_of
from gpuward.report.versions import loaded_version, wanted_versions

_WORDS: Final = {
    Group.FAILED: "failed",
    Group.HELD: "held: each needs somebody to look at it",
    Group.NOT_READY: "not ready: the driver that they should have is not loaded and validated",
    Group.UNWELL: "with a failing operand: the driver is up to date, and another part of the GPU stack is not ready",
    Group.UNDER_WAY: "under way",
    Group.STOPPED: "stopped, all for one reason",
    Group.WAITING: "waiting: they go on by themselves",
    Group.OLDER: "on another driver than the newest",
    Group.SKIPPED: "skipped",
    Group.UP_TO_DATE: "up to date",
}
_OF_ONE: Final = {
    Group.HELD: "held: somebody needs to look at it",
    Group.NOT_READY: "not ready: the driver that it should have is not loaded and validated",
    Group.STOPPED: "stopped",
    Group.WAITING: "waiting: it goes on by itself",
}
"""The words for one node, where they are others."""


NOTHING_GOES_ON: Final = "nothing goes on until an operator runs"
MOVING: Final = (Group.UNDER_WAY, Group.WAITING)
CORDONED: Final = "cordoned by somebody else: no new pods are scheduled to it"
BY_UPGRADE: Final = "still cordoned by its upgrade: no new pods are scheduled to it"
BY_DRIVER_MANAGER: Final = "cordoned by the driver manager: no new pods are scheduled to it"


class NodeReport(msgspec.Struct, frozen=True):
    """Hold how one managed node stands."""

    node: str
    group: Group
    state: str
    """The value of its state label; empty where it has none."""
    since: float = 0.0
    """Since when it stands as it is shown, 0 where that is not known."""
    reason: str = ""
    message: str = ""
    until: float | None = None
    turn: int = 0
    loaded: str = ""
    """The version of the driver that is loaded, as far as that is known."""
    doubtful: bool = False
    """Whether nothing but discovery's last word says so, as no driver pod tells."""
    wanted: str = ""
    """The version that its driver DaemonSet has."""
    up_to_date: bool = False
    """Whether it has the driver that it should have, validated, whatever else is wrong with it."""
    cordoned: bool = False
    """Whether somebody else cordoned it, and no upgrade is under way there."""
    by_driver_manager: bool = False
    """Whether its driver manager cordoned it, and no upgrade is under way there."""
    by_upgrade: bool = False
    """Whether its upgrade cordoned it, and is not under way any more."""
    pool: str = ""
    """What it is one of: the nodes of an NVIDIADriver, or those with GPUs of one product."""
    troubled: bool = False
    """Whether it is under way, and does not go on before somebody has looked at it."""

    @property
    def shown(self) -> str:
        """Return the state label, or what stands in its place: see `shown_state`."""
        return shown_state(self.group, self.state)

    @property
    def waits(self) -> str:
        """Return what it waits for, and who else keeps new pods off it."""
        cordons = ((self.cordoned, CORDONED), (self.by_driver_manager, BY_DRIVER_MANAGER), (self.by_upgrade, BY_UPGRADE))
        return "; ".join(filter(None, (self.message, *(words for true, words in cordons if true))))

    @property
    def driver(self) -> str:
        """Return the driver that it has and, where that is another one, the driver that it should have."""
        if not self.wanted or self.loaded == self.wanted:
            return self.told
        return f"{self.told or 'none'} -> {self.wanted}"

    @property
    def told(self) -> str:
        """Return the version that is loaded, with a question mark where that is doubtful."""
        return f"{self.loaded}?" if self.loaded and self.doubtful else self.loaded


class GroupReport(msgspec.Struct, frozen=True):
    """Count the nodes of a group, and the reasons why they are in it, the most frequent first."""

    group: Group
    nodes: int
    reasons: tuple[tuple[str, int], ...] = ()
    cordoned: int = 0
    """Nodes among them that somebody else cordoned."""
    kept: int = 0
    """Nodes among them that their upgrade cordoned, and is not under way any more."""
    idle: bool = False
    """Whether no operator runs."""
    behind: int = 0
    """How many nodes under way, for which they wait, need somebody to look at them."""
    bare: int = 0
    """How many nodes take room for which they wait, and are not under way, as no driver pod is made there."""

    @property
    def note(self) -> str:
        """Return what nodes wait for that may not end by itself; empty where all of it does."""
        if self.behind and not self.idle:
            need = "needs somebody to look at it" if self.behind == 1 else "need somebody to look at them"
            return f"for nodes under way, of which {self.behind} {need}"
        if self.bare and not self.idle:
            take = "node without a driver pod takes" if self.bare == 1 else "nodes without a driver pod take"
            return f"for room, of which {self.bare} {take} some"
        return ""

    def __str__(self) -> str:
        """Return the words for it."""
        idle = self.idle and self.group in MOVING
        told = _OF_ONE.get(self.group, _WORDS[self.group]) if self.nodes == 1 else _WORDS[self.group]
        words = f"{self.group}: {NOTHING_GOES_ON}" if idle else f"{self.group} {self.note}" if self.note else told
        named = ", ".join(f"{count} {reason}" for reason, count in self.reasons)
        reasons = f" ({named})" if named else ""
        others = self._cordoned(self.cordoned, "cordoned by somebody else")
        own = self._cordoned(self.kept, "still cordoned by gpuward")
        return f"{self.nodes} {words}{reasons}{others}{own}"

    def _cordoned(self, nodes: int, words: str) -> str:
        which = f"{nodes} of them " if self.nodes > 1 else ""
        return f", {which}{words}" if nodes else ""


def node_reports(plan: Plan, snapshot: Snapshot | None = None, policies: PoliciesInForce | None = None) -> list[NodeReport]:
    """Return a report for each managed node, those first that need somebody, then by name.

    Without a snapshot nothing is said about the versions of drivers.
    """
    wanted = wanted_versions(plan.nodes, snapshot, policies) if snapshot is not None and policies is not None else {}
    groups = groups_of(plan, snapshot, policies)
    found = [_report(name, status, snapshot, wanted.get(name, ""), groups[name]) for name, status in plan.nodes.items()]
    order = {group: number for number, group in enumerate(Group)}
    return sorted(found, key=lambda one: (order[one.group], not one.cordoned, one.node))


def group_reports(reports: Iterable[NodeReport], *, idle: bool = False) -> list[GroupReport]:
    """Return the groups that have nodes, in their order."""
    reasons: dict[Group, Counter[str]] = {}
    cordoned: Counter[Group] = Counter()
    kept: Counter[Group] = Counter()
    troubled: Counter[str] = Counter()
    waiting = set[str]()
    bare = 0
    for one in reports:
        reasons.setdefault(one.group, Counter())[one.reason] += 1
        cordoned[one.group] += one.cordoned
        kept[one.group] += one.by_upgrade
        under_way = one.group is Group.UNDER_WAY
        troubled[one.pool] += one.troubled or (under_way and _is(one.reason, lambda reason: reason.needs_person))
        if one.group is Group.WAITING and _is(one.reason, lambda reason: reason.is_turn):
            waiting.add(one.pool)
        bare += one.group is Group.NOT_READY and one.reason == Reason.DRIVER_POD_MISSING
    def counted(group: Group) -> tuple[tuple[str, int], ...]:
        return () if group is Group.UP_TO_DATE else tuple(each for each in reasons[group].most_common() if each[0])

    def behind(group: Group) -> int:
        if group is not Group.WAITING or not waiting:
            return 0
        beyond = Reason.DOMAIN_LIMIT in reasons[group]  # a domain has nodes of several NVIDIADrivers
        return sum(count for pool, count in troubled.items() if beyond or pool in waiting or not pool.startswith(_OWNED))

    def taken(group: Group) -> int:
        return bare if group is Group.WAITING and Reason.UNAVAILABLE_LIMIT in reasons[group] else 0

    return [GroupReport(group, sum(reasons[group].values()), counted(group), cordoned[group], kept[group], idle, behind(group),
                        taken(group)) for group in Group if group in reasons]


def _is(reason: str, kind: Callable[[Reason], bool]) -> bool:
    return bool(reason) and kind(Reason(reason))


def groups_of(plan: Plan, snapshot: Snapshot | None, policies: PoliciesInForce | None) -> Mapping[str, Group]:
    """Return the group of each node. One that waits for a wave goes on by itself only if that wave gets done by itself."""
    behind = behind_stuck_waves(plan, snapshot, policies) if snapshot is not None and policies is not None else frozenset[str]()
    return {name: Group.STOPPED if name in behind else group_of(status) for name, status in plan.nodes.items()}


def _report(name: str, status: NodeStatus, snapshot: Snapshot | None, wanted: str, group: Group) -> NodeReport:
    hold = status.hold
    node = snapshot.nodes.get(name) if snapshot is not None else None
    managers = node is not None and is_driver_managers(node)
    loaded, doubtful = loaded_version(node, snapshot) if snapshot is not None and node is not None else ("", False)
    return NodeReport(
        name, group, status.label, _since(status, group, _served_since(name, snapshot)),
        reason=str(hold.reason) if hold is not None else "",
        message=_attempt(status, node) + sentence(hold) if hold is not None else "",
        until=hold.until if hold is not None else None,
        turn=status.turn,
        loaded=loaded, doubtful=doubtful,
        wanted=wanted,
        up_to_date=status.up_to_date,
        cordoned=status.cordoned and not managers,
        by_driver_manager=status.cordoned and managers,
        by_upgrade=group is not Group.UNDER_WAY and node is not None and _has_own_cordon(node),
        pool=pool_of(node) if node is not None else "",
        troubled=group is Group.UNDER_WAY and hold is not None and hold.is_trouble,
    )


def _has_own_cordon(node: NodeView) -> bool:
    return node.unschedulable and node.record is not None and node.record.cordon is CordonOwner.GPUWARD


_INSTEAD: Final = {Group.NOT_READY: str(Group.NOT_READY), Group.HELD: str(Group.HELD)}


def shown_state(group: Group, label: str) -> str:
    """Return the state label, or what stands in its place: a pause takes it, and `done` says nothing of what came after."""
    if group is Group.FAILED:
        return str(State.FAILED)
    if group is Group.UNWELL:
        return "operand failing"
    if label == State.DONE and group not in (Group.UP_TO_DATE, Group.OLDER, Group.SKIPPED):
        return _INSTEAD.get(group, label)
    return label or str(group)


def _since(status: NodeStatus, group: Group, served: float) -> float:
    """Return since when a node stands as it is shown; 0 where all that is known is its record, which tells of its state. While
    upgrades are off it has no state, and a driver that somebody replaces changes no record: then its pod tells.
    """
    if group is Group.UP_TO_DATE and not status.label:
        return max(status.since, served)
    if shown_state(group, status.label) == status.label or group in (Group.FAILED, Group.UP_TO_DATE):
        return status.since
    return status.hold.since if status.hold is not None and status.hold.since != status.since else 0.0


def _served_since(name: str, snapshot: Snapshot | None) -> float:
    """Return since when the driver pod of a node is ready; 0 where it has none."""
    pods = snapshot.pods.get(name, ()) if snapshot is not None else ()
    return max((pod.turned for pod in pods if snapshot is not None and is_driver_pod(pod, snapshot.namespace) and pod.ready),
               default=0.0)


def _attempt(status: NodeStatus, node: NodeView | None) -> str:
    """Return which attempt a node is in that has failed before: by its state and its time alone it looks like any other."""
    failure = node.record.failure if node is not None and node.record is not None else None
    return f"attempt {failure.attempts + 1}: " if failure is not None and status.state in IN_PROGRESS else ""


_OWNED: Final = "NVIDIADriver "


def pool_of(node: NodeView) -> str:
    """Return the pool of a node; empty while GPU feature discovery has not said which GPUs it has."""
    owner = node.labels.get(names.DRIVER_OWNER, "")
    return f"{_OWNED}{owner}" if owner else node.labels.get(names.GPU_PRODUCT, "")
