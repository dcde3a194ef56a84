"""What has driver upgrades switched off."""

from __future__ import annotations

import msgspec


class Switches(msgspec.Struct, frozen=True):
    """Name the objects that keep upgrades off; none where they are on, or nobody knows."""

    off: str = ""
    """The one in which `autoUpgrade` is false, such as `NVIDIADriver a`."""
    paused_at: str = ""
    """Since when, if `gpuward pause` did that."""
    machines: str = ""
    """The name of the ClusterPolicy that lets nodes be for virtual machines: no driver is upgraded by that."""

    def __str__(self) -> str:
        """Return the words for it."""
        since = f", by `gpuward pause` since {self.paused_at}" if self.paused_at else ""
        off = f"autoUpgrade is false in {self.off}{since}" if self.off else ""
        machines = f"sandboxWorkloads.enabled is true in ClusterPolicy {self.machines}" if self.machines else ""
        return "; and ".join(filter(None, (off, machines)))
