"""When people changed the settings of drivers last, as far as this process has seen it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.clusterpolicy import ActivePolicy

Active = TypeVar("Active", ActivePolicy, ActiveDriver)


class Edits:
    """Note when settings change. Those that are there at the first look have not: nobody tells when they were made."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[tuple[str, str], tuple[object, float]] = {}

    def noted(self, active: Active, *path: str) -> Active:
        """Return a policy with when what is below a path of its custom resource was changed last."""
        if active.view is None:
            return active
        key = type(active).__name__, active.view.name
        settings = _below(active.view.body, path)
        before, at = self._known.get(key, (settings, 0.0))
        if settings is not before and settings != before:
            at = self._now()
        self._known[key] = settings, at
        return msgspec.structs.replace(active, upgrades=msgspec.structs.replace(active.upgrades, edited=at)) if at else active


def _below(body: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: Any = body
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
