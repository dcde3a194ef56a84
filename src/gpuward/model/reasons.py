"""The codes of the reasons why a node does not go on, and what they mean for those who tell of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Name why a node does not go on. The sentence for people is made at the edge, by `gpuward.model.explain`."""

    # Gates of admission.
    SKIPPED = "Skipped"
    PAUSED = "Paused"
    NO_POLICY = "NoPolicy"
    INVALID_POLICY = "InvalidPolicy"
    NODE_GONE = "NodeGone"
    NODE_NOT_READY = "NodeNotReady"
    DRIVER_POD_MISSING = "DriverPodMissing"
    DRIVER_ORPHANED = "DriverOrphaned"
    NOT_SELECTED = "NotSelected"
    DRIVER_REFUSED = "DriverRefused"
    WRONG_DRIVER_TYPE = "WrongDriverType"
    DRIVER_LABEL_UNKNOWN = "DriverLabelUnknown"
    KERNEL_UNKNOWN = "KernelUnknown"
    TEMPLATE_SETTLING = "TemplateSettling"
    TEMPLATE_EDITED = "TemplateEdited"
    DRIVER_REPELLED = "DriverRepelled"
    VALIDATION_OFF = "ValidationOff"
    IMAGE_MISSING = "ImageMissing"
    WINDOW_SHUT = "WindowShut"
    IDLE_AWAITED = "IdleAwaited"
    ABORTED = "Aborted"
    PLAN_DIFFERS = "PlanDiffers"
    WAVE_FAILED = "WaveFailed"
    WAVE_EMPTY = "WaveEmpty"
    WAVE_NOT_DONE = "WaveNotDone"
    WAVE_SOAKING = "WaveSoaking"
    ANALYSIS_FAILED = "AnalysisFailed"
    ANALYSIS_UNKNOWN = "AnalysisUnknown"
    ANALYSIS_RUNNING = "AnalysisRunning"
    APPROVAL_REQUIRED = "ApprovalRequired"
    WAVE_LIMIT = "WaveLimit"
    GROWTH_LIMIT = "GrowthLimit"
    GANG_AWAITED = "GangAwaited"
    GANG_SPARED = "GangSpared"
    IMAGE_NOT_STAGED = "ImageNotStaged"
    STAGING_FAILED = "StagingFailed"
    NOTICE_GIVEN = "NoticeGiven"
    NOTICE_UNANSWERED = "NoticeUnanswered"
    MAINTENANCE_UNSEEN = "MaintenanceUnseen"
    OPERANDS_STARTING = "OperandsStarting"
    FAILURE_BUDGET = "FailureBudget"
    NEW_DRIVER_FAILS = "NewDriverFails"
    REFUSED_ELSEWHERE = "RefusedElsewhere"
    EVICTION_FORBIDDEN = "EvictionForbidden"
    LEDGER_REFUSED = "LedgerRefused"
    DRIVER_KEPT = "DriverKept"
    DELETION_UNSEEN = "DeletionUnseen"
    HELD_DEVICES = "HeldDevices"
    PROTECTED_PODS = "ProtectedPods"
    UNDRAINABLE = "Undrainable"
    BUDGET_BLOCKS = "BudgetBlocks"
    BUDGET_USED_UP = "BudgetUsedUp"
    DOMAIN_LIMIT = "DomainLimit"
    DOMAIN_BROKEN = "DomainBroken"
    UNAVAILABLE_LIMIT = "UnavailableLimit"
    PARALLEL_LIMIT = "ParallelLimit"
    NO_NODE_MAY_START = "NoNodeMayStart"
    # Waits of a node in progress.
    JOBS_RUNNING = "JobsRunning"
    MAINTENANCE_AWAITED = "MaintenanceAwaited"
    EVICTING = "Evicting"
    EVICTION_REFUSED = "EvictionRefused"
    COMES_BACK = "ComesBack"
    UNCORDONED = "Uncordoned"
    KILLING = "Killing"
    QUARANTINED = "Quarantined"
    DRIVER_STOPPING = "DriverStopping"
    DEVICE_PLUGIN_STOPPING = "DevicePluginStopping"
    DOES_NOT_STOP = "DoesNotStop"
    REPLACEMENT_REFUSED = "ReplacementRefused"
    DRIVER_STARTING = "DriverStarting"
    DRIVER_UNPLACED = "DriverUnplaced"
    DRIVER_FAILING = "DriverFailing"
    DRIVER_IN_USE = "DriverInUse"
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
    WRITE_UNANSWERED = "WriteUnanswered"
    MOVE_PAUSED = "MovePaused"
    OPERAND_FAILING = "OperandFailing"
    MIG_NOT_APPLIED = "MigNotApplied"
    WORKLOAD_KEPT = "WorkloadKept"
    OPERANDS_KEPT = "OperandsKept"
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
    def ends_by_itself(self) -> bool:
        """Tell whether it is over in time, if nothing goes wrong."""
        return self in _WAITS

    @property
    def is_waited_for(self) -> bool:
        """Tell whether people are told that nodes wait for it, and not that it holds them: nobody has to act, or not yet, as a
        deadline may make a failure of it.
        """
        return self in _WAITED_FOR

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


