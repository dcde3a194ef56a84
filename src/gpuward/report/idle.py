"""What a node waits for where no operator runs: whatever else that is does not take it on then."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.report.nodes import MOVING, NodeReport

FOR_OPERATOR: Final = "waits for an operator"


def waiting_for_operator(report: NodeReport) -> NodeReport:
    """Return the report of a node that would go on by itself as that of one that waits for an operator first."""
    if report.group not in MOVING:
        return report
    return msgspec.structs.replace(report, message="; once one runs: ".join(filter(None, (FOR_OPERATOR, report.message))))
