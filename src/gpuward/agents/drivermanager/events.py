"""What the driver manager tells in events of its node, which `kubectl describe node` shows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from gpuward import errors
from gpuward.agents.api import ApiServer
from gpuward.agents.drivermanager.steps import Wait
from gpuward.agents.telling import Teller, printable, within_bytes

EVENT_AFTER: Final = 10.0
"""Seconds of waiting for the same thing, after which an event says so."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 600.0
"""Seconds from one event of the same wait to the next; each pause takes twice as long as the one before. The words may change
with each look: processes come and go, and a refusal may have the time in it.
"""
AT_MOST: Final = 5.0
"""Seconds for writing one: the node waits meanwhile, and goes on without it."""
LONGEST: Final = 1024
"""Bytes of an event's message."""


@dataclass(slots=True)
class NodeEvents:
    """Write events of a node, each text once, and few of one wait."""

    node: str
    api: ApiServer
    teller: Teller
    monotonic: Callable[[], float] = time.monotonic
    _told: set[str] = field(default_factory=set, init=False)
    _next: dict[Wait, tuple[float, float]] = field(default_factory=dict, init=False)
    """When the next event of a wait may come, and how long the pause after it is."""

    def waiting(self, wait: Wait, since: float, message: str) -> None:
        """Say what is waited for, where it takes long."""
        now = self.monotonic()
        due, pause = self._next.get(wait, (since + EVENT_AFTER, FIRST_PAUSE))
        if now < due or message in self._told:
            return
        self._next[wait] = now + pause, min(2 * pause, LONGEST_PAUSE)
        self._write("Normal", "DriverManagerWaiting", message)

    def failed(self, message: str) -> None:
        """Say why no room could be made."""
        self._write("Warning", "DriverManagerFailed", message)

    def _write(self, kind: str, reason: str, message: str) -> None:
        if message in self._told:
            return
        self._told.add(message)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        node = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node}
        body = {"apiVersion": "v1", "kind": "Event", "type": kind, "reason": reason,
                "message": within_bytes(printable(message), LONGEST),
                "metadata": {"generateName": f"{self.node}.", "namespace": "default"},
                "involvedObject": node, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
                "source": {"component": "gpuward-driver-manager", "host": os.uname().nodename}}
        try:
            with self.api.within(AT_MOST):
                self.api.create("/api/v1/namespaces/default/events", body)
        except (errors.ApiError, errors.Unreachable, errors.KubeconfigError) as error:
            self.teller.say(f"no event could be written: {error}")
