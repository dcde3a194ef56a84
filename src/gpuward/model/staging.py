"""The images of a node's next driver, brought onto the node before it is taken out of service: settings, and what is remembered.

What came of it is in an annotation of the node, `gpuward.io/staged-images`, as the pods that pull are deleted. Examples:

    {"images":"5d41402abc4b2a76","at":"2026-01-02T03:04:05.000Z"}
    {"images":"5d41402abc4b2a76","at":"2026-01-02T03:04:05.000Z","failed":"container driver: ErrImagePull","attempts":2}
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.reading import MOST, Moment, read_json, seconds
from gpuward.model.reasons import Reason
from gpuward.model.record import format_time

LONGEST: Final = 1024
"""Characters of an annotation that are read; ours has some 300 at most."""
LONGEST_CAUSE: Final = 160
"""Characters of a cause that are kept."""


class PrestageMode(StrEnum):
    """Say what is brought onto nodes before their turn."""

    OFF = "Off"
    IMAGE = "Image"


class OnFailure(StrEnum):
    """Say what becomes of a node onto which the images cannot be brought."""

    HOLD = "Hold"
    """It keeps its driver until they are there."""
    IGNORE = "Ignore"
    """It is upgraded without them."""


class Prestage(msgspec.Struct, frozen=True):
    """Hold the settings."""

    mode: PrestageMode = PrestageMode.OFF
    parallel: int = 10
    """On how many nodes images are pulled at once."""
    on_failure: OnFailure = OnFailure.HOLD


class ImageNotStaged(msgspec.Struct, frozen=True):
    """Wait until the images of the next driver are on the node."""

    reason: ClassVar = Reason.IMAGE_NOT_STAGED
    image: str


class StagingFailed(msgspec.Struct, frozen=True):
    """Wait until the images of the next driver can be brought onto the node, which failed."""

    reason: ClassVar = Reason.STAGING_FAILED
    image: str
    cause: str


class StagingRecord(msgspec.Struct, frozen=True):
    """Remember what came of bringing images onto a node. Times are seconds since the epoch."""

    images: str
    """A digest of them (`gpuward.model.containers.PodShape.digest`)."""
    at: float
    failed: str = ""
    """Why they are not there; empty where they are."""
    attempts: int = 0
    """How often that failed."""


class _Stored(msgspec.Struct, frozen=True):
    images: str
    at: Moment
    failed: str = ""
    attempts: Annotated[int, msgspec.Meta(ge=0)] = 0


def encode_staging(record: StagingRecord) -> str:
    """Return the annotation's JSON text."""
    stored: dict[str, object] = {"images": record.images, "at": format_time(record.at)}
    if record.failed:
        stored |= {"failed": record.failed[:LONGEST_CAUSE], "attempts": record.attempts}
    return msgspec.json.encode(stored).decode()


def staging_record(annotations: Mapping[str, str]) -> StagingRecord | None:
    """Return what a node's annotations remember; None where they have nothing, or garbage."""
    text = annotations.get(names.STAGED, "")
    if not text or len(text) > LONGEST:
        return None
    try:
        stored = read_json(text, _Stored)
        at = seconds(stored.at)
    except ValueError:
        return None
    return StagingRecord(stored.images, at, stored.failed[:LONGEST_CAUSE], min(stored.attempts, MOST))
