"""A node whose pods cannot be moved: when it is given up, what becomes of it then, and when it is tried again.

Only a node whose driver nobody has touched is given up. Whether there is room for one more in quarantine only the fleet tells:
see `quarantine`.
"""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.actions import EventText
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import Record
from gpuward.model.states import State
from gpuward.model.undrainable import Behaviour, GivenUp, Quarantined
from gpuward.upgrade.evicting import Eviction
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Move, Wait
from gpuward.upgrade.uncordon import back_in_the_queue, has_users

LEAVING = frozenset({State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED})
"""States in which a node waits for its pods."""
CAUSE_LENGTH = 300
"""Characters of a cause that are kept."""
_GIVEN_BACK = "The pods of the node cannot be moved, so it is given back with the driver that it has: "


def gives_up_at(node: NodeFacts, policy: UpgradePolicy, since: float) -> float | None:
    """Return when a node is given up that waits for its pods since then; None where it is not."""
    settings = policy.rollout.undrainable
    if settings is None or settings.behaviour is Behaviour.HOLD or node.state not in LEAVING or not node.untouched:
        return None
    return since + settings.after


def given_up_at(going: Eviction, since: float) -> float | None:
    """Return when a node is given up whose pods are evicted since then: not before they were asked to go."""
    at, settings = gives_up_at(going.node, going.policy, since), going.policy.rollout.undrainable
    return None if at is None or settings is None else max(at, going.asked_until(at, settings.after))


def gives_up_within(policy: UpgradePolicy, seconds: float) -> bool:
    """Tell whether a node that waits for its pods is given up before it has waited so long; 0 is for ever."""
    settings = policy.rollout.undrainable
    ends = settings is not None and settings.behaviour is not Behaviour.HOLD
    return ends and settings is not None and (not seconds or settings.after <= seconds)


def is_given_back(node: NodeFacts, policy: UpgradePolicy) -> bool:
    """Tell whether a node goes back into service where it would fail, as its pods have not gone in time."""
    settings = policy.rollout.undrainable
    return settings is not None and settings.behaviour is Behaviour.SKIP and node.untouched


def give_back(node: NodeFacts, cause: str, now: float, events: tuple[EventText, ...] = ()) -> Move:
    """Put a node back into service with the driver that it has, remembering why."""
    told = EventText(_GIVEN_BACK + cause, warning=True)
    given_up = GivenUp(now, cause[:CAUSE_LENGTH])
    return msgspec.structs.replace(back_in_the_queue(node), given_up=given_up, events=(*events, told))


def ending_sooner(wait: Wait, at: float | None, now: float) -> Wait:
    """Return a wait that ends when the node is given up, where that is to come."""
    if at is None or at <= now:
        return wait
    until, retry = (at if moment is None else min(moment, at) for moment in (wait.hold.until, wait.retry_at))
    return msgspec.structs.replace(wait, hold=msgspec.structs.replace(wait.hold, until=until), retry_at=retry)


def in_quarantine(record: Record, policy: UpgradePolicy) -> bool:
    """Tell whether a node is remembered to be in quarantine, and is still to be."""
    settings = policy.rollout.undrainable
    quarantined = record.given_up is not None and record.given_up.quarantined and record.state in LEAVING
    return quarantined and settings is not None and settings.behaviour is Behaviour.QUARANTINE


def is_quarantined(node: NodeFacts, policy: UpgradePolicy) -> bool:
    """Tell whether a node is in quarantine: not one of which somebody deleted the driver pod, whose next driver has to load."""
    return in_quarantine(node.record, policy) and node.state in LEAVING and node.untouched and not node.by_hand


def kept_out(node: NodeFacts, policy: UpgradePolicy) -> Move | Wait | None:
    """Return what is done about a node in quarantine: nothing, until it may leave it. Nothing has to leave the node any more, it
    is to have yet another driver, somebody asks for it, or wants it to be left alone. One whose cordon somebody lifts serves on.
    """
    given_up = node.record.given_up
    if given_up is None or not given_up.quarantined or not node.untouched:
        return None
    asked = node.requested or node.node.labels.get(names.UPGRADE_SKIP) == "true"
    if asked or node.retargeted or not in_quarantine(node.record, policy) or not has_users(node):
        return back_in_the_queue(node)
    if not node.unschedulable:
        served = msgspec.structs.replace(given_up, quarantined=False)
        return msgspec.structs.replace(back_in_the_queue(node), given_up=served)
    return Wait(Hold(Quarantined(given_up.cause), given_up.at))


