"""Nodes that wait for a maintenance operator as their windows shut: they go back into service, and to those that wait.

A window bars starts, and who is under way when it shuts finishes. But of a node that waits for leave nothing has gone yet, and
leave may come at any hour: its pods would be evicted then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import EventText
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.states import UNDISTURBED
from gpuward.model.windows import WindowShut
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import keeps_to_windows
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.progress import NodeProgress, apply_move, begin
from gpuward.upgrade.uncordon import back_in_the_queue

PUT_BACK: Final = "Its windows shut before its NodeMaintenance was Ready: it serves on, and asks again in the next one"


def awaits_leave(judged: NodeDecision, fleet: Fleet) -> bool:
    """Tell whether a node waits for leave, has lost nothing yet, and may start in its windows alone."""
    node, hold = judged.before, judged.path.hold
    if hold is None or hold.reason is not Reason.MAINTENANCE_AWAITED:
        return False
    return node.state in UNDISTURBED and node.untouched and node.refused is None and keeps_to_windows(node, fleet)


def put_back(
    nodes: Sequence[NodeDecision], fleet: Fleet, unsettled: Set[str], now: float
) -> dict[str, Callable[[], NodeProgress]]:
    """Return the nodes that go back as no window is open for them any more."""
    return {
        judged.before.node.name: partial(_put_back, judged, fleet, now) for judged in nodes
        if awaits_leave(judged, fleet) and judged.before.node.name not in unsettled
        and not fleet.windows_of(judged.before.node.name)[0].opened
    }


def ends_of_windows(nodes: Sequence[NodeDecision], fleet: Fleet) -> Iterator[float]:
    """Yield when the windows shut of nodes that wait for leave."""
    for judged in nodes:
        if awaits_leave(judged, fleet):
            state = fleet.windows_of(judged.before.node.name)[0]
            if state.opened and state.changes is not None:
                yield state.changes


def _put_back(judged: NodeDecision, fleet: Fleet, now: float) -> NodeProgress:
    state, wave = fleet.windows_of(judged.before.node.name)
    path = apply_move(begin(judged.before, now), back_in_the_queue(judged.before), now)
    course = judged.before.record.course
    if course is None or not course.evicted:
        # Nothing came of it: remembered once for each window, it would leave no room for upgrades on the node.
        kept = {key: value for key, value in path.annotations.items() if key != names.UPGRADE_HISTORY}
        path = msgspec.structs.replace(path, annotations=kept)
    shut = Hold(WindowShut(state.changes, state.zone, state.shuts, state.takes, wave), now, state.changes)
    return msgspec.structs.replace(path, hold=shut, events=(*path.events, EventText(PUT_BACK)))
