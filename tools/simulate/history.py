"""What each node and policy was like at every version, and who made it so: what an operator may be held to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.model.record import Record, decode_record
from gpuward.model.states import IN_PROGRESS, State, parse_state

if TYPE_CHECKING:
    from tools.simulate.process import Process

Object = dict[str, Any]


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
    ready: bool = False
    skipped: bool = False
    wanted: bool = False
    record: str = ""

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


def sight_of(node: Object, version: int, writer: str | None, before: Sight | None, *, exists: bool = True) -> Sight:
    """Return what a node is like after a change."""
    labels = node["metadata"].get("labels") or {}
    annotations = node["metadata"].get("annotations") or {}
    conditions = node.get("status", {}).get("conditions") or ()
    cordoned = bool(node["spec"].get("unschedulable"))
    known = before is not None and before.exists and before.cordoned and cordoned
    return Sight(
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
        record=annotations.get(names.UPGRADE_RECORD, ""),
    )


class History:
    """Keep every sight of every node, and every spec of the policies, in order."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Sight]] = {}
        self._policies: list[tuple[int, str | None, Object]] = []

    def saw_node(self, sight: Sight, name: str) -> None:
        """Take a change of a node."""
        self._nodes.setdefault(name, []).append(sight)

    def saw_policy(self, version: int, policy: Object, writer: str | None) -> None:
        """Take a change of the ClusterPolicy."""
        self._policies.append((version, writer, policy))

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

    def view(self, node: str, process: Process) -> Sight | None:
        """Return what a process must know of a node: what its watch had shown when it decided, and what it wrote itself since.

        What others changed in between may be in the answers to those writes, but an answer may be lost or on its way: it is held
        to what both say.
        """
        shown = process.known["nodes"]
        seen = self.at(node, shown)
        for sight in self._nodes.get(node, []) if seen is not None else ():
            if seen is not None and sight.version > shown and sight.writer == process.name:
                ours = sight.cordoned_by == process.name if sight.cordoned else False
                cordoned = ours or (sight.cordoned and seen.cordoned)
                seen = msgspec.structs.replace(seen, label=sight.label, record=sight.record, cordoned=cordoned,
                                               ready=seen.ready or sight.ready, skipped=seen.skipped and sight.skipped,
                                               wanted=seen.wanted and sight.wanted)
        return seen

    def cordons(self, node: str, until: int) -> Iterable[Sight]:
        """Return the sights of a node up to a version, newest first."""
        return (sight for sight in reversed(self._nodes.get(node, [])) if sight.version <= until)

    def policies(self, process: Process) -> list[Object]:
        """Return the ClusterPolicy as a process may have known it when it decided: as its watch showed it, or as an answer to a
        write of its own did, which may be newer.
        """
        shown, asked = process.known["policies"], process.known["store"]
        watched = [policy for version, _, policy in self._policies if version <= shown]
        written = [policy for version, writer, policy in self._policies if shown < version <= asked and writer == process.name]
        return watched[-1:] + written
