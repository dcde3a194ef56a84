"""A rollout as somebody has approved of it: to which driver each node goes, in which wave, and within which limits.

What follows from pods and from time is no part of it: the order within a wave, when it begins, which nodes are done. So a rollout
that goes on as planned stays the one that was planned.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.reasons import Reason

MOST_TEXT: Final = 8 << 20
"""Characters of a plan that are read."""


class PlannedPlace(msgspec.Struct, frozen=True):
    """Say which driver a node gets, and in which wave; the last wave, with all others, has no name."""

    driver: str
    """The digest of its configuration, so that it is known before it is rolled out."""
    wave: str = ""


class ApprovedPlan(msgspec.Struct, frozen=True):
    """Hold the plan of one rollout."""

    limits: Mapping[str, str] = {}
    """Settings that differ from their defaults, by their names."""
    nodes: Mapping[str, PlannedPlace] = {}
    versions: Mapping[str, str] = {}
    """The version of each driver, for people: it is no part of what is compared."""
    unreadable: bool = False
    """Whether the annotation is none that gpuward wrote."""

    @property
    def digest(self) -> str:
        """Return what is another one whenever the plan is."""
        return hashlib.sha256(self._text()).hexdigest()[:16]

    def _text(self) -> bytes:
        return msgspec.json.encode({"limits": self.limits, "nodes": self.nodes}, order="sorted")

    def encoded(self) -> str:
        """Return the text of the annotation."""
        plan = base64.b64encode(zlib.compress(self._text(), 9)).decode()
        stored = _Stored(self.digest, plan, {driver: self.versions[driver] for driver in sorted(self.versions)})
        return msgspec.json.encode(stored).decode()


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    digest: str
    plan: str
    versions: Mapping[str, str] = {}


def decoded(text: str) -> ApprovedPlan:
    """Return the plan of an annotation; of one that cannot be read nobody knows what was approved of."""
    try:
        stored = msgspec.json.decode(text, type=_Stored)
        plan = zlib.decompressobj().decompress(base64.b64decode(stored.plan, validate=True), MOST_TEXT)
        found = msgspec.json.decode(plan, type=ApprovedPlan)
    except (ValueError, RecursionError, zlib.error, msgspec.MsgspecError):
        return ApprovedPlan(unreadable=True)
    if found.digest != stored.digest:
        return ApprovedPlan(unreadable=True)
    return msgspec.structs.replace(found, versions=stored.versions)


class PlanDiffers(msgspec.Struct, frozen=True):
    """Wait until the rollout is the one that was approved of, or somebody approves of this one."""

    reason: ClassVar = Reason.PLAN_DIFFERS
    difference: str
    differences: int = 1


def differences(approved: ApprovedPlan, limits: Mapping[str, str], starting: Mapping[str, PlannedPlace],
                versions: Mapping[str, str] = {}) -> Iterator[str]:
    """Say in what a rollout differs from the one that was approved of, by the nodes that have yet to start. Drivers are named by
    their versions, where these are known and tell them apart: those of the plan, and `versions` of what nodes would get.
    """
    versions = {**approved.versions, **versions}
    if approved.unreadable:
        yield f"the annotation {names.APPROVED_PLAN} is none that gpuward wrote"
        return
    for field in sorted(approved.limits.keys() | limits.keys()):
        before, now = approved.limits.get(field), limits.get(field)
        if before != now:
            yield f"{field} is {now or 'the default'}, and was {before or 'the default'}"
    for node, place in sorted(starting.items()):
        planned = approved.nodes.get(node)
        if planned is None:
            yield f"node {node} is not in it"
        elif planned.driver != place.driver:
            yield f"node {node} would get another driver ({_told_apart(place.driver, planned.driver, versions)})"
        elif planned.wave != place.wave:
            yield f"node {node} would be in {_wave(place.wave)}, not in {_wave(planned.wave)}"


def _told_apart(now: str, planned: str, versions: Mapping[str, str]) -> str:
    after, before = versions.get(now, ""), versions.get(planned, "")
    if after and after == before:
        return f"{after} with another template: {now[:12]}, not {planned[:12]}"
    return f"{after or now[:12]}, not {before or planned[:12]}"


def _wave(name: str) -> str:
    return f"wave {name}" if name else "the last wave"
