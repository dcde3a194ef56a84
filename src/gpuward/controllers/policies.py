"""The ClusterPolicy in force, typed; what is wrong with it; and the upgrade policy that follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.crd import decode, validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.conversion import upgrade_policy
from gpuward.errors import PolicyError
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView


class ActivePolicy(msgspec.Struct, frozen=True):
    """Hold the policy in force. Without a `policy` there is none, or it cannot be decoded; `problems` say why."""

    view: PolicyView | None = None
    policy: ClusterPolicy | None = None
    problems: tuple[PolicyError, ...] = ()
    upgrades: UpgradePolicy = UpgradePolicy()

    @property
    def valid(self) -> ClusterPolicy | None:
        """Return the policy if it can be followed as it is."""
        return None if self.problems else self.policy


class PolicyReader:
    """Read the active ClusterPolicy of snapshots, decoding each version of its spec once."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, int, str], ActivePolicy] | None = None

    def read(self, snapshot: Snapshot) -> ActivePolicy:
        """Return the policy in force: the oldest ClusterPolicy. The others are ignored."""
        if not snapshot.policies:
            return ActivePolicy()
        view = snapshot.policies[0]
        key = (view.uid, view.generation, _remembered(view.body))
        if self._last is None or self._last[0] != key:
            self._last = (key, _read(view))
        active = self._last[1]
        return active if active.view == view else msgspec.structs.replace(active, view=view)


def _read(view: PolicyView) -> ActivePolicy:
    problems = decode.violations_of(view.body, ClusterPolicy)
    policy = None
    if not problems:
        policy = decode.cluster_policy(view.body)
        problems = validate.cluster_policy(policy)
    if policy is None or problems:
        return ActivePolicy(view, policy, tuple(problems), _last_valid(view.body))
    return ActivePolicy(view, policy, (), _upgrades(policy))


def _upgrades(policy: ClusterPolicy) -> UpgradePolicy:
    """Return the upgrade policy; drivers of sandbox nodes, and those of NVIDIADriver objects, are not upgraded by it."""
    spec = policy.spec
    upgrades = upgrade_policy(spec.driver.upgrade_policy)
    if spec.sandbox_workloads.is_enabled or spec.driver.use_nvidia_driver_crd:
        return msgspec.structs.replace(upgrades, auto_upgrade=False)
    return upgrades


def remember(upgrades: UpgradePolicy) -> str:
    """Return the annotation in which a valid upgrade policy outlives an invalid edit of the ClusterPolicy."""
    return msgspec.json.encode(upgrades).decode()


def _remembered(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata", {}).get("annotations") or {}).get(names.VALID_UPGRADE_POLICY, ""))


def _last_valid(body: Mapping[str, Any]) -> UpgradePolicy:
    """Return the policy under which nodes in progress finish while the written one is invalid. It starts nothing new."""
    try:
        upgrades = msgspec.json.decode(_remembered(body), type=UpgradePolicy)
    except msgspec.MsgspecError:
        upgrades = UpgradePolicy(auto_upgrade=True)
    return msgspec.structs.replace(upgrades, admit=False)
