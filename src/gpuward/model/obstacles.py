"""Why a pod that must leave its node may not be evicted; `gpuward.model.explain` makes sentences of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuward.model.views import Ref

Setting = Literal["podDeletion", "drain"]
"""The part of the upgrade policy that would permit it."""


class StaticPod(msgspec.Struct, frozen=True):
    """The kubelet would start it again."""


class OfDaemonSet(msgspec.Struct, frozen=True):
    """A DaemonSet would start it again."""

    name: str


class LosesData(msgspec.Struct, frozen=True):
    """It has an emptyDir volume."""

    setting: Setting


class NotStartedAgain(msgspec.Struct, frozen=True):
    """No controller would start it again."""

    setting: Setting


class HoldsDriver(msgspec.Struct, frozen=True):
    """It asks for no GPU, and may stay for all that the RolloutPolicy says."""

    how: str


class SeveralBudgets(msgspec.Struct, frozen=True):
    """More than one disruption budget covers it."""

    budgets: tuple[Ref, ...]


Obstacle = StaticPod | OfDaemonSet | LosesData | NotStartedAgain | HoldsDriver | SeveralBudgets
