"""How long the programs of a GPU stack take."""

from __future__ import annotations

from dataclasses import dataclass

from kubesandbox.sim.world import Delays


@dataclass(slots=True)
class GpuDelays(Delays):
    """Say how long things take in a sandbox with GPUs, in seconds of its own time."""

    driver_seconds: float = 12.0
    """What the driver container takes to build and load the kernel modules."""
    driver_reuse_seconds: float = 2.0
    """What it takes when the loaded modules already are the wanted ones."""
    manager_seconds: float = 1.0
    """What k8s-driver-manager takes to look, and again to unload the modules."""
    toolkit_seconds: float = 2.0
    discovery_seconds: float = 1.0
    validator_seconds: float = 2.0
    """What each step of the validator takes once what it waits for is there."""
