"""What a node waits for whose cordon somebody lifts in mid-upgrade."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView, Ref

UNCORDONED: Final = "the cordon of the driver upgrade that is under way here has been lifted"
_CORDONED: Final = IN_PROGRESS - {State.CORDON_REQUIRED, State.UNCORDON_REQUIRED}


def lacks_cordon(node: NodeView) -> bool:
    """Tell whether somebody has lifted the upgrade's cordon before its time."""
    record = node.record
    ours = record is not None and (record.cordon is CordonOwner.GPUWARD or record.lifted > 0)
    return ours and node.state in _CORDONED and not node.unschedulable


class Uncordoned(msgspec.Struct, frozen=True):
    """Wait for whoever makes the node schedulable again and again: pods come because of that."""

    reason: ClassVar = Reason.UNCORDONED
    pod: Ref
    """One of those."""
    times: int
