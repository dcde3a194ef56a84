"""The agents by the names that NVIDIA's images have for them. Each is imported when it is called: one that waits is small."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from gpuward.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

AGENTS: Final = ("driver-manager", "nvidia-validator")


def main() -> None:
    """Run the agent by whose name the program was called."""
    from gpuward.agents.signals import hold_signals

    hold_signals()  # to import the agent takes some tenths of a second
    sys.exit(agent(sys.argv[0].rpartition("/")[2], sys.argv[1:]))


def agent(name: str, arguments: Sequence[str]) -> int:
    """Run an agent; return its exit code. Raises errors.InputError for a name that none has."""
    if name == "driver-manager":
        from gpuward.agents.drivermanager.command import driver_manager

        return driver_manager(arguments)
    if name == "nvidia-validator":
        from gpuward.agents.validator.command import nvidia_validator

        return nvidia_validator(arguments)
    raise InputError("NAME", name, f"there are {', '.join(AGENTS)}")
