"""The upgrade policies by which drivers go: they are switched off, or their NVIDIADriver is gone."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.departed import removed_drivers, unseen_departures
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.kept import kept
from gpuward.policy.rolloutpolicy import ActiveRollout, governed


def removing(upgrades: UpgradePolicy) -> UpgradePolicy:
    """Return the policy by which drivers go that it was for. Where upgrades are not automatic nobody is disturbed for that, and
    the drivers go from nodes that nothing uses.
    """
    if upgrades.auto_upgrade or upgrades.absent:
        return upgrades
    return msgspec.structs.replace(upgrades, auto_upgrade=True, free_only=True)


def paused_for_machines(upgrades: UpgradePolicy, policy: ActivePolicy) -> UpgradePolicy:
    """Return the policy of an NVIDIADriver under a ClusterPolicy: with sandboxWorkloads enabled no driver is upgraded, as with
    NVIDIA's operator, and no node tells driver managers that it is emptied for them.
    """
    if policy.workloads is None or not policy.workloads.enabled:
        return upgrades
    machines = policy.view.name if policy.view is not None else ""
    return msgspec.structs.replace(
        upgrades, auto_upgrade=False, switches=msgspec.structs.replace(upgrades.switches, machines=machines))


def gone_policies(snapshot: Snapshot, rollout: ActiveRollout) -> tuple[UpgradePolicy, ...]:
    """Return the policies of NVIDIADrivers that are gone, as their DaemonSets keep them, until their drivers have gone, too.
    Under one of which it cannot be seen how it went nothing starts.
    """
    found = []
    for name, ds in sorted(removed_drivers(snapshot).items()):
        last = kept({"metadata": {"annotations": {names.VALID_UPGRADE_POLICY: ds.upgrade_policy}}}).upgrades
        found.append(msgspec.structs.replace(governed(last, rollout, last.rollout, 0.0), driver=name, gone=True))
    known = {each.driver for each in found}
    unseen = (UpgradePolicy(driver=name, gone=True, unseen=why) for name, why in sorted(unseen_departures(snapshot).items())
              if name not in known)
    return (*found, *unseen)


def under(upgrades: UpgradePolicy, policy: ActivePolicy) -> UpgradePolicy:
    """Return the policy of an NVIDIADriver that is gone, under a ClusterPolicy. Resuming that one resumes it, too."""
    resumed = policy.upgrades.rollout.resumed_at
    upgrades = msgspec.structs.replace(upgrades, rollout=msgspec.structs.replace(upgrades.rollout, resumed_at=resumed))
    upgrades = paused_for_machines(upgrades, policy)
    if policy.problems and policy.view is not None:
        upgrades = msgspec.structs.replace(upgrades, admit=False, invalid=f"ClusterPolicy {policy.view.name}")
    if absent := policy.upgrades.absent:
        return msgspec.structs.replace(upgrades, auto_upgrade=False, absent=absent)
    return upgrades if upgrades.unseen else removing(upgrades)
