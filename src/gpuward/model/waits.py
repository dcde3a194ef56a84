"""What a node can wait for: a closed union of values. `gpuward.model.explain` makes sentences of them."""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar, Literal

import msgspec

from gpuward.model.approved_plan import PlanDiffers
from gpuward.model.denials import Denied
from gpuward.model.domains import DomainLimit, LargeDomain
from gpuward.model.driver_images import ImageMissing
from gpuward.model.edits import TemplateEdited
from gpuward.model.gangs import GangAwaited, GangSpared, LargeGang
from gpuward.model.maintenance import MaintenanceAwaited
from gpuward.model.mig import MigNotApplied
from gpuward.model.notice import NoticeGiven, NoticeUnanswered
from gpuward.model.obstacles import Obstacle
from gpuward.model.opportunities import IdleAwaited
from gpuward.model.placement import Placement
from gpuward.model.reasons import Reason
from gpuward.model.removal import DeletionUnseen, DriverKept
from gpuward.model.staging import ImageNotStaged, StagingFailed
from gpuward.model.states import State
from gpuward.model.switches import Switches
from gpuward.model.troubles import DriverNow, PodTrouble
from gpuward.model.uncordoned import Uncordoned
from gpuward.model.undrainable import Quarantined, Undrainable
from gpuward.model.unserved import Unserved
from gpuward.model.views import Owner, Ref
from gpuward.model.waves import WaveWait
from gpuward.model.windows import WindowShut
from gpuward.model.workloads import OperandsKept, WorkloadKept


class Plain(msgspec.Struct, frozen=True):
    """Wait for what the reason alone says."""

    reason: Literal[
        Reason.SKIPPED, Reason.NODE_GONE, Reason.NODE_NOT_READY, Reason.DRIVER_POD_MISSING,
        Reason.TEMPLATE_SETTLING, Reason.OPERANDS_STARTING, Reason.VALIDATOR_MISSING, Reason.MAINTENANCE, Reason.METADATA_BEHIND,
        Reason.WRITE_UNANSWERED, Reason.DRIVER_REPELLED, Reason.VALIDATION_OFF, Reason.MAINTENANCE_UNSEEN,
    ]
    lasts: bool = False
    """Whether a node in mid-upgrade has waited for it far longer than it takes: something is in the way."""
    taints: tuple[str, ...] = ()
    """Those of the node that keep its driver pod away, until somebody takes them off."""


class Paused(msgspec.Struct, frozen=True):
    """Wait until upgrades are on."""

    reason: ClassVar = Reason.PAUSED
    why: Switches = Switches()

    @property
    def is_known(self) -> bool:
        """Tell whether it is known what has them off: recordings from before that was told, and invalid policies, do not say."""
        return self.why != Switches()


class OnPod(msgspec.Struct, frozen=True):
    """Wait for something about a pod."""

    pod: Ref


class OnPods(OnPod, frozen=True):
    """Wait for some pods, one of which is named."""

    pods: int


class OnBudget(OnPod, frozen=True):
    """Wait for a disruption budget that a pod is under."""

    budget: Ref


class Meanwhile(Enum):
    """Say how a node under way stands while no policy is in force."""

    NOTHING = auto()
    CORDONED = auto()
    """Until its new driver is ready."""
    UNVALIDATED = auto()
    """Its new driver is ready."""


class NoPolicy(msgspec.Struct, frozen=True):
    """Wait for a ClusterPolicy."""

    reason: ClassVar = Reason.NO_POLICY
    why: str
    """What became of the one that there was."""
    meanwhile: Meanwhile = Meanwhile.NOTHING


class InvalidPolicy(msgspec.Struct, frozen=True):
    """Wait until a policy can be followed."""

    reason: ClassVar = Reason.INVALID_POLICY
    policy: str


class FailureBudgetSpent(msgspec.Struct, frozen=True):
    """Wait until a rollout with too many failures is resumed."""

    reason: ClassVar = Reason.FAILURE_BUDGET
    failed: int
    limit: int
    total: int
    nodes: tuple[str, ...]
    """Some of those that failed."""


class NewDriverFails(msgspec.Struct, frozen=True):
    """Wait until a new driver runs somewhere."""

    reason: ClassVar = Reason.NEW_DRIVER_FAILS
    node: str
    """Where it has not come up."""
    why: PodTrouble | str
    """The cause of a failure is text, as its node's record keeps it."""
    part: str = ""
    """Which nodes it is about, as `kernel 5.15`, where drivers come from several DaemonSets: the others go on."""


class HeldDevices(OnPod, frozen=True):
    """Wait until a pod ends that holds the driver."""

    reason: ClassVar = Reason.HELD_DEVICES
    owner: Owner | None
    how: str


class ProtectedPods(OnPods, frozen=True):
    """Wait for pods that must leave and may not be evicted."""

    reason: ClassVar = Reason.PROTECTED_PODS
    why: Obstacle


class BudgetBlocks(OnBudget, frozen=True):
    """Wait for a disruption budget that would let a pod go at no time."""

    reason: ClassVar = Reason.BUDGET_BLOCKS
    desired: int
    expected: int
    failure: str = ""
    """Why Kubernetes cannot work the budget out, if that is so."""


