"""What the driver pods of a DaemonSet should be, as far as its revisions tell."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from gpuward import names
from gpuward.model.driver import has_edited_revision, revisions_of
from gpuward.model.edits import TemplateEdited, until
from gpuward.model.placement import Placement
from gpuward.model.plan import Hold
from gpuward.model.removal import NO_DRIVER
from gpuward.model.snapshot import Edit, Snapshot
from gpuward.model.systems import tag_of
from gpuward.model.versions import version_of
from gpuward.model.views import DaemonSetView, PodView, RevisionView


class Target(msgspec.Struct, frozen=True):
    """Say what the driver pods of one DaemonSet should be."""

    hash: str = ""
    digest: str = ""
    version: str = ""
    same: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    created: float = 0.0
    template: int = 0
    """The number of the template, which grows whenever it is changed; 0 where it is not known."""
    edited: Hold | None = None
    """That somebody else edits the DaemonSet: what it says is nothing to go by."""
    awaited: bool = False
    """Whether the DaemonSet is there, and its controller has yet to make the newest revision."""

    def of(self, driver: PodView | None) -> Target:
        """Return the target of a driver pod. One of a revision that no watch has shown yet is newer than what is taken for the
        newest, unless it is older than that, or was made of an earlier template: then its revision has been deleted, or belonged
        to another DaemonSet. One that was made of this very template has a label that somebody has edited; so has one without a
        number, which each pod gets where its DaemonSet has one.
        """
        if driver is None or driver.orphan or driver.revision in self.known or self.edited is not None:
            return self
        if driver.created < self.created or 0 < driver.template_generation < self.template:
            return self
        if self.digest and has_edited_revision(driver, self.template):
            alike = driver.config_digest == self.digest
            return msgspec.structs.replace(self, same=self.same | {driver.revision}) if alike else self
        return UNSETTLED


UNSETTLED = Target()
AWAITED = Target(awaited=True)


def elsewhere(moving: Placement | None, following: Target, *, removing: bool) -> Target | None:
    """Return the target of a node whose driver is to come from another DaemonSet, or to go; None for any other node. It is none
    to go by while somebody else edits that DaemonSet, of which `following` is the target.
    """
    if removing or moving is None:
        return Target(NO_DRIVER) if removing else None
    return Target(str(moving)) if following.edited is None else Target(edited=following.edited)


def targets_of(snapshot: Snapshot, driving: Container[str], now: float = 0.0) -> dict[str, Target]:
    """Return what the newest revision of each DaemonSet that has settled asks for, by the DaemonSet's uid.

    DaemonSets and revisions are watched apart, and either watch may lag: while the two do not tell of the same driver, it is not
    known what a driver pod would become.
    """
    daemonsets = {ds.uid: ds for ds in snapshot.daemonsets if ds.uid in driving}
    targets = {}
    for uid, ds in daemonsets.items():
        if (edited := _edited(ds, snapshot.edits.get(uid), now)) is not None:
            targets[uid] = Target(edited=edited)
            continue
        found = revisions_of(uid, snapshot.revisions)
        if (newest := found.newest) is not None and _agree(ds, newest):
            targets[uid] = Target(
                newest.hash, newest.config_digest, _version(ds), found.same, found.known, newest.created, ds.template_generation)
    return targets


def _version(ds: DaemonSetView) -> str:
    """Return the version of the driver without the kernel and the operating system that its DaemonSet is for: all nodes of a
    rollout have one.
    """
    placed = ds.node_selector
    return version_of(ds.image, placed.get(names.DRIVER_KERNEL, ""), tag_of(placed.get(names.DRIVER_OS, "")))


def _edited(ds: DaemonSetView, edit: Edit | None, now: float) -> Hold | None:
    if edit is None or ((end := until(edit)) is not None and end <= now):
        return None
    return Hold(TemplateEdited(ds.name, edit.by or "somebody"), edit.at, end)


def _agree(ds: DaemonSetView, revision: RevisionView) -> bool:
    told = ds.pod_digest and revision.pod_digest
    return ds.settled and ds.config_digest == revision.config_digest and (not told or ds.pod_digest == revision.pod_digest)
