"""Which nodes do not go on by themselves: what `--held` shows."""

from __future__ import annotations

from gpuward.model.reasons import Reason
from gpuward.report.groups import Group
from gpuward.report.nodes import NodeReport


def is_held(report: NodeReport) -> bool:
    """Tell whether somebody has to do something before a node goes on; one that waits gets on by itself."""
    reason = Reason(report.reason) if report.reason else None
    if report.group in (Group.FAILED, Group.UNDER_WAY):
        return report.troubled or (reason is not None and reason.needs_person)
    starts = report.group is Group.NOT_READY and reason is not None and reason.ends_by_itself
    return not starts and report.group not in (Group.WAITING, Group.SKIPPED, Group.UP_TO_DATE)
