"""The versions of drivers, as the tags of their images name them."""

from __future__ import annotations

import re
from typing import Final

_SYSTEM: Final = re.compile(r"-[a-z]+[\d.]*$")
"""How the tag of a driver's image ends: `-ubuntu22.04`, `-rhel9`."""


def version_of(image: str, kernel: str = "") -> str:
    """Return the driver version that an image's tag names, or the beginning of its digest; without the kernel for which the
    driver is precompiled, if that is said.
    """
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    version = _SYSTEM.sub("", tag) if colon else digest[:19]
    return version.removesuffix(f"-{kernel}") if kernel else version
