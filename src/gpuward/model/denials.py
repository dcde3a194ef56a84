"""What nodes wait for where the API server does not let something be done."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.views import Ref


class WriteRefused(msgspec.Struct, frozen=True):
    """Wait until the node may be changed."""

    reason: ClassVar = Reason.WRITE_REFUSED
    message: str
    attempts: int


class ReplacementRefused(msgspec.Struct, frozen=True):
    """Wait until the node's driver pod may be replaced."""

    reason: ClassVar = Reason.REPLACEMENT_REFUSED
    pod: Ref
    message: str
    attempts: int | None
    """None where only the operator knows."""


class RefusedElsewhere(msgspec.Struct, frozen=True):
    """Wait until the driver pod of another node may be replaced."""

    reason: ClassVar = Reason.REFUSED_ELSEWHERE
    pod: Ref
    node: str
    message: str


class EvictionForbidden(msgspec.Struct, frozen=True):
    """Wait until the operator has the right to evict pods of a namespace, which it was found to lack on another node."""

    reason: ClassVar = Reason.EVICTION_FORBIDDEN
    namespace: str
    node: str
    message: str


class LedgerRefused(msgspec.Struct, frozen=True):
    """Wait until the node may be entered into the ledger of admissions."""

    reason: ClassVar = Reason.LEDGER_REFUSED
    message: str
    attempts: int


Denied = WriteRefused | ReplacementRefused | RefusedElsewhere | EvictionForbidden | LedgerRefused