class BudgetUsedUp(OnBudget, frozen=True):
    """Wait for room in a disruption budget."""

    reason: ClassVar = Reason.BUDGET_USED_UP
    allowed: int
    claimed: int


class Limit(msgspec.Struct, frozen=True):
    """Wait until fewer nodes count."""

    reason: Literal[Reason.UNAVAILABLE_LIMIT, Reason.PARALLEL_LIMIT, Reason.NO_NODE_MAY_START]
    used: int
    limit: int
    nodes: tuple[str, ...]
    """Some of those that count."""
    driver: str = ""
    """The NVIDIADriver whose limit it is, where that is not the node's own."""
    large: LargeDomain | None = None
    """The domain of the node, where it is to be upgraded whole and has more nodes than the limit."""
    gang: LargeGang | None = None
    """A gang of the node, where its nodes are to start together and are more than the limit."""
    noticed: int = 0
    """How many of those that count are in service yet, and have a place as they were given notice."""


class JobsRunning(OnPods, frozen=True):
    """Wait for pods that may finish."""

    reason: ClassVar = Reason.JOBS_RUNNING


class Evicting(OnPods, frozen=True):
    """Wait until pods have gone."""

    reason: ClassVar = Reason.EVICTING


class EvictionRefused(OnPod, frozen=True):
    """Wait for a pod that the eviction API does not let go."""

    reason: ClassVar = Reason.EVICTION_REFUSED
    message: str
    attempts: int | None
    """None where only the operator knows."""


class ComesBack(OnPod, frozen=True):
    """Wait for an owner that puts pods back on the cordoned node."""

    reason: ClassVar = Reason.COMES_BACK
    owner: Owner
    times: int | None
    """None where only the operator knows."""
    tolerates_cordon: bool


class Killing(OnPods, frozen=True):
    """Wait until pods have ended that were killed; `refused` says why one may not be."""

    reason: ClassVar = Reason.KILLING
    refused: str | None = None


class OperandPod(OnPod, frozen=True):
    """Wait until a pod of an operand goes."""

    reason: Literal[Reason.DRIVER_ORPHANED, Reason.DRIVER_STOPPING, Reason.DEVICE_PLUGIN_STOPPING, Reason.DOES_NOT_STOP,
                    Reason.VALIDATOR_REPLACING]


class PluginFirst(OnPod, frozen=True):
    """Wait until what offers a node's GPUs has stopped, before its driver goes."""

    reason: ClassVar = Reason.DEVICE_PLUGIN_STOPPING
    offers: bool = True
    """False where its own container has yet to run: it may begin to offer them."""


class DriverFollows(OnPod, frozen=True):
    """Wait until a driver goes that is not asked to stop yet."""

    reason: ClassVar = Reason.DRIVER_STOPPING


class Starting(OnPod, frozen=True):
    """Wait until the pod of the driver, of the validator or of another operand is ready."""

    reason: Literal[Reason.DRIVER_STARTING, Reason.DRIVER_UNPLACED, Reason.DRIVER_FAILING, Reason.DRIVER_IN_USE,
                    Reason.VALIDATOR_STARTING, Reason.OPERAND_FAILING]
    trouble: PodTrouble
    users: tuple[Ref, ...] = ()
    """Pods that run on the driver that was loaded before."""


class Failed(msgspec.Struct, frozen=True):
    """Wait for somebody who looks at a failure."""

    reason: ClassVar = Reason.FAILED
    step: State | None
    """None for a failure that gpuward did not see."""
    cause: str
    now: DriverNow | None = None


class RetryLater(msgspec.Struct, frozen=True):
    """Wait for the next try."""

    reason: ClassVar = Reason.RETRY_LATER
    step: State
    cause: str
    retry: int
    retries: int
    now: DriverNow | None = None


class UnknownState(msgspec.Struct, frozen=True):
    """Wait for somebody who mends the state label."""

    reason: ClassVar = Reason.UNKNOWN_STATE
    label: str


class TwoDriverPods(msgspec.Struct, frozen=True):
    """Wait until one driver pod is left."""

    reason: ClassVar = Reason.TWO_DRIVER_PODS
    pods: int


class MovePaused(msgspec.Struct, frozen=True):
    """Wait to be moved."""

    reason: ClassVar = Reason.MOVE_PAUSED
    before: Placement
    to: Placement


class Undecided(msgspec.Struct, frozen=True):
    """Wait for a gpuward without the bug."""

    reason: ClassVar = Reason.UNDECIDED
    error: str


WaitsFor = (Plain | NoPolicy | InvalidPolicy | FailureBudgetSpent | NewDriverFails | HeldDevices | ProtectedPods | BudgetBlocks
            | BudgetUsedUp | Limit | JobsRunning | Evicting | EvictionRefused | ComesBack | Uncordoned | Killing | OperandPod
            | Unserved | Starting | Failed | RetryLater | UnknownState | TwoDriverPods | MovePaused | Undecided | TemplateEdited
            | Denied | WorkloadKept | OperandsKept | ImageMissing | DriverKept | DeletionUnseen | WindowShut | DomainLimit
            | PlanDiffers | Undrainable | Quarantined | IdleAwaited | GangAwaited | GangSpared | WaveWait | ImageNotStaged
            | StagingFailed | MigNotApplied | NoticeGiven | NoticeUnanswered | Paused | PluginFirst | DriverFollows
            | MaintenanceAwaited)
