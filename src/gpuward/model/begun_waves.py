"""Which waves of a rollout have begun and are not over: an annotation of its ClusterPolicy or NVIDIADriver.

    gpuward.io/begun-waves: {"targets":["6f9c7d5b4"],"began":{"example.com/pool=canary":"2026-01-02T03:04:05.000Z"}}

What is known of a wave stands on its nodes, and goes with them: a Node that is deleted takes along that its wave waits for it.
Waves are known by the labels that they ask for, as people change names. Anybody may edit it; garbage is as good as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpuward.model.reading import Moment, format_time, read_json, seconds

LONGEST: Final = 65_536
"""Characters of an annotation that are read."""


class BegunWaves(msgspec.Struct, frozen=True):
    """Hold since when waves have begun that are not over, and for which drivers."""

    targets: tuple[str, ...] = ()
    began: Mapping[str, float] = {}
    """By the labels of the wave's nodes; the second wave with the same labels has `#2` after them."""
    emptied: Mapping[str, float] = {}
    """The same of those that have no node any more: what somebody said before was not about that."""


class _Stored(msgspec.Struct, frozen=True):
    targets: tuple[str, ...]
    began: dict[str, Moment]
    emptied: dict[str, Moment] = {}


def encode_begun(begun: BegunWaves) -> str | None:
    """Return the text of the annotation; None where no wave has begun."""
    if not begun.began:
        return None
    times, emptied = _times(begun.began), _times(begun.emptied)
    return msgspec.json.encode({"targets": begun.targets, "began": times} | ({"emptied": emptied} if emptied else {})).decode()


def _times(found: Mapping[str, float]) -> dict[str, str]:
    return {labels: format_time(at) for labels, at in sorted(found.items())}


def read_begun(text: str) -> BegunWaves:
    """Return what the annotation says, nothing for garbage."""
    try:
        stored = read_json(text[:LONGEST], _Stored) if text else None
        if stored is None:
            return BegunWaves()
        began, emptied = ({labels: seconds(at) for labels, at in each.items()} for each in (stored.began, stored.emptied))
        return BegunWaves(stored.targets, began, emptied)
    except ValueError:
        return BegunWaves()
