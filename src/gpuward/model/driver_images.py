"""What registries say of the images of drivers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import msgspec

from gpuward.model.reasons import Reason

_TOLD: Final = re.compile(r"(?:^|; )image (?P<image>\S+) is missing: (?P<said>[^;]+)")


class ImageMissing(msgspec.Struct, frozen=True):
    """Wait until the image of the driver is in its registry."""

    reason: ClassVar = Reason.IMAGE_MISSING
    image: str
    said: str
    """What the registry answered."""


class DriverImages(msgspec.Struct, frozen=True):
    """Hold what is known of the images that driver DaemonSets have. Losing it costs a question for each."""

    missing: Mapping[str, str] = {}
    """What the registry answered, by image."""
    passed: frozenset[str] = frozenset()
    """Images that are there, or of which it is not known, or not in time."""

    unknown: Mapping[str, str] = {}
    """Why it is not known whether an image is there, by image."""

    def awaits(self, image: str) -> bool:
        """Tell whether an answer is on its way, for a few seconds at most."""
        return image not in self.missing and image not in self.passed


def told_of_missing(what: ImageMissing) -> str:
    """Say that an image is missing, as a condition does."""
    return f"image {what.image} is missing: {what.said.replace(';', ',')}"


def missing_in(message: str) -> Iterator[tuple[str, str]]:
    """Yield the images of which a condition says so, each with what its registry answered."""
    for found in _TOLD.finditer(message):
        yield found["image"], found["said"]
