"""What is recorded of one pass of the upgrade controller, and the frame that a recording keeps of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from gpuward.model.actions import DeletePod, EvictPod, GrantNodes, PatchNode
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.recording.changes import Changes

Recorded = PatchNode | EvictPod | DeletePod | GrantNodes
"""The actions that an upgrade may ask for. Those that carry whole objects are none of them."""
LONGEST_ERROR = 300
"""Characters that are kept of what an API server answered."""


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say how an action ended, by its number in the plan."""

    number: int
    error: str = ""
    dropped: bool = False
    idle: bool = False


class Entry(msgspec.Struct, frozen=True):
    """Hold one pass: the facts, the policies and the time, what was decided and how that went."""

    snapshot: Snapshot
    policies: tuple[UpgradePolicy, ...]
    at: float
    policy: str = ""
    """The ClusterPolicy's name; empty without one."""
    plan: Plan = Plan()
    outcomes: tuple[Done, ...] = ()
    error: str = ""
    """What kind of error ended the pass; there is no plan then."""
    troubled: tuple[str, ...] = ()
    """NVIDIADrivers about whose nodes nothing could be decided."""


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say in short what was decided about a node."""

    state: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state or 'no state'}{f', {self.reason}' if self.reason else ''}"


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold what a pass adds to the passes recorded before it."""

    at: float
    changes: Changes = Changes()
    policies: tuple[UpgradePolicy, ...] | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    digest: str = ""
    shown: Mapping[str, Shown | None] = {}
    """Nodes about which something else was decided than before; None for one that is no longer managed."""
    actions: tuple[Recorded, ...] = ()
    outcomes: tuple[Done, ...] = ()
    error: str = ""
    troubled: tuple[str, ...] = ()
    missed: int = 0
    """Passes before this one that came too fast to be recorded."""


class Header(msgspec.Struct, frozen=True):
    """Begin a recording: who wrote it."""

    gpuward: str
    """The version."""
    images: Mapping[str, str] = {}
    """Variables of its environment that name images."""


def shown_between(before: Plan, after: Plan) -> dict[str, Shown | None]:
    """Return the nodes about which two plans differ in short."""
    changed: dict[str, Shown | None] = {
        name: shown(status) for name, status in after.nodes.items()
        if (was := before.nodes.get(name)) is not status and (was is None or not _alike(was, status))
    }
    return changed | {name: None for name in before.nodes if name not in after.nodes}


def _alike(one: NodeStatus, other: NodeStatus) -> bool:
    """Tell whether two are shown alike. Thousands are compared in each pass, so nothing is made for it."""
    if one.state is not other.state or one.label != other.label or (one.hold is None) is not (other.hold is None):
        return False
    return one.hold is None or other.hold is None or one.hold.reason is other.hold.reason


def shown(status: NodeStatus) -> Shown:
    """Return a node's status in short."""
    state = status.label if status.state is None else status.state.value
    return Shown(state, status.hold.reason.value if status.hold is not None else "")


def recorded_actions(plan: Plan) -> tuple[Recorded, ...]:
    """Return the actions of a plan that may be recorded: all that an upgrade asks for."""
    return tuple(action for action in plan.actions if isinstance(action, Recorded))
