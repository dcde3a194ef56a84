"""What the driver pods of a DaemonSet should be, as far as its revisions tell."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from gpuward.model.driver import revisions_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, PodView, RevisionView


class Target(msgspec.Struct, frozen=True):
    """Say what the driver pods of one DaemonSet should be."""

    hash: str = ""
    digest: str = ""
    same: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    created: float = 0.0
    template: int = 0
    """The number of the template, which grows whenever it is changed; 0 where it is not known."""

    def of(self, driver: PodView | None) -> Target:
        """Return the target of a driver pod. One of a revision that no watch has shown yet is newer than what is taken for the
        newest, unless it is older than that, or was made of an earlier template: then its revision has been deleted, or belonged
        to another DaemonSet.
        """
        if driver is None or driver.orphan or driver.revision in self.known:
            return self
        if driver.created < self.created or 0 < driver.template_generation < self.template:
            return self
        return UNSETTLED


UNSETTLED = Target()


def targets_of(snapshot: Snapshot, driving: Container[str]) -> dict[str, Target]:
    """Return what the newest revision of each DaemonSet that has settled asks for, by the DaemonSet's uid.

    DaemonSets and revisions are watched apart, and either watch may lag: while the two do not tell of the same driver, it is not
    known what a driver pod would become.
    """
    daemonsets = {ds.uid: ds for ds in snapshot.daemonsets if ds.uid in driving}
    targets = {}
    for uid, ds in daemonsets.items():
        found = revisions_of(uid, snapshot.revisions)
        if (newest := found.newest) is not None and _agree(ds, newest):
            targets[uid] = Target(
                newest.hash, newest.config_digest, found.same, found.known, newest.created, ds.template_generation)
    return targets


def _agree(ds: DaemonSetView, revision: RevisionView) -> bool:
    return ds.settled and ds.config_digest == revision.config_digest
