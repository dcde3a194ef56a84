"""What a decision returns: the actions for now, what every waiting node waits for, and when time alone changes the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpuward.model.actions import Action
from gpuward.model.estimate import Estimate
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure, Record
from gpuward.model.states import IN_PROGRESS, State, parse_state
from gpuward.model.views import NodeView
from gpuward.model.waits import Failed, Plain, RetryLater, Starting, WaitsFor
from gpuward.model.waves import RolloutWaves


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Say what one node waits for, since when, and when time alone would end it."""

    what: WaitsFor
    since: float = 0.0
    until: float | None = None

    @property
    def reason(self) -> Reason:
        return self.what.reason

    @property
    def lasts(self) -> bool:
        """Tell whether it is to end by itself, and should have long ago."""
        return isinstance(self.what, Plain) and self.what.lasts

    @property
    def is_trouble(self) -> bool:
        """Tell whether a node under way needs somebody, or waits for a pod that should be there, or be ready, by now."""
        fails = isinstance(self.what, Starting) and self.what.trouble.is_more_than_a_start
        return self.reason.needs_person or self.lasts or (fails and self.reason is Reason.VALIDATOR_STARTING)

    @property
    def repels(self) -> bool:
        """Tell whether the node's taints keep away what it waits for."""
        return isinstance(self.what, Plain) and bool(self.what.taints)


class Counts(msgspec.Struct, frozen=True, gc=False):
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
    """Nodes on which the target driver is loaded and validated, and nothing is under way."""
    outdated: int = 0
    """Nodes at rest that are served by another driver than the target."""
    unserved: int = 0
    """Nodes at rest that have a driver, and that no driver is for."""
    staging: int = 0
    """Nodes that wait, and onto which the images of their next driver are brought before their turn."""
    staged: int = 0
    """Those of them that have them."""
    removing: int = 0
    """Nodes whose driver is to go, and none comes after it."""
    removed: int = 0
    """Nodes that it was taken from, while there are others."""

    def with_unfinished(self, states: Mapping[State | None, int]) -> Counts:
        """Return the same counts with so many of the nodes that are up to date in these states of an upgrade instead."""
        failed, every = states.get(State.FAILED, 0), sum(states.values())
        if not every:
            return self
        return msgspec.structs.replace(self, up_to_date=self.up_to_date - every, done=self.done - every,
                                       failed=self.failed + failed, in_progress=self.in_progress + every - failed)


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """Summarise one managed node for people: its state after this plan and what it waits for."""

    state: State | None
    """None for a label with none of NVIDIA's values."""
    since: float
    hold: Hold | None = None
    label: str = ""
    turn: int = 0
    """The node's place among those that only wait for others, from 1; 0 for one that something else holds."""
    up_to_date: bool = False
    """Whether the target driver is loaded on the node and validated, and nothing is under way there."""

    failure: Failure | None = None
    """The last failure of an upgrade that has yet to succeed, and how often it failed."""
    cordoned: bool = False
    """Whether somebody else cordoned the node, and no upgrade is under way there."""
    outdated: bool = False
    """Whether another driver than the target serves the node, and nothing is under way there."""

    @property
    def failed(self) -> bool:
        """Tell whether its upgrade failed, also where a pause took the label that says so."""
        if self.state is not State.UNKNOWN:
            return self.state is State.FAILED
        return self.hold is not None and self.hold.reason is Reason.FAILED

    @property
    def quarantined(self) -> bool:
        """Tell whether it is in mid-upgrade by its label alone, and others go on in its place."""
        return self.hold is not None and self.hold.reason is Reason.QUARANTINED

    @property
    def podless(self) -> bool:
        """Tell whether it has no driver pod: nothing is known of a driver there that is said not to come up."""
        what = self.hold.what if self.hold is not None else None
        if isinstance(what, Failed | RetryLater):
            return what.now is not None and not what.now.pod
        return what is not None and what.reason is Reason.DRIVER_POD_MISSING

    @property
    def before(self) -> State | None:
        """Return its state before this plan, as its label has it."""
        return parse_state(self.label)

    def as_labelled(self, record: Record | None) -> NodeStatus:
        """Return it with the state that people see as yet, which the plan may change, and since when that is by its record."""
        before, since = self.before, self.since
        if before is not self.state and record is not None and record.state is before:
            since = min(record.since, since)
        is_over = before not in IN_PROGRESS and before is not State.FAILED
        return msgspec.structs.replace(self, state=before, since=since, up_to_date=self.up_to_date and is_over)


class Plan(msgspec.Struct, frozen=True, gc=False):
    """Hold one decision about the fleet."""

    actions: tuple[Action, ...] = ()
    nodes: Mapping[str, NodeStatus] = {}
    wake_at: float | None = None
    counts: Counts = Counts()
    auto_upgrade: bool = False
    estimate: Estimate | None = None
    """How long the rollout still takes; None where none goes on."""
    troubles: Mapping[str, str] = {}
    """Why nothing could be decided, by the NVIDIADriver whose nodes it is about; empty for the ClusterPolicy's."""
    waves: tuple[RolloutWaves, ...] = ()
    """How the waves of each rollout stand that has some."""

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Return what every waiting node waits for, by node name."""
        return {name: status.hold for name, status in self.nodes.items() if status.hold is not None}

    def as_labelled(self, nodes: Mapping[str, NodeView]) -> Plan:
        """Return the same view with every node in the state that its label shows now.

        One that is yet to be uncordoned is not up to date, though its driver is: nobody may be there who lifts that cordon.
        """
        found = {name: status.as_labelled(node.record if (node := nodes.get(name)) is not None else None)
                 for name, status in self.nodes.items()}
        unfinished = Counter(found[name].state for name, status in self.nodes.items()
                             if status.up_to_date and not found[name].up_to_date)
        return msgspec.structs.replace(self, nodes=found, counts=self.counts.with_unfinished(unfinished))

    def waiting(self) -> Plan:
        """Return the same view of the fleet with nothing to do: for a moment in which deciding anew is not possible."""
        return msgspec.structs.replace(self, actions=(), wake_at=None)
