"""What people said of a rollout with `gpuward approve`, `promote` and `abort`: annotations of its ClusterPolicy or NVIDIADriver.

    gpuward.io/approved: {"at":"2026-01-02T03:04:05.000Z","by":"alice","targets":["6f9c7d5b4"]}

Anybody may edit them. Garbage approves of nothing, promotes nothing and aborts nothing; the operator's log quotes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.analysis_note import read_analysis
from gpuward.model.approved_plan import decoded
from gpuward.model.begun_waves import read_begun
from gpuward.model.reading import Moment, read_json, seconds
from gpuward.model.record import format_time
from gpuward.model.rollout import RolloutSettings
from gpuward.model.waves import Word
from gpuward.policy.annotated import annotation

LONGEST: Final = 65_536
"""Characters of an annotation that are read."""
SHOWN: Final = 60
"""Characters that are shown of one that cannot be read."""
VERBS: Final = {names.APPROVED: "approve", names.PROMOTED: "promote", names.ABORTED: "abort"}
"""The command that writes each annotation."""


class _Stored(msgspec.Struct, frozen=True):
    at: Moment
    by: str
    targets: tuple[str, ...]
    nodes: tuple[str, ...] = ()


def encode_word(word: Word) -> str:
    """Return the text of the annotation."""
    stored: dict[str, Any] = {"at": format_time(word.at), "by": word.by, "targets": word.targets}
    return msgspec.json.encode(stored | ({"nodes": word.nodes} if word.nodes else {})).decode()


def read_word(body: Mapping[str, Any], key: str) -> Word | None:
    """Return what an annotation of a custom resource says, None where there is none.

    Raises:
        PolicyError: it makes no sense.
    """
    text = annotation(body, key)
    if not text:
        return None
    try:
        stored = read_json(text[:LONGEST], _Stored)
        return Word(seconds(stored.at), stored.by[:SHOWN], stored.targets, stored.nodes)
    except ValueError:
        fix = f"remove it, or let `gpuward {VERBS[key]}` write it"
        raise PolicyError(f"metadata.annotations['{key}']", text[:SHOWN], fix) from None


def with_words(settings: RolloutSettings, body: Mapping[str, Any]) -> tuple[RolloutSettings, PolicyError | None]:
    """Return the settings of a rollout with what people said of it, and what is wrong with one of the annotations."""
    found: dict[str, Word | None] = {}
    problem = None
    for key in VERBS:
        try:
            found[key] = read_word(body, key)
        except PolicyError as error:
            problem = problem or error
    words = {"approved": found.get(names.APPROVED), "promoted": found.get(names.PROMOTED), "aborted": found.get(names.ABORTED)}
    settings = msgspec.structs.replace(settings, **words) if any(words.values()) else settings
    if text := annotation(body, names.APPROVED_PLAN):
        settings = msgspec.structs.replace(settings, approved_plan=decoded(text))
    text = annotation(body, names.ANALYSIS)
    settings = msgspec.structs.replace(settings, analysis=read_analysis(text)) if text else settings
    text = annotation(body, names.BEGUN_WAVES)
    return (msgspec.structs.replace(settings, begun=read_begun(text)) if text else settings), problem


def notes(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the annotations as they are written: what is read of them is another one whenever they are."""
    return tuple(annotation(body, key) for key in (*VERBS, names.ANALYSIS, names.BEGUN_WAVES, names.APPROVED_PLAN))
