"""What each node and policy was like at every version, and who made it so: what an operator may be held to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuward import names
from gpuward.model.record import CordonOwner, Record, decode_record
from gpuward.model.states import IN_PROGRESS, State, parse_state
from tools.simulate.policies import policy_in_force

if TYPE_CHECKING:
    from tools.simulate.process import Knower, Process

Object = dict[str, Any]

_ENDINGS = frozenset({State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED})
"""States in progress that a failed node may enter without being admitted: it is out of service already."""


def _in_force(policies: Mapping[str, Object | None]) -> Object | None:
    return policy_in_force(policy for policy in policies.values() if policy is not None)


class Since(NamedTuple):
    """Say from which version on something is so, and whether an admission made it so."""

    version: int
    admitted: bool

    def counts(self, known: int) -> bool:
        """Tell whether it counts against who had been shown everything up to a version: an admission was in the ledger."""
        return self.admitted or self.version <= known


class Sight(msgspec.Struct, frozen=True):
    """Hold what a node was like from a version on, and who wrote it: a process of the operator, or None for others."""

    version: int
    writer: str | None
    exists: bool
    label: str = ""
    cordoned: bool = False
    cordoned_at: int = 0
    """The version of the change that made it unschedulable."""
    cordoned_by: str | None = None
    """Who made it so, or took it over: a cordon in mid-upgrade of which nothing is remembered was made by NVIDIA's operator."""
    ready: bool = False
    skipped: bool = False
    wanted: bool = False
    owner: str = ""
    """The NVIDIADriver whose driver the node has, by its label."""
    record: str = ""
    uid: str = ""
    slot: Since | None = None
    """Since when the node uses a slot, if it does."""
    out: Since | None = None
    """Since when it is out of service, if it is: under way, cordoned or not Ready."""

    @property
    def state(self) -> State | None:
        """Return the state that the label names, None for garbage."""
        return parse_state(self.label)

    @property
    def in_progress(self) -> bool:
        """Tell whether the node uses a slot."""
        return self.exists and self.state in IN_PROGRESS

    def memory(self) -> Record | None:
        """Return the record on the node, None where there is none that can be read."""
        try:
            return decode_record(self.record)
        except ValueError:
            return None


def admits(before: Sight, after: Sight) -> bool:
    """Tell whether a write of the operator's starts an upgrade."""
    if before.in_progress or not after.in_progress:
        return False
    return not ((before.state is State.FAILED or _failed_before_a_pause(before)) and after.state in _ENDINGS)


def _failed_before_a_pause(sight: Sight) -> bool:
    """Tell whether a node has failed whose label a pause took: it comes back and goes on in one patch when the pause is over."""
    record = sight.memory()
    return sight.state is State.UNKNOWN and record is not None and record.state is State.FAILED and bool(record.paused)


def sight_of(node: Object, version: int, writer: str | None, before: Sight | None, *, exists: bool = True) -> Sight:
    """Return what a node is like after a change, and since when it uses a slot or is out of service."""
    after = _seen(node, version, writer, before, exists=exists)
    since = Since(version, writer is not None and before is not None and admits(before, after))
    managed = after.exists and after.wanted
    slot = managed and after.in_progress
    out = slot or (managed and (after.cordoned or not after.ready))
    return msgspec.structs.replace(
        after,
        slot=(before.slot if before is not None and before.slot is not None else since) if slot else None,
        out=(before.out if before is not None and before.out is not None else since) if out else None,
    )


def _seen(node: Object, version: int, writer: str | None, before: Sight | None, *, exists: bool) -> Sight:
    labels = node["metadata"].get("labels") or {}
    annotations = node["metadata"].get("annotations") or {}
    conditions = node.get("status", {}).get("conditions") or ()
    cordoned = bool(node["spec"].get("unschedulable"))
    known = before is not None and before.exists and before.cordoned and cordoned
    sight = Sight(
        version=version,
        writer=writer,
        exists=exists,
        label=labels.get(names.UPGRADE_STATE, ""),
        cordoned=cordoned,
        cordoned_at=before.cordoned_at if known and before else version,
        cordoned_by=before.cordoned_by if known and before else writer if cordoned else None,
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        skipped=labels.get(names.UPGRADE_SKIP) == "true",
        wanted=labels.get(names.DEPLOY_DRIVER) == "true",
        owner=labels.get(names.DRIVER_OWNER, ""),
        record=annotations.get(names.UPGRADE_RECORD, ""),
        uid=node["metadata"]["uid"],
    )
    if known and writer is not None and before is not None and _takes_over(before, sight):
        return msgspec.structs.replace(sight, cordoned_by=writer)
    return sight


def _takes_over(before: Sight, after: Sight) -> bool:
    """Tell whether a write of the operator's follows a label of which nothing was remembered, and makes the cordon its own."""
    record = after.memory()
    return before.in_progress and before.memory() is None and record is not None and record.cordon is CordonOwner.GPUWARD


