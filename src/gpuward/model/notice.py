"""The notice that nodes are given before pods are evicted from them: settings, what is written on a node, and who has answered.

It is in an annotation of the node, `gpuward.io/notice`. Its id is what an owner of pods writes on them. Example:

    {"id":"3f0c2a9b","target":"6f9c7d5b4","given":"2026-01-02T03:04:05.000Z","begins":"2026-01-02T03:19:05.000Z","to":"595.91.08"}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from math import ceil
from typing import ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.reading import Moment, format_time, read_json, seconds
from gpuward.model.reasons import Reason
from gpuward.model.record import AGREEMENT
from gpuward.model.views import NodeView, PodView, Ref

LONGEST: Final = 1024
"""Characters of an annotation that are read; ours has some 250 at most."""
LONGEST_BEFORE: Final = 7 * 24 * 3600.0
"""Seconds for which a notice may be given beforehand."""
OUTLIVES: Final = 3600.0
"""Seconds after its end for which a notice counts that nobody has to answer: what pods had saved then is old by then."""
ALWAYS: Final = "always"
"""What a pod says that has nothing to lose at any time: it is given no notice."""


class Acknowledge(StrEnum):
    """Say what the owners of pods have to do with a notice."""

    OPTIONAL = "Optional"
    """The node goes on when the time is up, or before that once all have answered."""
    REQUIRED = "Required"
    """The node goes on once all have answered."""


class NoticeSettings(msgspec.Struct, frozen=True):
    """Hold the settings."""

    before: float
    """Seconds between the notice and the first eviction."""
    acknowledge: Acknowledge = Acknowledge.OPTIONAL


class Notice(msgspec.Struct, frozen=True):
    """Hold the notice that a node was given. Times are seconds since the epoch."""

    id: str
    target: str
    """The driver that it is about, as the record of a node names it."""
    given: float
    begins: float
    """From when on pods are evicted."""
    to: str = ""
    """The version of that driver, where it is known."""


class _OnPods(msgspec.Struct, frozen=True):
    id: str
    begins: float
    pod: Ref
    """One that has not acknowledged."""
    pods: int
    """How many have not."""
    of: int
    """How many there are."""


class NoticeGiven(_OnPods, frozen=True):
    """Wait until the time of a notice is up, or all pods have acknowledged it."""

    reason: ClassVar = Reason.NOTICE_GIVEN
    required: bool = False
    """Whether the time alone lets the node go on."""
    before: float = 0.0
    """Seconds of a notice that has yet to be given, so that nobody can answer its id; 0 where it was given."""


class NoticeUnanswered(_OnPods, frozen=True):
    """Wait until all pods have acknowledged a notice whose time is up."""

    reason: ClassVar = Reason.NOTICE_UNANSWERED


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    target: str
    given: Moment
    begins: Moment
    to: str = ""


def new_notice(node: NodeView, target: str, to: str, before: float, now: float) -> Notice:
    """Return the notice that a node is given now; its end is rounded up to what the annotation can say."""
    said = "\n".join((node.uid, target, format_time(now)))
    return Notice(hashlib.blake2s(said.encode(), digest_size=4).hexdigest(), target, now, ceil((now + before) * 1000) / 1000, to)


def encode_notice(notice: Notice) -> str:
    """Return the annotation's JSON text."""
    stored = {"id": notice.id, "target": notice.target, "given": format_time(notice.given), "begins": format_time(notice.begins)}
    return msgspec.json.encode(stored | ({"to": notice.to} if notice.to else {})).decode()


def notice_of(annotations: Mapping[str, str]) -> Notice | None:
    """Return the notice on a node; None where there is none, or garbage."""
    text = annotations.get(names.NOTICE, "")
    if not text or len(text) > LONGEST:
        return None
    try:
        stored = read_json(text, _Stored)
        given, begins = seconds(stored.given), seconds(stored.begins)
    except ValueError:
        return None
    if not 0 <= begins - given <= LONGEST_BEFORE + AGREEMENT:
        return None
    return Notice(stored.id, stored.target, given, begins, stored.to)


def unanswered(pod: PodView, annotations: Mapping[str, str]) -> str:
    """Say that a pod has not acknowledged the notice on its node; nothing where it has, or there is none."""
    notice = notice_of(annotations)
    if notice is None or pod.acknowledged in (notice.id, ALWAYS):
        return ""
    return f"it has not acknowledged notice {notice.id}"
