"""What a node waits for whose cordon somebody lifts in mid-upgrade."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.views import Ref


class Uncordoned(msgspec.Struct, frozen=True):
    """Wait for whoever makes the node schedulable again and again: pods come because of that."""

    reason: ClassVar = Reason.UNCORDONED
    pod: Ref
    """One of those."""
    times: int
