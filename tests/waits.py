"""One wait for each reason, for tests that do not care for what it is about."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec

from gpuward.model import waits
from gpuward.model.analysis import WaveAnalysis
from gpuward.model.approved_plan import PlanDiffers
from gpuward.model.denials import EvictionForbidden, LedgerRefused, RefusedElsewhere, ReplacementRefused, WriteRefused
from gpuward.model.domains import DomainLimit
from gpuward.model.driver_images import ImageMissing
from gpuward.model.edits import TemplateEdited
from gpuward.model.gangs import GangAwaited, GangSpared
from gpuward.model.maintenance import MaintenanceAwaited
from gpuward.model.mig import MigNotApplied
from gpuward.model.notice import NoticeGiven, NoticeUnanswered
from gpuward.model.obstacles import StaticPod
from gpuward.model.opportunities import IdleAwaited
from gpuward.model.owners import OwnerConflict
from gpuward.model.placement import Placement
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.removal import DeletionUnseen, DriverKept
from gpuward.model.staging import ImageNotStaged, StagingFailed
from gpuward.model.states import State
from gpuward.model.troubles import DriverNow, PodTrouble
from gpuward.model.uncordoned import Uncordoned
from gpuward.model.undrainable import Quarantined, Undrainable
from gpuward.model.unserved import DriverLabelUnknown, DriverRefused, KernelUnknown, NotSelected, WrongDriverType
from gpuward.model.views import Owner, Ref
from gpuward.model.waves import Aborted, ApprovalRequired, WaveEmpty, WaveFailed, WaveLimit, WaveNotDone, WaveSoaking
from gpuward.model.windows import WindowShut
from gpuward.model.workloads import OperandsKept, Workload, WorkloadKept

POD, OWNER = Ref("ml", "train", "u"), Owner("ReplicaSet", "train", "o")
BUDGET, TROUBLE = Ref("ml", "budget"), PodTrouble("CrashLoopBackOff", 3)
PLAIN = get_args(get_type_hints(waits.Plain)["reason"])

_EXAMPLES: tuple[waits.WaitsFor, ...] = (
    *(waits.Plain(reason, taints=("team=a:NoSchedule",) if reason is Reason.DRIVER_REPELLED else ()) for reason in PLAIN),
    waits.Paused(),
    waits.NoPolicy("there is no ClusterPolicy", waits.Meanwhile.CORDONED),
    waits.InvalidPolicy("ClusterPolicy p"),
    TemplateEdited("nvidia-driver-daemonset", "kubectl-edit"),
    LedgerRefused("a webhook says no", 3),
    waits.FailureBudgetSpent(2, 1, 9, ("n1", "n2")),
    waits.NewDriverFails("n1", TROUBLE, "kernel 5.15"),
    waits.NewDriverFails("n1", TROUBLE),
    ReplacementRefused(POD, "a webhook says no", 3),
    RefusedElsewhere(POD, "n1", "a webhook says no"),
    EvictionForbidden("ml", "n1", "User x cannot create resource"),
    waits.HeldDevices(POD, OWNER, "hostPath /dev/nvidia0"),
    waits.ProtectedPods(POD, 1, StaticPod()),
    waits.BudgetBlocks(POD, BUDGET, 3, 2),
    waits.BudgetUsedUp(POD, BUDGET, 1, 2),
    waits.Limit(Reason.UNAVAILABLE_LIMIT, 1, 1, ("n1",), "a"),
    waits.Limit(Reason.NO_NODE_MAY_START, 1, 1, ("n1",), "a"),
    waits.Limit(Reason.PARALLEL_LIMIT, 1, 1, ("n1",), "a"),
    waits.JobsRunning(POD, 2),
    waits.Evicting(POD, 2),
    waits.EvictionRefused(POD, "the budget says no", 3),
    waits.ComesBack(POD, OWNER, 2, tolerates_cordon=True),
    Uncordoned(POD, 2),
    waits.Killing(POD, 2, "it may not be deleted"),
    waits.OperandPod(POD, Reason.DRIVER_ORPHANED),
    waits.OperandPod(POD, Reason.DRIVER_STOPPING),
    waits.OperandPod(POD, Reason.DEVICE_PLUGIN_STOPPING),
    waits.OperandPod(POD, Reason.DOES_NOT_STOP),
    waits.OperandPod(POD, Reason.VALIDATOR_REPLACING),
    waits.Starting(POD, Reason.DRIVER_STARTING, TROUBLE),
    waits.Starting(POD, Reason.DRIVER_UNPLACED, TROUBLE),
    waits.Starting(POD, Reason.DRIVER_FAILING, TROUBLE),
    waits.Starting(POD, Reason.DRIVER_IN_USE, TROUBLE, (POD,)),
    waits.Starting(POD, Reason.VALIDATOR_STARTING, TROUBLE),
    waits.Starting(POD, Reason.OPERAND_FAILING, TROUBLE),
    NotSelected(POD, ("a",)),
    DriverLabelUnknown(POD, "yes"),
    KernelUnknown(POD, "5.15.0-999", "5.15.0-101-generic", kept=True),
    KernelUnknown(None),
    DriverRefused(POD, "a", OwnerConflict(("a", "b"), "n1")),
    WrongDriverType(POD, "a", "vgpu-host-manager"),
    WrongDriverType(POD, "a", "vgpu-host-manager", "b"),
    waits.Failed(State.POD_RESTART_REQUIRED, "it broke", DriverNow()),
    waits.RetryLater(State.POD_RESTART_REQUIRED, "it broke", 1, 3, DriverNow("driver", False, TROUBLE)),
    waits.UnknownState("bogus"),
    waits.TwoDriverPods(2),
    WriteRefused("a webhook says no", 3),
    waits.MovePaused(Placement("a"), Placement("b")),
    WorkloadKept(Workload.CONTAINER, Workload.VM_PASSTHROUGH, POD, 2),
    ImageMissing("nvcr.io/nvidia/driver:1-ubuntu22.04", "nvcr.io has no manifest 1-ubuntu22.04 of nvidia/driver"),
    OperandsKept(POD, 2),
    DriverKept(POD, 2),
    DomainLimit(Reason.DOMAIN_LIMIT, "rack-1", 2, 1, ("n1", "n2")),
    DomainLimit(Reason.DOMAIN_BROKEN, "rack-1", 1, 1, ("n1",), ("rack-2",)),
    PlanDiffers("node n1 is not in it", 2),
    Undrainable("after 3600 s these were still there: ml/training"),
    Quarantined("after 3600 s these were still there: ml/training"),
    MaintenanceAwaited("gpuward-n1", "it is Pending"),
    NoticeGiven("3f0c2a9b", 1_767_312_000.0, POD, 2, 3),
    NoticeUnanswered("3f0c2a9b", 1_767_312_000.0, POD, 1, 3),
    IdleAwaited(900.0, 1_767_312_000.0, POD, 2),
    GangAwaited("Job ml/train", ("n1",), 1, "n1", Reason.PARALLEL_LIMIT),
    GangSpared("Job ml/train", POD, "n1", 1_767_312_000.0),
    DeletionUnseen("a", "roles is forbidden"),
    WindowShut(1_767_312_000.0, "Europe/Berlin"),
    WindowShut(1_767_312_000.0, "Europe/Berlin", wave="canary"),
    WaveNotDone("canary", 1, 2, ("n1",), 1),
    WaveEmpty("canary", "pool=canary"),
    WaveFailed("canary", 2, 3, 1, ("n1", "n2")),
    WaveSoaking("canary", 1_767_312_000.0, "Europe/Berlin"),
    WaveSoaking("canary", 1_767_312_000.0, "UTC", True, "a"),
    WaveAnalysis(Reason.ANALYSIS_FAILED, "canary", "slo", "3 of query xids", failures=3, limit=3),
    WaveAnalysis(Reason.ANALYSIS_UNKNOWN, "canary", "slo", "http://prometheus:9090: no answer in time", lasts=300.0),
    WaveAnalysis(Reason.ANALYSIS_RUNNING, "canary", "slo", "0 of query xids", 1_767_312_000.0, 300.0),
    ApprovalRequired("canary", "a"),
    WaveLimit(Reason.WAVE_LIMIT, 1, 1, ("n1",)),
    WaveLimit(Reason.GROWTH_LIMIT, 1, 1, ("n1",)),
    Aborted("alice", 1_767_312_000.0, "a"),
    ImageNotStaged("nvcr.io/nvidia/driver:1-ubuntu22.04"),
    StagingFailed("nvcr.io/nvidia/driver:1-ubuntu22.04", "container nvidia-driver-ctr: ImagePullBackOff"),
    MigNotApplied("all-1g.10gb", "pending", ("device-plugin",)),
    waits.Undecided("KeyError: 'x'"),
)
EXAMPLES = {example.reason: example for example in _EXAMPLES}


def held_by(reason: Reason, **changes: Any) -> Hold:
    """Return a hold for a reason."""
    return Hold(msgspec.structs.replace(EXAMPLES[reason], **changes))
