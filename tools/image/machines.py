"""The kinds of machine that images are made for, by the names that Debian, Python's wheels and Linux give them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Final

from tools.image.errors import BuildError

GLIBC: Final = "2_40"
"""Wheels may need up to this one; the suite has 2.41, for which uv knows no name yet."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Hold the names of one."""

    debian: str
    """Also the name in an OCI image."""
    linux: str

    @property
    def wheels(self) -> str:
        """Return the platform whose wheels run there."""
        return f"{self.linux}-manylinux_{GLIBC}"

    @property
    def libraries(self) -> str:
        """Return the folder of its libraries."""
        return f"usr/lib/{self.linux}-linux-gnu"

    @property
    def loader(self) -> str:
        """Return the loader of its programs."""
        return f"{self.libraries}/ld-linux-{self.linux.replace('_', '-')}.so.{'2' if self.debian == 'amd64' else '1'}"


MACHINES: Final = {each.debian: each for each in (Machine("amd64", "x86_64"), Machine("arm64", "aarch64"))}


def this_machine() -> Machine:
    """Return the machine that builds: its Python makes the byte code and packs the layers, also for others."""
    for each in MACHINES.values():
        if platform.machine() == each.linux:
            return each
    raise BuildError(f"images are built on {' or '.join(MACHINES)}, not on {platform.machine()}")
