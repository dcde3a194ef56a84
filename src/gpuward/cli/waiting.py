"""`gpuward status --wait`: until every node has the driver that it should have, or until somebody has to look."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from gpuward.cli.leader import Leader
from gpuward.cli.look import Look, Picture
from gpuward.cli.overview import headline
from gpuward.cli.terminal import say
from gpuward.errors import RolloutNotDone, RolloutStopped
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS
from gpuward.operands.rollout import CONDITION, rollout_of
from gpuward.policy.refused import refusal, refusals
from gpuward.ports import Observer
from gpuward.report.behind import behind_stuck_waves

STOPPED = frozenset({
    "InvalidPolicy", "Paused", "FailureBudgetExceeded", "NewDriverFails", "ReplacementRefused", "EvictionForbidden",
    "TemplateEdited", "NoNodeMayStart", "NodesFailed", "WaveFailed", "WaveEmpty", "AnalysisFailed", "ApprovalRequired",
    "Aborted", "PlanDiffers"})
"""Reasons of the condition that do not end by themselves."""
REFUSED = "ReplacementRefused"
"""The one that only the operator knows, as it has asked for what is refused."""
SETTLED = 2.0
"""Seconds for which all must be well: an edit of a moment ago has not been taken up by everybody."""
STOPPED_FOR = 10.0
"""Seconds for which a rollout must be stopped: a pass that was under way may yet go on."""
NO_NODE_FOR = 60.0
"""The same where no node may start, as one that fills the limit may only be rebooting; where each node needs somebody, who may be
about to come, or is skipped; and where the policy was followed in another namespace last."""


class Waiting(msgspec.Struct, frozen=True):
    """Wait for the end of the rollout, for `timeout` seconds at most; 0 is without end."""

    timeout: float = 0.0

    async def over(self, look: Look, observer: Observer) -> None:
        """Wait.

        Raises:
            RolloutNotDone: the time was up.
            RolloutStopped: nothing goes on until somebody does something.
        """
        begun, settled = time.monotonic(), min(SETTLED, self.timeout / 2 or SETTLED)
        since: dict[str, float] = {}
        said = False
        while True:
            observer.observe()
            leader = await look.leader()
            picture, now = look.picture(msgspec.structs.replace(leader, running=None)), time.monotonic()  # an operator may come
            told = "done" if is_done(picture) else stopped(picture)
            if leader.running is False and not said and told != "done":
                say(f"gpuward: still waiting, as {leader.message}; nothing goes on until one does", err=True)
            said = leader.running is False
            since = {told: since.get(told, now)}
            if told == "done" and now - since[told] >= settled:
                return
            patience = STOPPED_FOR if told.startswith(tuple(STOPPED - {Reason.NO_NODE_MAY_START})) else NO_NODE_FOR
            if told not in ("", "done") and now - since[told] >= patience:
                raise RolloutStopped(f"stopped: {told}" + (f"; and {leader.message}" if leader.running is False else ""))
            if self.timeout and now - begun >= self.timeout:
                raise RolloutNotDone(f"not done after {self.timeout:g} s: {why_not(picture, leader)}")
            left = begun + self.timeout - now if self.timeout else 1.0
            await observer.changed(max(min(1.0, left), 0.01))
            await asyncio.sleep(0.05)


def is_done(picture: Picture) -> bool:
    """Tell whether the operator has taken up the newest policies and says that all is well, and the cluster looks so."""
    view = picture.active.view
    if view is None or rollout_of(picture.plan).status != "True":
        return False
    told = _said(picture)
    drivers = picture.drivers.active if picture.drivers.in_force else ()
    ready = all((each.view.body.get("status") or {}).get("state") in ("ready", "disabled") for each in drivers)
    return told.get("status") == "True" and told.get("observedGeneration") == view.generation and ready


def _said(picture: Picture) -> dict[str, Any]:
    """Return what the operator says of the ClusterPolicy's rollout, empty where it says nothing yet."""
    status: dict[str, Any] = (picture.active.view.body.get("status") if picture.active.view is not None else None) or {}
    return next((one for one in status.get("conditions") or () if one.get("type") == CONDITION), {})


def stopped(picture: Picture) -> str:
    """Say why nothing goes on until somebody does something; nothing where something may."""
    if picture.elsewhere:
        return picture.elsewhere
    rollout = rollout_of(picture.plan)
    if (why := refusal(picture.drivers)) and not any(status.state in IN_PROGRESS for status in picture.plan.nodes.values()):
        return f"InvalidPolicy: {why}"
    if (said := _said(picture)).get("reason") == REFUSED and rollout.status != "True":
        return f"{REFUSED}: {said.get('message')}"
    again = any(hold.reason is Reason.RETRY_LATER for hold in picture.plan.holds.values())
    over = rollout.reason in STOPPED or _all_need_somebody(picture) or _never_opens(picture)
    return f"{rollout.reason}: {rollout.message}" if over and not again else ""


def _all_need_somebody(picture: Picture) -> bool:
    """Tell whether no node that is not up to date gets further by itself. One that is not ready may only be rebooting,
    one that is skipped never gets there.
    """
    behind = behind_stuck_waves(picture.plan, picture.snapshot, picture.drivers)
    waiting = [status for name, status in picture.plan.nodes.items() if not status.up_to_date and name not in behind]
    holds = [status.hold for status in waiting]
    under_way = any(status.state in IN_PROGRESS and not status.quarantined for status in waiting)
    needed = all(hold is not None and (hold.reason.needs_person or hold.repels or hold.reason is Reason.SKIPPED)
                 for hold in holds)
    rebooting = any(hold is not None and hold.reason is Reason.NODE_NOT_READY for hold in holds)
    return bool(waiting) and needed and not under_way and not rebooting


def _never_opens(picture: Picture) -> bool:
    """Tell whether all that wait for windows do so for some that never open, and none is under way."""
    shut = [hold for hold in picture.plan.holds.values() if hold.reason is Reason.WINDOW_SHUT]
    under_way = any(status.state in IN_PROGRESS for status in picture.plan.nodes.values())
    return bool(shut) and all(hold.until is None for hold in shut) and not under_way


def why_not(picture: Picture, leader: Leader) -> str:
    """Say how far it is when the time is up."""
    if leader.running is False:
        return leader.message
    if not picture.plan.nodes:
        return headline(picture)
    told = rollout_of(picture.plan).message
    return f"{why[0]}; apart from that {told}" if (why := refusals(picture.drivers)) else told


