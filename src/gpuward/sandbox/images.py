"""Which container images exist, as far as the sandbox's kubelets can tell."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from gpuward.model.systems import tag_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OWN_IMAGES: Final = ("gpuward", "registry.example/*")
"""Those of the operator and of the workloads that the sandbox makes itself."""
_DRIVER: Final = re.compile(r"\d+\.\d+(\.\d+)?-[a-z]+[\d.]*")
_PRECOMPILED: Final = re.compile(r"\d+(\.\d+){0,2}-\d[\w.]*-.+-[a-z]+[\d.]*")
"""A driver's branch or version, the kernel's version with its flavour, the operating system."""
_KERNEL: Final = re.compile(r"\d+\.\d+\.\d+[\w.]*-.+")
"""A kernel's version: what somebody's own tag has in its place, such as 2026.01-build7, says nothing of one."""


def any_image(image: str) -> bool:
    """Say that every image exists."""
    del image
    return True


def nvidias(image: str) -> bool:
    """Tell whether an image exists: a driver's if its tag has the form of NVIDIA's, and every other one."""
    name, _, tag = image.rsplit("/", 1)[-1].partition(":")
    if name != "driver" or "@" in image:
        return True
    return bool(_DRIVER.fullmatch(tag) or _PRECOMPILED.fullmatch(tag))


def built_for_kernel(image: str) -> str:
    """Return the kernel that a precompiled driver was built for, and nothing of one that is compiled on the node."""
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    kernel = tag.partition("-")[2].removesuffix(f"-{tag_in(tag)}")
    return kernel if _KERNEL.fullmatch(kernel) else ""


def listed(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return what tells that an image exists if one of the shell patterns is it, or if it is the sandbox's own."""
    known = (*OWN_IMAGES, *patterns)
    return lambda image: any(fnmatchcase(image, pattern) for pattern in known)
