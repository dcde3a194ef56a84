"""`gpuward status --wait`: until every node has the driver that it should have, or until somebody has to look."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from gpuward.cli.look import Look, Picture
from gpuward.errors import RolloutNotDone, RolloutStopped
from gpuward.model.reasons import Reason
from gpuward.operands.rollout import CONDITION, rollout_of
from gpuward.ports import Observer

STOPPED = frozenset({
    "InvalidPolicy", "Paused", "FailureBudgetExceeded", "NewDriverFails", "TemplateEdited", "NoNodeMayStart", "NodesFailed"})
"""Reasons of the condition that do not end by themselves."""
SETTLED = 2.0
"""Seconds for which all must be well: an edit of a moment ago has not been taken up by everybody."""
STOPPED_FOR = 10.0
"""Seconds for which a rollout must be stopped: a pass that was under way may yet go on."""
NO_NODE_FOR = 60.0
"""The same where no node may start: one that fills the limit may only be rebooting."""


class Waiting(msgspec.Struct, frozen=True):
    """Wait for the end of the rollout, for `timeout` seconds at most; 0 is without end."""

    timeout: float = 0.0

    async def over(self, look: Look, observer: Observer) -> None:
        """Wait.

        Raises:
            RolloutNotDone: the time was up.
            RolloutStopped: nothing goes on until somebody does something.
        """
        begun = time.monotonic()
        since: dict[str, float] = {}
        while True:
            observer.observe()
            picture, now = look.picture(await look.leader()), time.monotonic()
            told = "done" if is_done(picture) else stopped(picture)
            since = {told: since.get(told, now)}
            if told == "done" and now - since[told] >= SETTLED:
                return
            patience = NO_NODE_FOR if told.startswith(Reason.NO_NODE_MAY_START) else STOPPED_FOR
            if told not in ("", "done") and now - since[told] >= patience:
                raise RolloutStopped(f"stopped: {told}")
            if self.timeout and now - begun >= self.timeout:
                raise RolloutNotDone(f"not done after {self.timeout:g} s: {rollout_of(picture.plan).message}")
            left = begun + self.timeout - now if self.timeout else 1.0
            await observer.changed(max(min(1.0, left), 0.01))
            await asyncio.sleep(0.05)


def is_done(picture: Picture) -> bool:
    """Tell whether the operator has taken up the newest policies and says that all is well, and the cluster looks so."""
    view = picture.active.view
    if view is None or rollout_of(picture.plan).status != "True":
        return False
    status: dict[str, Any] = view.body.get("status") or {}
    told: dict[str, Any] = next((one for one in status.get("conditions") or () if one.get("type") == CONDITION), {})
    drivers = picture.drivers.active if picture.drivers.in_force else ()
    ready = all((each.view.body.get("status") or {}).get("state") in ("ready", "disabled") for each in drivers)
    return told.get("status") == "True" and told.get("observedGeneration") == view.generation and ready


def stopped(picture: Picture) -> str:
    """Say why nothing goes on until somebody does something; nothing where something may."""
    rollout = rollout_of(picture.plan)
    again = any(hold.reason is Reason.RETRY_LATER for hold in picture.plan.holds.values())
    return f"{rollout.reason}: {rollout.message}" if rollout.reason in STOPPED and not again else ""