class History:
    """Keep every sight of every node, and every spec of the policies, in order."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Sight]] = {}
        self._policies: dict[str, list[tuple[int, str | None, Object | None]]] = {}
        self._cluster_policies: list[tuple[int, str | None, Object | None, str]] = []
        self._settings: list[tuple[int, Object]] = [(0, {})]
        self._settings_at = [0.0]

    def saw_node(self, sight: Sight, name: str) -> None:
        """Take a change of a node."""
        self._nodes.setdefault(name, []).append(sight)

    def saw_policy(self, version: int, policy: Object | None, writer: str | None, driver: str = "") -> None:
        """Take a change of the ClusterPolicy, or of the NVIDIADriver of a name; None if it was deleted."""
        self._policies.setdefault(driver, []).append((version, writer, policy))

    def saw_cluster_policy(self, version: int, policy: Object | None, writer: str | None, name: str) -> None:
        """Take a change of the ClusterPolicy of a name, which need not be the one in force; None if it was deleted."""
        self._cluster_policies.append((version, writer, policy, name))
        there = {each: last for _, _, last, each in self._cluster_policies}
        self.saw_policy(version, _in_force(there), writer)

    def saw_settings(self, version: int, spec: Object, at: float) -> None:
        """Take a change of the RolloutPolicy; without one its spec is empty."""
        self._settings.append((version, spec))
        self._settings_at.append(at)

    def wanted_since(self, field: str) -> tuple[list[Any], float]:
        """Return what a field of the RolloutPolicy has had since it is there without a break, and since when that is."""
        values: list[Any] = []
        at = 0.0
        for (_, spec), then in zip(reversed(self._settings), reversed(self._settings_at), strict=True):
            if spec.get(field) is None:
                break
            values.append(spec[field])
            at = then
        return values, at

    def wanted_at(self, field: str, at: float) -> Any:
        """Return what a field of the RolloutPolicy had at a time."""
        before = [spec for (_, spec), then in zip(self._settings, self._settings_at, strict=True) if then <= at]
        return before[-1].get(field) if before else None

    def setting(self, field: str) -> tuple[Any, int, float]:
        """Return what a field of the RolloutPolicy has, and since which version and which time it has that."""
        value, since = self._settings[-1][1].get(field), len(self._settings) - 1
        while since and self._settings[since - 1][1].get(field) == value:
            since -= 1
        return value, self._settings[since][0], self._settings_at[since]

    def nodes(self) -> Iterable[str]:
        """Return the names of all nodes that there ever were."""
        return self._nodes

    def now(self, node: str) -> Sight | None:
        """Return what a node is like."""
        sights = self._nodes.get(node)
        return sights[-1] if sights else None

    def at(self, node: str, version: int) -> Sight | None:
        """Return what a node was like at a version."""
        sights = self._nodes.get(node, [])
        index = bisect_right(sights, version, key=lambda sight: sight.version)
        return sights[index - 1] if index else None

    def since(self, node: str, version: int) -> list[Sight]:
        """Return what a node became after a version."""
        return [sight for sight in self._nodes.get(node, []) if sight.version > version]

    def view(self, node: str, process: Process) -> Sight | None:
        """Return what a process must know of a node: what its watch had shown when it decided, what it wrote itself since, and
        what answers about the node told.

        What others changed in between may be in the answers to those writes, but an answer may be lost or on its way: it is held
        to what both say.
        """
        shown = process.known["nodes"]
        seen = self.at(node, shown)
        for sight in self._nodes.get(node, []) if seen is not None else ():
            if seen is not None and sight.version > shown and (sight.writer == process.name or sight.version in process.answered):
                ours = sight.cordoned_by == process.name if sight.cordoned else False
                cordoned = ours or (sight.cordoned and seen.cordoned)
                seen = msgspec.structs.replace(seen, label=sight.label, record=sight.record, cordoned=cordoned,
                                               ready=seen.ready or sight.ready, skipped=seen.skipped and sight.skipped,
                                               wanted=seen.wanted and sight.wanted)
        return seen

    def may_be_wanted(self, node: str, process: Process) -> bool:
        """Tell whether a process may know a node as one that is to have a driver: by its watch or, newer, by its own answers."""
        shown = process.known["nodes"]
        seen = self.at(node, shown)
        newer = (sight for sight in self._nodes.get(node, [])
                 if sight.version > shown and (sight.writer == process.name or sight.version in process.answered))
        return (seen is not None and seen.wanted) or any(sight.wanted for sight in newer)

    def was_out(self, node: str, known: int) -> bool:
        """Tell whether a node was cordoned or not Ready when everything up to a version was shown, or at any time since."""
        first = self.at(node, known)
        later = (sight for sight in reversed(self._nodes.get(node, [])) if sight.version > known)
        return any(sight.cordoned or not sight.ready for sight in (*later, *([first] if first is not None else ())))

    def cordons(self, node: str, until: int) -> Iterable[Sight]:
        """Return the sights of a node up to a version, newest first."""
        return (sight for sight in reversed(self._nodes.get(node, [])) if sight.version <= until)

    def policies(self, process: Knower, driver: str = "") -> list[Object | None]:
        """Return the ClusterPolicy, or the NVIDIADriver of a name, as a process may have known it when it decided: as its watch
        showed it, or as an answer to a request of its own did, which may be newer. None is for one that is not there; an
        NVIDIADriver that is deleted is what it was last, since its drivers go by that.
        """
        shown, asked = process.known["drivers" if driver else "policies"], process.known["store"]
        seen = self._policies.get(driver, [])
        watched = [policy for version, _, policy in seen if version <= shown]
        answered = [policy for version, writer, policy in seen
                    if shown < version <= asked and (writer == process.name or version in process.answered)]
        if driver:
            last = next((policy for policy in reversed(watched) if policy is not None), None)
            return [last, *(policy for policy in answered if policy is not None)]
        return (watched[-1:] or [None]) + answered + self._pieced_together(process)

    def is_gone(self, process: Knower, driver: str) -> bool:
        """Tell whether a process may have known an NVIDIADriver to be deleted."""
        shown, asked = process.known["drivers"], process.known["store"]
        seen = self._policies.get(driver, [])
        watched = [policy for version, _, policy in seen if version <= shown]
        return None in watched[-1:] or any(policy is None and shown < version <= asked for version, _, policy in seen)

    def _pieced_together(self, process: Knower) -> list[Object | None]:
        """Return the ClusterPolicies in force in what a process may have made of its watch and newer answers together: an answer
        tells of one of them, and may be ahead of what the watch has yet to show of another one.
        """
        shown, asked = process.known["policies"], process.known["store"]
        there = {name: policy for version, _, policy, name in self._cluster_policies if version <= shown}
        ways = [dict(there)]
        for version, writer, policy, name in self._cluster_policies:
            if shown < version <= asked:
                if writer == process.name or version in process.answered:
                    ways = [{**way, name: policy} for way in ways]
                elif policy is None:  # that one is not found is an answer, too, which it may have had or not
                    ways += [{**way, name: None} for way in ways]
        return [_in_force(way) for way in ways] if ways != [there] else []

    def is_deleted(self, process: Knower, driver: str) -> bool:
        """Tell whether a process may have known that an NVIDIADriver is deleted when it decided."""
        known, seen = process.known, self._policies.get(driver, [])
        return any(next((policy for version, _, policy in reversed(seen) if version <= last), None) is None
                   for last in (known["drivers"], max(known["drivers"], known["store"])))

    def came_later(self, process: Process, driver: str) -> bool:
        """Tell whether a process first looked at the nodes when an NVIDIADriver was deleted already, and not made again."""
        last, _, policy = self._policies.get(driver, [(0, None, None)])[-1]
        return policy is None and bool(process.looks) and process.looks[0] >= last

    def every(self, driver: str = "") -> list[Object]:
        """Return the ClusterPolicy, or the NVIDIADriver of a name, in all the versions that there ever were."""
        return [policy for _, _, policy in self._policies.get(driver, []) if policy is not None]

    def drivers(self) -> list[str]:
        """Return the names of all NVIDIADrivers that there ever were."""
        return sorted(name for name in self._policies if name)

    def owners(self, node: str, process: Knower) -> set[str]:
        """Return the NVIDIADrivers whose a node was from what a process knew of it until now."""
        first = self.at(node, process.known["nodes"])
        later = (sight for sight in self._nodes.get(node, []) if sight.version > process.known["nodes"])
        return {sight.owner for sight in (*([first] if first is not None else ()), *later)}

    def sights(self, node: str) -> list[Sight]:
        """Return all that a node was so far."""
        return list(self._nodes.get(node, ()))

    def settings_since(self, version: int) -> list[Object]:
        """Return all specs that the RolloutPolicy has had since a version; empty ones for none."""
        before = [spec for at, spec in self._settings if at <= version]
        return before[-1:] + [spec for at, spec in self._settings if at > version]

    def every_settings(self) -> list[Object]:
        """Return all specs that the RolloutPolicy ever had."""
        return [spec for _, spec in self._settings[1:]]

    def only_settings(self) -> Object | None:
        """Return the RolloutPolicy's spec if it never had another one, None where it had."""
        found = [spec for _, spec in self._settings[1:]]
        return found[0] if found and all(spec == found[0] for spec in found) else None

    def settings(self, process: Knower) -> list[Object]:
        """Return the RolloutPolicy's spec as a process may have known it when it decided: as its watch showed it, or newer by an
        answer to what it wrote about it.
        """
        shown, asked = process.known["settings"], process.known["store"]
        watched = [spec for version, spec in self._settings if version <= shown]
        return watched[-1:] + [spec for version, spec in self._settings if shown < version <= asked]
