"""Annotations of custom resources, in which commands leave their word and the operator what it has to remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def annotation(body: Mapping[str, Any], key: str) -> str:
    """Return an annotation of a custom resource, empty where there is none."""
    return str((body.get("metadata", {}).get("annotations") or {}).get(key, ""))
