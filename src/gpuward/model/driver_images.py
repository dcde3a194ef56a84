"""What registries say of the images of drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason


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
