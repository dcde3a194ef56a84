"""What a node waits for that no driver DaemonSet is for, though it should have a driver."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuward.model.owners import OwnerConflict
from gpuward.model.reasons import Reason
from gpuward.model.views import Ref


class _Unserved(msgspec.Struct, frozen=True):
    """Wait for an NVIDIADriver that has a DaemonSet for the node."""

    pod: Ref | None = None
    """The driver pod that runs on and belongs to nobody."""


class NotSelected(_Unserved, frozen=True):
    """Wait for an NVIDIADriver that selects the node."""

    reason: ClassVar = Reason.NOT_SELECTED
    refused: tuple[str, ...] = ()
    """NVIDIADrivers that cannot be followed: which nodes they select is not known."""


class DriverRefused(_Unserved, frozen=True):
    """Wait until the NVIDIADriver of the node can be followed."""

    reason: ClassVar = Reason.DRIVER_REFUSED
    driver: str = ""
    """Empty where it is open whose the node is."""
    conflict: OwnerConflict | None = None


class WrongDriverType(_Unserved, frozen=True):
    """Wait for an NVIDIADriver whose type of driver is for nodes with containers."""

    reason: ClassVar = Reason.WRONG_DRIVER_TYPE
    driver: str = ""
    driver_type: str = ""
    kept: str = ""
    """The NVIDIADriver that the node has its driver of, and whose it is no more; or an earlier one of the name."""


class DriverLabelUnknown(_Unserved, frozen=True):
    """Wait for a value of the node's label that says whether it is to have a driver."""

    reason: ClassVar = Reason.DRIVER_LABEL_UNKNOWN
    value: str = ""


class KernelUnknown(_Unserved, frozen=True):
    """Wait for a label that says the kernel of the node, by which its precompiled driver is chosen."""

    reason: ClassVar = Reason.KERNEL_UNKNOWN
    label: str = ""
    """What discovery says: empty where it says nothing."""
    kernel: str = ""
    """What the kubelet says."""
    kept: bool = False
    """Whether the node keeps the driver of a DaemonSet that is not to serve it any more."""


Unserved = NotSelected | DriverRefused | WrongDriverType | DriverLabelUnknown | KernelUnknown
