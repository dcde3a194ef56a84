"""The labels by which operands go while a driver is replaced, in such a pause: the contract of NVIDIA's driver manager.

What a label was is read from what it is, so that whoever comes next puts back what an earlier one left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuward import names

MARKER: Final = "paused-for-driver-upgrade"
NOTHING_ELSE: Final = "true"
"""What the note of a pause says where no label of people's own is paused."""


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


def restore_labels(labels: Mapping[str, str], *custom: str) -> dict[str, str]:
    """Return what changes where all that is paused is to come back, whoever paused it for an upgrade; with labels of people's own
    that go so, too.
    """
    keys = [key for key in labels if key.startswith(names.DEPLOY_PREFIX) or key in custom]
    return {key: restored(labels[key]) for key in keys if restored(labels[key]) != labels[key]}


def note_of(custom: Iterable[str]) -> str:
    """Return what the note of a pause says: the labels of people's own that are paused, too. Who comes next may not be told of
    them any more.
    """
    return ",".join(sorted({*custom})) or NOTHING_ELSE


def labels_noted(note: str | None) -> tuple[str, ...]:
    """Return the labels of people's own that a note of a pause names."""
    return tuple(note.split(",")) if note and note != NOTHING_ELSE else ()
