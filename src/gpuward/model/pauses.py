"""The labels by which operands go while a driver is replaced, in such a pause: the contract of NVIDIA's driver manager.

What a label was is read from what it is, so that whoever comes next puts back what an earlier one left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuward import names

MARKER: Final = "paused-for-driver-upgrade"


def paused(value: str) -> str:
    """Return the value that a label has in a pause: one that is empty or `false` turns nothing on, and stays."""
    if value in ("", "false") or MARKER in value:
        return value
    return MARKER if value == "true" else f"{value}_{MARKER}"


def restored(value: str) -> str:
    """Return the value that a label had before its pause."""
    if MARKER not in value:
        return value
    return "true" if value == MARKER else value.replace(f"{MARKER}_", "").replace(MARKER, "").strip("_")


def restore_labels(labels: Mapping[str, str], custom: str = "") -> dict[str, str]:
    """Return what changes where all that is paused is to come back, whoever paused it for an upgrade."""
    keys = [key for key in labels if key.startswith(names.DEPLOY_PREFIX) or key == custom]
    return {key: restored(labels[key]) for key in keys if restored(labels[key]) != labels[key]}
