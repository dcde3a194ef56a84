"""What the waves of a rollout have to know of each node, and which wave it belongs to: its record and its labels say so alone.

Nothing counts what was done so far, and nothing goes by the name of a wave, which people change. A node belongs to the first wave
whose labels it has and that has room; those that have begun come first, and then those that start before their wave
may, as somebody asks for them, so that the choice lasts while nodes go through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward import names
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.model.waves import Wave
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.wave_labels import began, labels_of
from gpuward.upgrade.words import counts_for


class WaveNode(msgspec.Struct, frozen=True, gc=False):
    """Hold what the waves have to know of a node."""

    name: str
    labels: Mapping[str, str] = {}
    version: str = ""
    """The version of the driver that it should have, as its DaemonSet says; empty where that is not known."""
    began: float = 0.0
    """When it was sent to the driver that it should have; 0 where it was not."""
    done: bool = False
    """Whether that driver is loaded and validated, and nothing is under way there."""
    serves: bool = False
    """Whether it is done, and in service."""
    done_at: float = 0.0
    proven_at: float = 0.0
    """When it was done first with that driver: somebody may have asked for it again since."""
    failed: bool = False
    """Whether it failed with that driver, since the rollout was last resumed, and did not succeed since."""
    failed_at: float = 0.0
    over: bool = False
    """Whether it failed, and is not tried again by itself."""
    unable: bool = False
    """Whether it cannot be upgraded now: it is not Ready, on its way out, or no driver is for it. One that goes down while it is
    under way may do so for the new driver: it is waited for until it is back or has failed.
    """
    skipped: bool = False
    given_up: bool = False
    """Whether its pods could not be moved, so that it keeps the driver that it has."""
    passed: bool = False
    """Whether somebody said that it is not waited for."""
    requested: bool = False
    """Whether somebody asks for it, so that it starts before its wave may."""
    comes: bool = False
    """Whether it is another policy's as yet."""

    @property
    def order(self) -> tuple[bool, bool, bool, float, str]:
        """Return the sort key by which nodes get the room of a wave: it stays the same as they start."""
        return not self.began, not (self.began or self.requested), self.comes and not self.began, self.began, self.name

    @property
    def waived(self) -> bool:
        """Tell whether people want it to be left out."""
        return self.passed or (self.skipped and not self.done)

    @property
    def spared(self) -> bool:
        """Tell whether it is not waited for, once another one of its wave is done."""
        return self.waived or (self.given_up and not self.done)


def wave_node(before: NodeFacts, after: NodeFacts, policy: UpgradePolicy, *, failed: bool) -> WaveNode:
    """Return what the waves have to know of a node: as it is now or will be after this pass, whichever is worse."""
    node, record = before.node, before.record
    at_rest = before.state in AT_REST and after.state in AT_REST
    under_way = before.state in IN_PROGRESS or after.state in IN_PROGRESS
    failure = record.failure if not before.retargeted else None
    over = before.state is State.FAILED and (failure is None or failure.attempts > policy.rollout.retries or not failed)
    promoted = policy.rollout.promoted
    skipped = node.labels.get(names.UPGRADE_SKIP) == "true"
    # One that somebody asks for, and others skip, waits like any other: it would take the room of its wave, and pass for done.
    waits = skipped and before.state is State.UPGRADE_REQUIRED and record.failure is None
    done_at = _done_at(before, after) if at_rest else 0.0
    return WaveNode(
        node.name, labels_of(before), before.target_version,
        began=0.0 if waits else began(before),
        done=at_rest and before.up_to_date,
        serves=at_rest and before.up_to_date and node.ready is True and not (before.unschedulable or node.deleting),
        done_at=done_at,
        proven_at=record.proven or done_at,
        failed=failed,
        failed_at=failure.at if failure is not None else 0.0,
        over=over and not before.retargeted,
        unable=is_unable(before, under_way=under_way),
        skipped=skipped,
        given_up=record.given_up is not None and not before.retargeted,
        requested=before.requested,
        passed=promoted is not None and node.name in promoted.nodes and counts_for(promoted, before),
    )


def _done_at(before: NodeFacts, after: NodeFacts) -> float:
    """Return when a node at rest was done. One whose record somebody deleted or garbled is from now on, as its new record will
    say; none was done before the driver pod came that it was done with.
    """
    record, driver = before.record, before.driver
    if record.state not in AT_REST:
        return 0.0
    known = record.since or after.record.since
    return max(known, driver.created) if driver is not None and driver.uid in (record.pods or ()) else known


def without_older(nodes: Iterable[WaveNode], late: Iterable[NodeFacts]) -> list[WaveNode]:
    """Return nodes so that none passes for done whose DaemonSet still says another version than those of `late` nodes, which are
    to get a driver: it has yet to be written.
    """
    coming = {node.target_version for node in late} - {""}
    return [msgspec.structs.replace(node, done=False, serves=False)
            if node.done and coming and node.version and node.version not in coming else node for node in nodes]


def is_unable(node: NodeFacts, *, under_way: bool = False) -> bool:
    """Tell whether a node cannot be upgraded now, so that a wave does not wait for it once another one of its nodes is done. One
    that goes down in its upgrade is waited for.
    """
    down = not node.node.ready and not under_way
    return down or node.node.deleting or node.unserved is not None or node.barred


def counted(nodes: Iterable[WaveNode]) -> list[WaveNode]:
    """Return the nodes of a wave that count. One that was given up does as long as no other is done: nobody has seen the driver
    run there before.
    """
    wanted = [node for node in nodes if not node.waived]
    return [node for node in wanted if not node.spared] if any(node.done for node in wanted) else wanted


def places(nodes: Iterable[WaveNode], waves: Sequence[Wave]) -> dict[str, int]:
    """Return the place of the wave of each node; those of the last one, with all others, have the number of waves.

    A node that is skipped, and has not begun or was given up, takes nobody's room.
    """
    left, found = sorted(nodes, key=lambda node: node.order), dict[str, int]()
    for place, wave in enumerate(waves):
        matching = [node for node in left if wave.selector.items() <= node.labels.items()]
        room = len(matching) if wave.nodes is None else wave.nodes.of(len(matching))
        free = [node for node in matching if node.name not in found
                and (wave.nodes is None or not node.skipped or (node.began and not node.given_up))]
        found.update((node.name, place) for node in free[:room])
    return {node.name: found.get(node.name, len(waves)) for node in left}
