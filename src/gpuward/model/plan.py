"""What a decision returns: the actions for now, what every waiting node waits for, and when time alone changes the answer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpuward.model.actions import Action
from gpuward.model.states import State


class Reason(StrEnum):
    """Name why a node does not go on. The sentence for people is made at the edge, by `gpuward.upgrade.explain`."""

    # Gates of admission.
    SKIPPED = "Skipped"
    PAUSED = "Paused"
    NO_POLICY = "NoPolicy"
    INVALID_POLICY = "InvalidPolicy"
    NODE_GONE = "NodeGone"
    NODE_NOT_READY = "NodeNotReady"
    DRIVER_POD_MISSING = "DriverPodMissing"
    DRIVER_ORPHANED = "DriverOrphaned"
    TEMPLATE_SETTLING = "TemplateSettling"
    FAILURE_BUDGET = "FailureBudget"
    NEW_DRIVER_FAILS = "NewDriverFails"
    HELD_DEVICES = "HeldDevices"
    PROTECTED_PODS = "ProtectedPods"
    BUDGET_BLOCKS = "BudgetBlocks"
    BUDGET_USED_UP = "BudgetUsedUp"
    UNAVAILABLE_LIMIT = "UnavailableLimit"
    PARALLEL_LIMIT = "ParallelLimit"
    # Waits of a node in progress.
    JOBS_RUNNING = "JobsRunning"
    EVICTING = "Evicting"
    EVICTION_REFUSED = "EvictionRefused"
    COMES_BACK = "ComesBack"
    KILLING = "Killing"
    DRIVER_STOPPING = "DriverStopping"
    DRIVER_STARTING = "DriverStarting"
    DRIVER_FAILING = "DriverFailing"
    VALIDATOR_MISSING = "ValidatorMissing"
    VALIDATOR_STARTING = "ValidatorStarting"
    VALIDATOR_REPLACING = "ValidatorReplacing"
    FAILED = "Failed"
    RETRY_LATER = "RetryLater"
    # Waits of a node in any state.
    UNKNOWN_STATE = "UnknownState"
    TWO_DRIVER_PODS = "TwoDriverPods"
    MAINTENANCE = "Maintenance"
    METADATA_BEHIND = "MetadataBehind"
    WRITE_REFUSED = "WriteRefused"
    MOVE_PAUSED = "MovePaused"
    UNDECIDED = "Undecided"

    @property
    def concerns_fleet(self) -> bool:
        """Tell whether it holds many nodes for one and the same cause, and so says nothing about any of them."""
        return self in _OF_FLEET

    @property
    def is_turn(self) -> bool:
        """Tell whether a node that it holds only waits for others to be done."""
        return self in _TURN

    @property
    def in_passing(self) -> bool:
        """Tell whether every node that is upgraded has it for a while."""
        return self in _IN_PASSING

    @property
    def needs_person(self) -> bool:
        """Tell whether it does not end without somebody who looks at it."""
        return self in _NEEDS_PERSON

    @property
    def passed_over(self) -> bool:
        """Tell whether others go on before a node that it holds, and nothing else in the log tells of it: a refused write and
        evictions for a pod that comes back have lines of their own.
        """
        return self in _PASSED_OVER


_TURN: Final = frozenset({Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT})
_OF_FLEET: Final = _TURN | {
    Reason.PAUSED, Reason.NO_POLICY, Reason.INVALID_POLICY, Reason.FAILURE_BUDGET, Reason.NEW_DRIVER_FAILS,
    Reason.TEMPLATE_SETTLING,
}
_IN_PASSING: Final = frozenset({
    Reason.EVICTING, Reason.DRIVER_STOPPING, Reason.DRIVER_STARTING, Reason.VALIDATOR_MISSING, Reason.VALIDATOR_STARTING,
    Reason.VALIDATOR_REPLACING,
})
_NEEDS_PERSON: Final = frozenset({
    Reason.NODE_NOT_READY, Reason.HELD_DEVICES, Reason.PROTECTED_PODS, Reason.BUDGET_BLOCKS, Reason.FAILED, Reason.UNKNOWN_STATE,
    Reason.TWO_DRIVER_PODS, Reason.DRIVER_FAILING, Reason.UNDECIDED, Reason.WRITE_REFUSED, Reason.COMES_BACK,
})
_PASSED_OVER: Final = (_NEEDS_PERSON - {Reason.WRITE_REFUSED, Reason.COMES_BACK}) | {
    Reason.SKIPPED, Reason.NODE_GONE, Reason.RETRY_LATER, Reason.MAINTENANCE}


class Hold(msgspec.Struct, frozen=True):
    """Say why one node waits: a code with its arguments, since when, and when time alone would end it."""

    reason: Reason
    args: Mapping[str, object] = {}
    since: float = 0.0
    until: float | None = None


class Counts(msgspec.Struct, frozen=True):
    """Count the managed nodes for the six upgrade metrics."""

    total: int = 0
    in_progress: int = 0
    done: int = 0
    failed: int = 0
    available: int = 0
    """Nodes that could start now if they wanted to."""
    pending: int = 0
    unavailable: int = 0
    up_to_date: int = 0
    """Nodes on which the target driver is loaded and validated, whatever their label says."""


class NodeStatus(msgspec.Struct, frozen=True):
    """Summarise one managed node for people: its state after this plan and what it waits for."""

    state: State | None
    since: float
    hold: Hold | None = None
    label: str = ""
    turn: int = 0
    """The node's place among those that only wait for others, from 1; 0 for one that something else holds."""
    up_to_date: bool = False
    """Whether the target driver is loaded on the node and validated, and nothing is under way there."""


class Plan(msgspec.Struct, frozen=True):
    """Hold one decision about the fleet."""

    actions: tuple[Action, ...] = ()
    nodes: Mapping[str, NodeStatus] = {}
    wake_at: float | None = None
    counts: Counts = Counts()
    auto_upgrade: bool = False
    troubles: Mapping[str, str] = {}
    """Why nothing could be decided, by the NVIDIADriver whose nodes it is about; empty for the ClusterPolicy's."""

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Return what every waiting node waits for, by node name."""
        return {name: status.hold for name, status in self.nodes.items() if status.hold is not None}

    def waiting(self) -> Plan:
        """Return the same view of the fleet with nothing to do: for a moment in which deciding anew is not possible."""
        return msgspec.structs.replace(self, actions=(), wake_at=None)
