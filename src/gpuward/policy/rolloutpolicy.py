"""The RolloutPolicy in force, typed, and what it makes of an upgrade policy.

One that cannot be followed starts nothing new, like an invalid ClusterPolicy; nodes in progress go on under the settings that
were in force last, which the ClusterPolicy remembers, and under the defaults where it remembers none.
"""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.errors import PolicyError
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reading import read_time
from gpuward.model.rights import NODE_CONDITIONS
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView

RESUMED_FIELD = f"metadata.annotations['{names.RESUMED_AT}']"


class ActiveRollout(msgspec.Struct, frozen=True):
    """Hold the RolloutPolicy in force and its settings: the defaults without one, None where it cannot be followed."""

    view: PolicyView | None = None
    problems: tuple[PolicyError, ...] = ()
    settings: RolloutSettings | None = RolloutSettings()

    @property
    def key(self) -> tuple[str, int, bool] | None:
        """Return what is another one whenever the settings may be."""
        return _key(self.view) if self.view else None

    @property
    def title(self) -> str:
        """Return kind and name."""
        return f"RolloutPolicy {self.view.name}" if self.view else ""

    def lacks(self, snapshot: Snapshot) -> frozenset[str]:
        """Return which of the rights that are missing matter: what was refused before a setting was taken back does no more,
        once no node has a condition of ours that is to go.
        """
        forbidden = snapshot.forbidden
        if NODE_CONDITIONS not in forbidden or self.settings is None or self.settings.interop.node_conditions:
            return forbidden
        kept = any(one.ours for node in snapshot.nodes.values() for one in node.told)
        return forbidden if kept else forbidden - {NODE_CONDITIONS}


class RolloutReader:
    """Read the active RolloutPolicy of snapshots, decoding each version of its spec once."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, int, bool], ActiveRollout] | None = None

    def read(self, snapshot: Snapshot) -> ActiveRollout:
        """Return the policy in force: the oldest RolloutPolicy that is not being deleted. The others are ignored."""
        view = next((each for each in snapshot.rollout_policies if not each.deleting), None)
        if view is None:
            return ActiveRollout()
        key = _key(view)
        if self._last is None or self._last[0] != key:
            self._last = (key, _read(view))
        active = self._last[1]
        return active if active.view == view else msgspec.structs.replace(active, view=view)


def _read(view: PolicyView) -> ActiveRollout:
    policy, problems = typed_rollout(view.body)
    if policy is None or problems:
        return ActiveRollout(view, tuple(problems), None)
    settings = rollout_settings(policy)
    return ActiveRollout(view, (), _only_holding(settings) if view.gone else settings)


def _only_holding(settings: RolloutSettings) -> RolloutSettings:
    """Return the settings of a RolloutPolicy that is gone without leave to take pods, or drivers from under them: whoever has
    deleted it may have meant just that.
    """
    return msgspec.structs.replace(
        settings, kill_at_deadline=False, remove_at_once=False, device_holders=DeviceHolders.HOLD)


def _key(view: PolicyView) -> tuple[str, int, bool]:
    return view.uid, view.generation, view.gone


def governed(upgrades: UpgradePolicy, rollout: ActiveRollout, last: RolloutSettings, resumed_at: float) -> UpgradePolicy:
    """Return an upgrade policy with the settings of the RolloutPolicy, or, while that is invalid, with the `last` ones."""
    settings = last if rollout.settings is None else rollout.settings
    return msgspec.structs.replace(
        upgrades,
        admit=upgrades.admit and not rollout.problems,
        invalid=rollout.title if rollout.problems else upgrades.invalid,
        rollout=msgspec.structs.replace(settings, resumed_at=resumed_at),
    )


def resumed_at(text: str) -> float:
    """Return the time in the annotation that `gpuward resume` sets, 0 where there is none.

    Raises:
        PolicyError: it is no time.
    """
    if not text:
        return 0.0
    try:
        return read_time(text)
    except ValueError:
        fix = "write a time such as 2026-01-31T12:00:00Z, or let `gpuward resume` write it"
        raise PolicyError(RESUMED_FIELD, text, fix) from None