BESIDE_THE_DRIVER: Final = frozenset({Reason.OPERAND_FAILING, Reason.MIG_NOT_APPLIED})
"""What is wrong on a node whose driver is as it should be."""
_TURN: Final = frozenset({
    Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.DOMAIN_LIMIT, Reason.WAVE_NOT_DONE, Reason.WAVE_LIMIT,
    Reason.GROWTH_LIMIT, Reason.GANG_AWAITED})
_OF_FLEET: Final = _TURN | {
    Reason.PAUSED, Reason.NO_POLICY, Reason.INVALID_POLICY, Reason.FAILURE_BUDGET, Reason.NEW_DRIVER_FAILS,
    Reason.REFUSED_ELSEWHERE, Reason.EVICTION_FORBIDDEN, Reason.LEDGER_REFUSED, Reason.TEMPLATE_SETTLING, Reason.TEMPLATE_EDITED,
    Reason.NO_NODE_MAY_START, Reason.WINDOW_SHUT, Reason.ABORTED, Reason.PLAN_DIFFERS, Reason.WAVE_FAILED, Reason.WAVE_EMPTY,
    Reason.WAVE_SOAKING,
    Reason.ANALYSIS_FAILED, Reason.ANALYSIS_UNKNOWN, Reason.ANALYSIS_RUNNING,
    Reason.APPROVAL_REQUIRED, Reason.IMAGE_NOT_STAGED, Reason.DELETION_UNSEEN, Reason.MAINTENANCE_UNSEEN,
}
_IN_PASSING: Final = frozenset({
    Reason.IDLE_AWAITED, Reason.NOTICE_GIVEN,
    Reason.EVICTING, Reason.DRIVER_STOPPING, Reason.DRIVER_STARTING, Reason.VALIDATOR_MISSING, Reason.VALIDATOR_STARTING,
    Reason.VALIDATOR_REPLACING, Reason.WRITE_UNANSWERED,
})
_WAITS: Final = _TURN | _IN_PASSING | {
    Reason.TEMPLATE_SETTLING, Reason.OPERANDS_STARTING, Reason.JOBS_RUNNING, Reason.RETRY_LATER, Reason.METADATA_BEHIND,
    Reason.MAINTENANCE_AWAITED,
    Reason.DEVICE_PLUGIN_STOPPING, Reason.WINDOW_SHUT, Reason.WAVE_SOAKING, Reason.ANALYSIS_RUNNING, Reason.IMAGE_NOT_STAGED,
    Reason.GANG_SPARED}
_WAITED_FOR: Final = _WAITS | {Reason.EVICTION_REFUSED, Reason.KILLING, Reason.BUDGET_USED_UP, Reason.NODE_GONE}
_NEEDS_PERSON: Final = frozenset({
    Reason.NODE_NOT_READY, Reason.HELD_DEVICES, Reason.PROTECTED_PODS, Reason.BUDGET_BLOCKS, Reason.FAILED, Reason.UNKNOWN_STATE,
    Reason.TWO_DRIVER_PODS, Reason.DRIVER_UNPLACED, Reason.DRIVER_FAILING, Reason.DRIVER_IN_USE, Reason.UNDECIDED,
    Reason.DOES_NOT_STOP,
    Reason.WRITE_REFUSED, Reason.REPLACEMENT_REFUSED, Reason.COMES_BACK, Reason.UNCORDONED, Reason.NOT_SELECTED,
    Reason.DRIVER_REFUSED, Reason.WRONG_DRIVER_TYPE, Reason.DRIVER_LABEL_UNKNOWN, Reason.KERNEL_UNKNOWN,
    Reason.OPERAND_FAILING, Reason.DRIVER_REPELLED, Reason.VALIDATION_OFF,
    Reason.MIG_NOT_APPLIED, Reason.IMAGE_MISSING, Reason.DOMAIN_BROKEN, Reason.STAGING_FAILED, Reason.DELETION_UNSEEN,
    Reason.UNDRAINABLE, Reason.QUARANTINED, Reason.NOTICE_UNANSWERED, Reason.MAINTENANCE_UNSEEN,
})
_UNDER_WAY: Final = frozenset({Reason.WRITE_REFUSED, Reason.REPLACEMENT_REFUSED, Reason.COMES_BACK, Reason.UNCORDONED})
_PASSED_OVER: Final = (_NEEDS_PERSON - _UNDER_WAY) | {
    Reason.SKIPPED, Reason.NODE_GONE, Reason.RETRY_LATER, Reason.MAINTENANCE}
