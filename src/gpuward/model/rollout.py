"""gpuward's own settings of a rollout, all with defaults: what NVIDIA's policy has no field for. See the CRD RolloutPolicy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from gpuward.model.analysis import Analysis
from gpuward.model.approved_plan import ApprovedPlan
from gpuward.model.begun_waves import BegunWaves
from gpuward.model.domains import DomainSettings
from gpuward.model.gangs import GangSettings
from gpuward.model.marks import Interop
from gpuward.model.notice import NoticeSettings
from gpuward.model.opportunities import OpportunisticSettings
from gpuward.model.staging import Prestage
from gpuward.model.states import State
from gpuward.model.undrainable import UndrainableSettings
from gpuward.model.waves import Growth, Wave, Word
from gpuward.model.windows import Window, WindowFit

CLOCKS_DIFFER = 60.0
"""Seconds by which the clock of whoever resumes a rollout may be ahead of the operator's."""


class DeviceHolders(StrEnum):
    """Say what happens to pods that hold the driver without asking Kubernetes for a GPU."""

    HOLD = "Hold"
    """The node is held, before it is cordoned, until they are gone."""
    EVICT = "Evict"
    """They are evicted like GPU pods."""
    IGNORE = "Ignore"
    """They are left alone; the driver may fail to unload under them."""


class FailureBudget(msgspec.Struct, frozen=True):
    """Bound the failed nodes of one rollout: it pauses once more than the larger of the two have failed."""

    nodes: int = 3
    percent: int = 10

    def of(self, total: int) -> int:
        """Return how many of `total` nodes may fail; percentages are rounded down, as more failures than that pause."""
        return max(self.nodes, math.floor(self.percent * total / 100))


DEADLINES: Mapping[State, float] = MappingProxyType({State.POD_RESTART_REQUIRED: 1800.0, State.VALIDATION_REQUIRED: 600.0})
"""Seconds that a state may take. The driver: its startup probe allows 21 minutes, and its image has to be pulled. The
validator: NVIDIA's fixed limit. States with a timeout in NVIDIA's policy have that one; where it is 0, one may be set here."""


class RolloutSettings(msgspec.Struct, frozen=True):
    """Hold the settings of a RolloutPolicy with every default filled in. Times are in seconds."""

    failure_budget: FailureBudget = FailureBudget()
    deadlines: Mapping[State, float] = {}
    """Deadlines that differ from `DEADLINES`; 0 for none."""
    retries: int = 3
    """How often a failed node is tried again."""
    retry_backoff: float = 60.0
    """Seconds until a failed node is tried again; it doubles with each attempt."""
    discovery_grace: float = 600.0
    """How long a node may lack its discovery labels before its operands are taken away."""
    device_holders: DeviceHolders = DeviceHolders.HOLD
    kill_at_deadline: bool = False
    """Whether pods still there at the end of an eviction's timeout are deleted, each with its own grace period up to a
    bound."""
    remove_at_once: bool = False
    """Whether drivers that are to go are taken from all their nodes at once, whatever uses them."""
    windows: tuple[Window, ...] = ()
    """When nodes may start; always where there are none."""
    window_fit: WindowFit = WindowFit.OFF
    finish_by: float = 0.0
    """When a rollout should be done; 0 where nobody says. It holds and starts nothing."""
    domains: DomainSettings | None = None
    """Which nodes break together, and how many may; None where nobody says."""
    gangs: GangSettings | None = None
    """How long gangs are spared after nodes have started together for them; None where nodes start one by one."""
    opportunistic: OpportunisticSettings | None = None
    """How long nodes wait until nobody uses their GPUs; None where they do not."""
    undrainable: UndrainableSettings | None = None
    """What becomes of a node whose pods cannot be moved; None where nobody says, and it waits."""
    waves: tuple[Wave, ...] = ()
    """Which nodes go before others; the last wave, with all others, is not among them."""
    growth: Growth | None = None
    approved: Word | None = None
    """What somebody approved last: waves that were done by then."""
    promoted: Word | None = None
    """Waves that were done by then soak no longer, and its nodes are not waited for."""
    aborted: Word | None = None
    analysis: Analysis = Analysis()
    """What is remembered of the analyses of its waves."""
    begun: BegunWaves = BegunWaves()
    """Which of its waves have begun and are not over, as it is remembered."""
    approved_plan: ApprovedPlan | None = None
    """The plan that the rollout has to keep to; None where it need not."""
    prestage: Prestage = Prestage()
    notice: NoticeSettings | None = None
    """How long before pods are evicted from a node they are told; None where they are not."""
    interop: Interop = Interop()
    resumed_at: float = 0.0
    """When somebody last resumed the rollout: failures up to then do not count against the budget."""

    def deadline(self, state: State) -> float:
        """Return how many seconds a state may take, 0 for ever."""
        return self.deadlines.get(state, DEADLINES.get(state, 0.0))
