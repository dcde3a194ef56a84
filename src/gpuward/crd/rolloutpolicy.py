"""RolloutPolicy (`gpuward.io/v1alpha1`): what NVIDIA's upgrade policy has no field for. It is optional, and so is every field."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, field

from gpuward.crd.durations import Duration
from gpuward.crd.facts import DEFAULTED, KubeObject, NonNegative, Spec, cel, schema
from gpuward.crd.kubernetes import Condition
from gpuward.crd.waves import MOST_WAVES, NAMES_DIFFER, RolloutGrowth, RolloutWave
from gpuward.crd.windows import MOST_WINDOWS, ONE_FORM, RolloutWindow, WindowTime
from gpuward.model.states import State
from gpuward.names import GPUWARD_GROUP, ROLLOUT_POLICY_VERSION

DEADLINE_STATES: Final = (
    State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED, State.POD_RESTART_REQUIRED,
    State.VALIDATION_REQUIRED,
)
"""The states in which a node waits for something, in the order in which it enters them."""

RolloutPolicyState = Literal["active", "ignored", "invalid"]
DomainModeChoice = Literal["Spread", "Whole"]
GangModeChoice = Literal["Together", "Ignore"]
LabelKey = Annotated[str, Meta(min_length=1, max_length=317)]
Positive = Annotated[int, Meta(ge=1)]
DeviceHoldersChoice = Literal["Hold", "Evict", "Ignore"]
WindowFitChoice = Literal["Off", "P90"]
PrestageMode = Literal["Off", "Image"]
UndrainableChoice = Literal["Hold", "Skip", "Quarantine", "Fail"]
AcknowledgeChoice = Literal["Optional", "Required"]
StagingFailureChoice = Literal["Hold", "Ignore"]
MaintenanceChoice = Literal["Off", "Request"]
Percent = Annotated[int, Meta(ge=0, le=100)]
Retries = Annotated[int, Meta(ge=0, le=20)]
ParallelPulls = Annotated[int, Meta(ge=1, le=1000)]

_KNOWN_STATES: Final = cel(
    "self.all(state, state in [" + ", ".join(f"'{state}'" for state in DEADLINE_STATES) + "])",
    "deadlines are for these states: " + ", ".join(DEADLINE_STATES),
)


class RolloutFailureBudget(Spec, frozen=True, kw_only=True):
    """Pause a rollout when more nodes have failed than the larger of these two allows."""

    nodes: Annotated[NonNegative, DEFAULTED] = 3
    percent: Annotated[Percent, DEFAULTED] = 10


class RolloutDomains(Spec, frozen=True, kw_only=True):
    """Say which nodes break together, by the value of a label, and how many a rollout may disturb."""

    key: LabelKey
    mode: Annotated[DomainModeChoice, DEFAULTED] = "Spread"
    max: Annotated[Positive, DEFAULTED] = 1


class RolloutGangs(Spec, frozen=True, kw_only=True):
    """Let the nodes of a distributed run start together, and spare the run for a while after that."""

    mode: Annotated[GangModeChoice, DEFAULTED] = "Together"
    until: Annotated[Duration, DEFAULTED] = "24h"


class RolloutOpportunities(Spec, frozen=True, kw_only=True):
    """Let nodes wait until nobody uses their GPUs, for a while."""

    idle_for: Duration
    until: Duration


class RolloutUndrainable(Spec, frozen=True, kw_only=True):
    """Say what becomes of a node whose pods cannot be moved."""

    behaviour: Annotated[UndrainableChoice, DEFAULTED] = "Hold"
    after: Annotated[Duration, DEFAULTED] = "1h"
    max_quarantined: Annotated[NonNegative, DEFAULTED] = 1


class RolloutPrestage(Spec, frozen=True, kw_only=True):
    """Bring the images of the next driver onto nodes before these are taken out of service for it."""

    mode: Annotated[PrestageMode, DEFAULTED] = "Off"
    parallel: Annotated[ParallelPulls, DEFAULTED] = 10
    on_failure: Annotated[StagingFailureChoice, DEFAULTED] = "Hold"


class RolloutNotice(Spec, frozen=True, kw_only=True):
    """Tell the owners of pods before these are evicted."""

    before: Duration
    acknowledge: Annotated[AcknowledgeChoice, DEFAULTED] = "Optional"


class RolloutInterop(Spec, frozen=True, kw_only=True):
    """Tell other controllers of nodes that are out of service for an upgrade."""

    nvsentinel: Annotated[bool, DEFAULTED] = False
    slurm: Annotated[bool, DEFAULTED] = False
    node_conditions: Annotated[bool, DEFAULTED] = False
    node_maintenance: Annotated[MaintenanceChoice, DEFAULTED] = "Off"


class RolloutPolicySpec(Spec, frozen=True, kw_only=True):
    """Govern what happens when driver upgrades fail, take long, or meet pods that Kubernetes knows no GPUs of."""

    failure_budget: Annotated[RolloutFailureBudget, DEFAULTED] = RolloutFailureBudget()
    deadlines: Annotated[dict[str, Duration], schema(maxProperties=len(DEADLINE_STATES)), _KNOWN_STATES] = field(
        default_factory=dict
    )
    retries: Annotated[Retries, DEFAULTED] = 3
    retry_backoff: Annotated[Duration, DEFAULTED] = "1m"
    discovery_grace: Annotated[Duration, DEFAULTED] = "10m"
    device_holders: Annotated[DeviceHoldersChoice, DEFAULTED] = "Hold"
    kill_at_deadline: Annotated[bool, DEFAULTED] = False
    remove_at_once: Annotated[bool, DEFAULTED] = False
    domains: RolloutDomains | None = None
    gangs: RolloutGangs | None = None
    opportunistic: RolloutOpportunities | None = None
    undrainable: RolloutUndrainable | None = None
    windows: Annotated[
        tuple[Annotated[RolloutWindow, ONE_FORM], ...], DEFAULTED, schema(maxItems=MOST_WINDOWS)
    ] = ()
    window_fit: Annotated[WindowFitChoice, DEFAULTED] = "Off"
    finish_by: WindowTime | None = None
    waves: Annotated[tuple[RolloutWave, ...], DEFAULTED, schema(maxItems=MOST_WAVES), NAMES_DIFFER] = ()
    growth: RolloutGrowth | None = None
    prestage: Annotated[RolloutPrestage, DEFAULTED] = RolloutPrestage()
    notice: RolloutNotice | None = None
    interop: Annotated[RolloutInterop, DEFAULTED] = RolloutInterop()


class RolloutPolicyStatus(Spec, frozen=True, kw_only=True):
    """Report whether the policy is followed."""

    state: RolloutPolicyState
    conditions: tuple[Condition, ...] = ()


class RolloutPolicy(Spec, frozen=True, kw_only=True):
    """Govern driver upgrades where NVIDIA's upgrade policy has no field; the oldest object is in force."""

    api_version: ClassVar[str] = f"{GPUWARD_GROUP}/{ROLLOUT_POLICY_VERSION}"
    kind: ClassVar[str] = "RolloutPolicy"

    metadata: KubeObject = field(default_factory=dict)
    spec: RolloutPolicySpec = RolloutPolicySpec()
    status: RolloutPolicyStatus | None = None

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.metadata.get("name", ""))
