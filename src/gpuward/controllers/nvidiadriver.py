"""The controller of NVIDIADrivers: keeps drivers as they describe them, while the ClusterPolicy leaves drivers to these."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from gpuward.controllers.clusterpolicy import log_writes
from gpuward.model.passes import Pass
from gpuward.model.snapshot import Snapshot
from gpuward.operands.nvidiadriver.decide import KIND, DriverMemory, Driving, decide_drivers
from gpuward.operands.nvidiadriver.status import DISABLED
from gpuward.policy.nvidiadrivers import PoliciesInForce


class NVIDIADriverController:
    """Keep drivers as the NVIDIADrivers describe them."""

    name = "controllers.NVIDIADriver"

    def __init__(self, images: Mapping[str, str]) -> None:
        self._images = images
        self._memory = DriverMemory()

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Driving:
        """Return the writes that the NVIDIADrivers need, and the status of each."""
        return decide_drivers(snapshot, policies, self._images, now, self._memory)


class NVIDIADriverLog:
    """Log each write, and each change of a verdict, but not of what its pods wait for."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(source=NVIDIADriverController.name)
        self._said: dict[str, str] = {}

    def __call__(self, seen: Pass[PoliciesInForce, Driving]) -> None:
        """Take a pass."""
        decision = seen.decision
        if decision is None:
            return
        log_writes(self._log, seen.outcomes)
        for name, verdict in decision.verdicts.items():
            waiting = decision.waiting.get(name, "")
            # What a crashing pod says changes with each restart: the condition has that.
            said = f"{verdict.reason} {verdict.message.removesuffix(waiting)}"
            if self._said.get(name) != said:
                self._said[name] = said
                log = self._log.info if verdict.ready or verdict is DISABLED else self._log.warning
                details = {"waiting": waiting} if waiting else {}
                log(f"{KIND} {verdict.state}", driver=name, message=verdict.message, **details)
