"""What can be made to go wrong in a GPU stack, on purpose."""

from __future__ import annotations

from enum import StrEnum

from kubesandbox.sim import faults


class FaultKind(StrEnum):
    """Name the faults of pods on machines with GPUs, those that any pod can have among them."""

    DRIVER_CRASH = "driver-crash"
    """The driver container exits with an error while it installs."""
    DRIVER_NEVER_READY = "driver-never-ready"
    """The driver container runs, and its startup probe never succeeds."""
    VALIDATOR_NEVER_READY = "validator-never-ready"
    """The validator's steps never come to an end."""
    TOOLKIT_CRASH = "toolkit-crash"
    """The toolkit's container exits with an error, running or not."""
    DEVICE_PLUGIN_CRASH = "device-plugin-crash"
    """The same of the device plugin's."""
    IMAGE_PULL = faults.FaultKind.IMAGE_PULL.value
    STUCK_TERMINATING = faults.FaultKind.STUCK_TERMINATING.value
