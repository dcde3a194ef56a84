"""Whether the images of a node's next driver are on it: the gate of admission that lets no node start before."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.model.containers import PodShape
from gpuward.model.driver import driver_daemonsets
from gpuward.model.placement import Placement, after
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.staging import ImageNotStaged, OnFailure, PrestageMode, StagingFailed, StagingRecord, staging_record
from gpuward.model.views import DaemonSetView, NodeView
from gpuward.model.withheld import selecting

FIRST_REST: Final = 60.0
LONGEST_REST: Final = 3600.0
"""Seconds until it is tried again on a node; they double with each attempt that failed."""
DISK_PRESSURE: Final = "DiskPressure: its disk is nearly full"


class NextImages(msgspec.Struct, frozen=True, gc=False):
    """Hold what a node's next driver pod needs pulled, by what, and what is remembered of that."""

    shape: PodShape
    pull_secrets: tuple[str, ...] = ()
    account: str = ""
    record: StagingRecord | None = None
    """What came of bringing these images onto the node; None for nothing as yet."""
    disk_pressure: bool = False

    @property
    def image(self) -> str:
        """Return the driver's image."""
        return self.shape.pulls[0].image

    @property
    def there(self) -> bool:
        return self.record is not None and not self.record.failed

    @property
    def cause(self) -> str:
        """Return why they could not be brought there; empty where nothing says so."""
        if self.there:
            return ""
        return DISK_PRESSURE if self.disk_pressure else self.record.failed if self.record is not None else ""

    @property
    def due(self) -> float:
        """Return when to try again, 0 where that did not fail."""
        if self.record is None or not self.record.failed:
            return 0.0
        return self.record.at + min(FIRST_REST * 2.0 ** min(max(self.record.attempts - 1, 0), 10), LONGEST_REST)


def next_daemonset(
    snapshot: Snapshot, node: NodeView, moving: Placement | None, daemonset: str
) -> DaemonSetView | None:
    """Return the DaemonSet that a node's next driver pod comes from: `daemonset`, by its uid, unless the node is moved."""
    sets = driver_daemonsets(snapshot)
    found = selecting(sets, after(node.labels, moving.labels)) if moving else [ds for ds in sets if ds.uid == daemonset]
    return next(iter(found), None)


def next_images(
    snapshot: Snapshot, policy: UpgradePolicy, node: NodeView, moving: Placement | None, daemonset: str
) -> NextImages | None:
    """Return what is to be brought onto a node before its turn; None where nothing is."""
    if policy.rollout.prestage.mode is PrestageMode.OFF:
        return None
    ds = next_daemonset(snapshot, node, moving, daemonset)
    if ds is None or ds.deleting or not ds.shape.pulls:
        return None
    record = staging_record(node.annotations)
    known = record if record is not None and record.images == ds.shape.digest else None
    return NextImages(ds.shape, ds.pull_secrets, ds.account, known, node.disk_pressure)


def staging_hold(found: NextImages, policy: UpgradePolicy, since: float) -> Hold | None:
    """Hold a node until its images are there; one onto which they cannot be brought as the policy has it."""
    if found.there:
        return None
    if not found.cause:
        return Hold(ImageNotStaged(found.image), since)
    if policy.rollout.prestage.on_failure is OnFailure.IGNORE:
        return None
    return Hold(StagingFailed(found.image, found.cause), since)
