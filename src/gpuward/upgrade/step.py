"""What one step of one node's upgrade can be: a move to another state, or a wait that may act."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from gpuward.model.actions import Action, EventText
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.states import State
from gpuward.model.undrainable import GivenUp
from gpuward.upgrade.facts import NodeFacts


class Move(msgspec.Struct, frozen=True):
    """Go to another state, changing the node in the same patch. `cordon` None leaves schedulability and its owner alone."""

    to: State
    annotations: Mapping[str, str | None] = {}
    cordon: CordonOwner | None = None
    """Make the node unschedulable, or note that somebody else already did."""
    uncordon: bool = False
    failure: Failure | None = None
    forced: bool = False
    started: bool = False
    """Whether this move admits the node: the upgrade's clock starts."""
    target: str = ""
    driver: str = ""
    """The NVIDIADriver within whose limits the node is admitted."""
    asked: str = ""
    """The field manager that asked for the driver that the node is admitted for, where that is known."""
    wave_labels: tuple[str, ...] = ()
    """The labels by which waves choose nodes, as they are remembered of one that is admitted."""
    gangs: tuple[tuple[str, float], ...] = ()
    """The gangs that have to leave for it, as they are remembered of a node that is admitted."""
    patient: bool = False
    """Whether pods that come now are left alone for a while, as it waited until nobody used its GPUs."""
    forget: bool = False
    """Whether earlier failures count no more."""
    restart: str = ""
    """The driver configuration digest for which only the driver pod is going to be restarted."""
    returned: bool = False
    """Whether the node has to be emptied once more."""
    given_up: GivenUp | None = None
    """That the node is given up with the driver that it has."""
    events: tuple[EventText, ...] = ()


class Wait(msgspec.Struct, frozen=True):
    """Stay in the state. The actions are done now; the hold says what for; `retry_at` is when to look again unasked."""

    hold: Hold
    actions: tuple[Action, ...] = ()
    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}
    stopping: float = 0.0
    """Since when what offers the node's GPUs is asked to stop, where that is asked now."""
    recordon: bool = False
    """Make the node unschedulable again: somebody lifted our cordon in mid-upgrade."""
    retry_at: float | None = None


class Rest(msgspec.Struct, frozen=True):
    """Stay in the state with nothing to do but to tidy up, and nothing to wait for."""

    annotations: Mapping[str, str | None] = {}


Step = Move | Wait | Rest
StepFunction = Callable[[NodeFacts, UpgradePolicy, float], Step]

STEPS: dict[State, StepFunction] = {}
"""One function per state; filled by the `step` decorator as the modules of the steps are imported."""


def step(state: State) -> Callable[[StepFunction], StepFunction]:
    """Register a function as the one step of a state."""

    def register(function: StepFunction) -> StepFunction:
        if state in STEPS:
            raise ValueError(f"two step functions for {state}")
        STEPS[state] = function
        return function

    return register
