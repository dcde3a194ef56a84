"""The versions of drivers, as the tags of their images name them."""

from __future__ import annotations

import re
from typing import Final

_SYSTEM: Final = re.compile(r"-((opensuse|sle?)-)?[a-z]+[\d.]*$")
"""How the tag of a driver's image ends: `-ubuntu22.04`, `-rhel9`, `-sl-micro6.1`."""


def version_of(image: str, kernel: str = "", system: str = "") -> str:
    """Return the driver version that an image's tag names, or the beginning of its digest: without the operating system at its
    end, as it looks or is said, and without the kernel, if that is said.
    """
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    bare = tag.removesuffix(f"-{system}") if system else tag
    version = (bare if bare != tag else _SYSTEM.sub("", tag)) if colon else digest[:19]
    return version.removesuffix(f"-{kernel}") if kernel else version
