"""Find out who undoes labels that are written again and again.

A write takes the label over, and with it what managedFields said of who wrote it before. So the node is read before such a write:
once or twice when a fight begins, and never otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.actions import PatchNode

FIGHT: Final = 6
"""Writes of the same value that are a fight; an upgrade writes none of them that often."""
WINDOW: Final = 600.0
"""Seconds within which they are counted; so long without one, the fight is over."""


class Rival(msgspec.Struct, frozen=True):
    """Name the field manager that wrote a label last before us."""

    manager: str
    at: str = ""
    """When, as managedFields have it."""


class ContestedLabels:
    """Count the writes of each label, and remember who undid them. Losing it costs a name, so it lives in memory only."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, str | None], deque[float]] = {}
        self._rivals: dict[tuple[str, str], Rival] = {}
        self._tidied = 0.0
        """When what is over was forgotten last."""

    def rival(self, node: str, label: str) -> Rival | None:
        """Return who undid a label of a node, if that is known."""
        return self._rivals.get((node, label))

    async def look(self, client: Client, action: PatchNode, now: float) -> None:
        """Read the node before a write that makes a fight, or would be the last before one. A read that fails costs the name."""
        name = action.node.name
        contested = [key for key, value in action.labels.items() if self._makes_fight((name, key, value), now)]
        if not contested:
            return
        try:
            found = (await client.get(resources.NODES, name)).object()
        except (errors.ApiError, errors.Unreachable):
            return
        self._rivals |= {(name, key): rival for key in contested if (rival := _owner(found, key)) is not None}

    def _makes_fight(self, write: tuple[str, str, str | None], now: float) -> bool:
        if not self._tidied <= now < self._tidied + WINDOW:
            self._forget(now)
            self._tidied = now
        times = self._written.setdefault(write, deque(maxlen=FIGHT + 1))
        times.append(now)
        within = sum(now - WINDOW < at <= now for at in times)
        return FIGHT - 1 <= within <= FIGHT

    def _forget(self, now: float) -> None:
        self._written = {write: times for write, times in self._written.items() if now - WINDOW < times[-1] <= now}
        known = {(node, key) for node, key, _ in self._written}
        self._rivals = {where: rival for where, rival in self._rivals.items() if where in known}


def _owner(node: Mapping[str, Any], label: str) -> Rival | None:
    """Return the field manager, other than ours, that owns a label; of several the one that wrote last."""
    entries = node["metadata"].get("managedFields") or ()
    owners = [Rival(str(entry.get("manager")), str(entry.get("time") or "")) for entry in entries
              if entry.get("manager") not in (None, "", names.FIELD_MANAGER) and _owns(entry, label)]
    return max(owners, key=lambda rival: rival.at, default=None)


def _owns(entry: Mapping[str, Any], label: str) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    return f"f:{label}" in ((fields.get("f:metadata") or {}).get("f:labels") or {})
