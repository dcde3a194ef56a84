"""What a process knew of the policies when it decided: what may have been in force for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.crd.conversion import upgrade_policy
from gpuward.crd.driver_upgrade import DriverUpgradePolicy, NVIDIADriverUpgradePolicy
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import DeviceHolders
from tools.simulate.policies import BROKEN_LIMIT, NVIDIA_DRIVERS, is_broken

if TYPE_CHECKING:
    from tools.simulate.history import History
    from tools.simulate.process import Knower, Process
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]


def known_policies(process: Knower, history: History, node: str) -> list[UpgradePolicy | None]:
    """Return the upgrade policies that a process may have decided under about a node, None for one that cannot be followed."""
    found: list[UpgradePolicy | None] = []
    for policy in history.policies(process):
        if policy is None or is_refused(policy):
            found.append(None)
        elif leaves_drivers(policy):
            found += [each for owner in sorted(history.owners(node, process)) if owner
                      for each in versions_of(process, history, owner)]
        else:
            found.append(_followed(policy))
    return found


def leaves_drivers(policy: Object) -> bool:
    """Tell whether a ClusterPolicy leaves drivers to NVIDIADrivers, whether or not its own would be enabled."""
    return bool(policy["spec"]["driver"].get("useNvidiaDriverCRD"))


def turns_drivers_off(policy: Object) -> bool:
    """Tell whether a ClusterPolicy, or an NVIDIADriver, wants no drivers: `driver.enabled` says nothing about NVIDIADrivers'."""
    driver = policy["spec"].get("driver") or {}
    return driver.get("enabled") is False and not driver.get("useNvidiaDriverCRD")


def is_refused(policy: Object) -> bool:
    """Tell whether a ClusterPolicy asks for something that cannot be followed."""
    sandbox = policy["spec"].get("sandboxWorkloads") or {}
    return bool(sandbox.get("enabled")) or _upgrade(policy).get("maxUnavailable") == BROKEN_LIMIT


def _drivers(node: str, process: Process, history: History) -> list[Object | None]:
    return [policy for owner in sorted(history.owners(node, process)) if owner for policy in history.policies(process, owner)]


def _upgrade(policy: Object) -> Object:
    spec = policy["spec"].get("driver") or policy["spec"]
    return spec.get("upgradePolicy") or {}


def _followed(policy: Object | None) -> UpgradePolicy | None:
    if policy is None or _upgrade(policy).get("maxUnavailable") == BROKEN_LIMIT:
        return None
    if policy["kind"] == "ClusterPolicy":
        return upgrade_policy(msgspec.convert(_upgrade(policy), DriverUpgradePolicy))
    return upgrade_policy(msgspec.convert(_upgrade(policy), NVIDIADriverUpgradePolicy))


def followed(policies: Iterable[Object | None]) -> list[UpgradePolicy]:
    """Return those of several versions of a policy that can be followed."""
    return [found for policy in policies if (found := _followed(policy)) is not None]


def versions_of(process: Knower, history: History, driver: str) -> list[UpgradePolicy | None]:
    """Return what an NVIDIADriver, or the ClusterPolicy under an empty name, said of upgrades; None where it cannot be followed.

    The drivers of an NVIDIADriver that is deleted while it cannot be followed go by what was kept of those before.
    """
    deleted = bool(driver) and history.is_deleted(process, driver)
    return [_followed(policy) or (noted_policy(policy) if deleted and policy is not None else None)
            for policy in history.policies(process, driver)]


def kept_policies(process: Process, history: History, node: str) -> list[UpgradePolicy]:
    """Return the policies under which nodes in progress may finish."""
    found = [*history.policies(process), *_drivers(node, process, history)]
    now = followed(each for each in _drivers(node, process, history))
    return [*now, *(noted_policy(policy) for policy in found if policy is not None)]


def is_noted(owner: str, world: SimulatedWorld) -> bool:
    """Tell whether the DaemonSet of an NVIDIADriver that is gone says that upgrades were on: that is what a process goes by that
    came later, though the NVIDIADriver said otherwise last, to nobody.
    """
    if not owner or world.sandbox.store.find(NVIDIA_DRIVERS, None, owner) is not None:
        return False
    daemonsets = world.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE)
    theirs = [ds for ds in daemonsets if ds["spec"]["template"]["spec"].get("nodeSelector", {}).get(names.DRIVER_OWNER) == owner]
    return any(noted_policy(ds).auto_upgrade for ds in theirs)


def noted_policy(policy: Object) -> UpgradePolicy:
    """Return the upgrade policy that an operator noted on a policy, or on the DaemonSet of an NVIDIADriver that is gone."""
    text = (policy["metadata"].get("annotations") or {}).get(names.VALID_UPGRADE_POLICY, "")
    try:
        return msgspec.json.decode(text, type=UpgradePolicy)
    except (msgspec.MsgspecError, RecursionError):
        return UpgradePolicy(auto_upgrade=True)


def known_settings(process: Knower, history: History) -> list[Object | None]:
    """Return the RolloutPolicies' specs that a process may have decided under, None for one that cannot be followed."""
    return [None if is_broken(spec) else spec for spec in history.settings(process)]


def may_ignore_holders(process: Process, history: History, node: str) -> bool:
    """Tell whether a process may take it that pods that hold the driver are to be left alone."""
    settings = known_settings(process, history)
    if any(spec is not None and spec.get("deviceHolders") == DeviceHolders.IGNORE for spec in settings):
        return True
    kept = (policy.rollout.device_holders for policy in kept_policies(process, history, node))
    return None in settings and DeviceHolders.IGNORE in kept


def noted(obj: Object, key: str) -> str:
    """Return what an annotation says, nothing where it is not there."""
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")


def word_of(obj: Object, key: str) -> Mapping[str, Any]:
    """Return what an annotation says, nothing where it is garbage."""
    try:
        found = msgspec.json.decode(noted(obj, key) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("targets"), list) else {}
