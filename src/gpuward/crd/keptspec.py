"""The spec of a custom resource as its annotation keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

LONGEST: Final = 65_536
"""Bytes. All annotations of an object may have 262,144 together, and `kubectl apply` keeps the spec in one, too."""


def spec_to_keep(body: Mapping[str, Any]) -> str | None:
    """Return the annotation that keeps the spec of a custom resource; None for one that is too long to be kept."""
    text = msgspec.json.encode(body.get("spec") or {}, order="deterministic")
    return text.decode() if len(text) <= LONGEST else None
