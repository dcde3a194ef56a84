"""Drivers that are to go, where none comes after them: what their nodes are sent to, and what these can wait for."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.views import Ref

NO_DRIVER: Final = "none"
"""The target of a node whose driver is to go, in the place of a revision's hash."""


class DriverKept(msgspec.Struct, frozen=True):
    """Wait until nothing uses the driver, as nobody is evicted for its removal."""

    reason: ClassVar = Reason.DRIVER_KEPT
    pod: Ref
    pods: int


class DeletionUnseen(msgspec.Struct, frozen=True):
    """Wait until it can be seen how the NVIDIADriver went: with its drivers, or without them."""

    reason: ClassVar = Reason.DELETION_UNSEEN
    driver: str
    why: str
    """What that waits for."""
