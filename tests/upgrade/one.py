"""Decide about a fleet of one node and take the answer apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeletePod, EvictPod, PatchNode
from gpuward.model.course import Course
from gpuward.model.history import PastUpgrade, history_of
from gpuward.model.plan import Hold, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure, Record, decode_record
from gpuward.model.snapshot import Refusal
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import gather
from tests import build


class Answer(NamedTuple):
    """Hold what a plan says about the node n0."""

    plan: Plan

    @property
    def state(self) -> State | None:
        """Return the state after the plan."""
        return self.plan.nodes["n0"].state

    @property
    def hold(self) -> Hold:
        """Return what the node waits for."""
        return build.hold_of(self.plan)

    @property
    def reason(self) -> Reason | None:
        """Return why the node waits, None if it does not."""
        hold = self.plan.nodes["n0"].hold
        return hold.reason if hold else None

    @property
    def patch(self) -> PatchNode:
        """Return the one patch of the node."""
        (patch,) = [action for action in self.plan.actions if isinstance(action, PatchNode)]
        return patch

    @property
    def entered(self) -> list[str]:
        """Return the states entered, in order."""
        return [str(state) for action in self.plan.actions if isinstance(action, PatchNode) for state in action.entered]

    @property
    def messages(self) -> list[str]:
        """Return the messages of the events beside those that name a state."""
        messages = [event.message for event in self.patch.events]
        return [message for message in messages if not message.startswith("Successfully updated node state label")]

    @property
    def record(self) -> Record:
        """Return what the patch makes us remember, but for how the upgrade went so far."""
        return msgspec.structs.replace(self._remembered, course=None)

    @property
    def course(self) -> Course | None:
        """Return how the upgrade went so far, as the patch makes us remember it."""
        return self._remembered.course

    @property
    def _remembered(self) -> Record:
        text = self.patch.annotations[names.UPGRADE_RECORD]
        assert text is not None
        return decode_record(text)

    @property
    def history(self) -> tuple[PastUpgrade, ...]:
        """Return the node's history as the patch writes it."""
        return history_of(self.patch.annotations.get(names.UPGRADE_HISTORY))

    @property
    def failure(self) -> Failure | None:
        """Return the failure that the patch makes us remember, whatever the driver pod was and when the attempt had begun."""
        failure = self.record.failure
        return failure and msgspec.structs.replace(failure, driver="", begun=0.0)

    @property
    def annotations(self) -> dict[str, str | None]:
        """Return the other annotations that the patch changes."""
        ours = (names.UPGRADE_RECORD, names.UPGRADE_HISTORY)
        return {key: value for key, value in self.patch.annotations.items() if key not in ours}

    @property
    def others(self) -> tuple[Action, ...]:
        """Return the actions that are no patches of the node."""
        return tuple(action for action in self.plan.actions if not isinstance(action, PatchNode))

    @property
    def evicted(self) -> list[str]:
        """Return the names of the pods that are asked to go."""
        return [action.pod.name for action in self.plan.actions if isinstance(action, EvictPod)]

    @property
    def deleted(self) -> list[str]:
        """Return the names of the pods that are deleted."""
        return [action.pod.name for action in self.plan.actions if isinstance(action, DeletePod)]


def ask(node: NodeView, *pods: PodView, policy: UpgradePolicy | None = None, now: float = build.NOW, **rest: Any) -> Answer:
    """Decide about one node and the pods on it; the DaemonSet wants driver 560 unless said."""
    return Answer(decide(build.cluster([node], pods, **rest), policy or build.policy(), now))


def asked(*pods: PodView) -> dict[str, Refusal]:
    """Return what is remembered of pods that were asked to go, long ago and in vain."""
    return {pod.uid: Refusal(0.0, 1, "no") for pod in pods}


def facts(node: NodeView, *pods: PodView, policy: UpgradePolicy | None = None, **rest: Any) -> NodeFacts:
    """Gather the facts about one node."""
    (gathered,) = gather(build.cluster([node], pods, **rest), policy or build.policy())
    return gathered
