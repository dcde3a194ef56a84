"""What a process knew of the policies when it decided: what may have been in force for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.crd.conversion import upgrade_policy
from gpuward.crd.driver_upgrade import DriverUpgradePolicy
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import DeviceHolders
from tools.simulate.policies import BROKEN_LIMIT, is_broken

if TYPE_CHECKING:
    from tools.simulate.history import History
    from tools.simulate.process import Process

Object = dict[str, Any]


def known_policies(process: Process, history: History) -> list[UpgradePolicy | None]:
    """Return the upgrade policies that a process may have decided under, None for one that cannot be followed."""
    return [_followed(policy) for policy in history.policies(process)]


def _followed(policy: Object) -> UpgradePolicy | None:
    found = policy["spec"]["driver"].get("upgradePolicy") or {}
    if found.get("maxUnavailable") == BROKEN_LIMIT:
        return None
    return upgrade_policy(msgspec.convert(found, DriverUpgradePolicy))


def kept_policies(process: Process, history: History) -> list[UpgradePolicy]:
    """Return the policies under which nodes in progress may finish."""
    return [_kept(policy) for policy in history.policies(process)]


def _kept(policy: Object) -> UpgradePolicy:
    text = (policy["metadata"].get("annotations") or {}).get(names.VALID_UPGRADE_POLICY, "")
    try:
        return msgspec.json.decode(text, type=UpgradePolicy)
    except msgspec.MsgspecError:
        return UpgradePolicy(auto_upgrade=True)


def known_settings(process: Process, history: History) -> list[Object | None]:
    """Return the RolloutPolicies' specs that a process may have decided under, None for one that cannot be followed."""
    return [None if is_broken(spec) else spec for spec in history.settings(process)]


def may_ignore_holders(process: Process, history: History) -> bool:
    """Tell whether a process may take it that pods that hold the driver are to be left alone."""
    settings = known_settings(process, history)
    if any(spec is not None and spec.get("deviceHolders") == DeviceHolders.IGNORE for spec in settings):
        return True
    kept = (policy.rollout.device_holders for policy in kept_policies(process, history))
    return None in settings and DeviceHolders.IGNORE in kept
