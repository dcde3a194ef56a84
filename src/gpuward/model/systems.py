"""Operating systems and kernels, as discovery's labels say them and as driver images and objects' names spell them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuward import names

MAJOR_ONLY = ("ol", "rhel", "rocky")
"""Systems whose driver images are built for a major version."""
LONGEST_LABEL = 63
_SYSTEM, _VERSION = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*"), re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")
"""What an operating system's ID and VERSION_ID may be (os-release(5)); both become parts of names."""
_IN_IMAGE = re.compile(r"-((?:(?:opensuse|sle?)-)?[a-z]+[0-9][0-9.]*)$")
"""An operating system at the end of a driver image's tag."""
_KERNEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?([._][a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.IGNORECASE)
"""What a kernel's version may be that becomes a part of names."""
_NEITHER = re.compile(r"[^a-z0-9]")


def system_of(labels: Mapping[str, str]) -> str:
    """Return ID and full VERSION_ID of a node's operating system, such as rhel9.4; empty when discovery says none that can be."""
    system, version = labels.get(names.NFD_OS_ID, ""), labels.get(names.NFD_OS_VERSION, "")
    can_be = _SYSTEM.fullmatch(system) and _VERSION.fullmatch(version) and len(system + version) <= LONGEST_LABEL
    return system + version if can_be else ""


def kernel_of(labels: Mapping[str, str]) -> str:
    """Return the version of a node's kernel; empty when discovery says none that can be."""
    found = labels.get(names.NFD_KERNEL, "")
    return found if _KERNEL.fullmatch(found) else ""


def is_kernel(label: str, kernel: str) -> bool:
    """Tell whether a label says a kernel; labels may not have all characters that a kernel's version may, and are shorter."""
    one, other = (_NEITHER.sub("", text.lower()) for text in (label, kernel))
    return one == other or (len(label) >= LONGEST_LABEL - 1 and other.startswith(one))


def tag_of(system: str) -> str:
    """Return an operating system as driver images spell it, such as ubuntu22.04 or rhel9."""
    name = name_of(system)
    return name + system[len(name):].split(".")[0] if name in MAJOR_ONLY else system


def tag_in(image: str) -> str:
    """Return the operating system for which a driver image was built, as its tag spells it; empty where that cannot be told."""
    found = _IN_IMAGE.search(image)
    return found[1] if found else ""


def name_of(system: str) -> str:
    """Return the name of an operating system without its version."""
    return system.rstrip("0123456789.")
