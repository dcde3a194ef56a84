"""What the fleet holds a node for that nothing about itself holds, kept for as long as neither of them changes.

In a large fleet nearly all nodes wait for the same few that are under way, pass after pass.
"""

from __future__ import annotations

import msgspec

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Undecided
from gpuward.upgrade.destinations import Fleets
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import FLEET_GATES, PERMITTING_GATES
from gpuward.upgrade.refused import is_past, refused, rests

_Held = tuple[Fleet, dict[str, tuple[NodeFacts, Hold]]]
"""What nodes were held for under a fleet."""


class Holding:
    """Remember what nodes were held for at the end of the last pass, under the fleet as it was after the last admission.

    It changes nothing but the time that it takes to say so again: gates look at the node, the fleet and the policy, and at the
    clock only where they say until when they hold.
    """

    def __init__(self) -> None:
        self._policy: UpgradePolicy | None = None
        self._before: _Held = Fleet(), {}
        self._now: _Held = Fleet(), {}
        self._fleet: Fleet | None = None

    def begin(self, policy: UpgradePolicy) -> None:
        """Begin a pass."""
        self._before, self._fleet = self._now, None
        if policy != self._policy:
            self._policy, self._before = policy, (Fleet(), {})

    def held(self, node: NodeFacts, fleets: Fleets, policy: UpgradePolicy, *, granted: bool) -> Hold | None:
        """Return what holds a node now, as before where that is known."""
        fleet = fleets.of(policy)
        if granted or node.refused is not None or node.moving is not None:
            return held_by_the_fleet(node, fleets, policy, granted=granted)
        if fleet is not self._fleet:
            self._turn_to(fleet)
        held = self._now[1]
        known = held.get(node.node.name)
        if known is not None and known[0] is node and (known[1].until is None or fleet.now < known[1].until):
            return known[1]
        hold = held_by_the_fleet(node, fleets, policy, granted=granted)
        if hold is not None and (node.record.waiting or hold.reason is not Reason.IDLE_AWAITED):  # one that begins now is new
            held[node.node.name] = node, hold
        return hold

    def _turn_to(self, fleet: Fleet) -> None:
        """Go on with the fleet as it is now."""
        self._fleet, counted = fleet, msgspec.structs.replace(fleet, now=0.0)
        self._now = self._before if self._before[0] == counted else (counted, {})


def held_by_the_fleet(node: NodeFacts, fleets: Fleets, policy: UpgradePolicy, *, granted: bool) -> Hold | None:
    """Return what holds a node that nothing about itself holds. A granted one has its place already, but may have to wait again:
    its patch can come late, when it should have another driver, and others wait for an approval.
    """
    fleet = fleets.of(policy)
    if node.refused is not None and rests(node.refused, fleet.now):
        return refused(node, node.refused, fleet.now)
    try:
        gates = PERMITTING_GATES if granted else FLEET_GATES
        hold = next((held for gate in gates if (held := gate(node, fleet, policy)) is not None), None)
        hold = hold if hold is not None else fleets.held_there(node, policy, granted=granted)
    except Exception as error:  # it is this node's trouble alone
        return undecided_for(node, error)
    # Whether the API server refuses still nobody knows where others kept the write from being repeated for long.
    if hold is None or node.refused is None or is_past(node.refused, fleet.now):
        return hold
    return refused(node, node.refused, fleet.now)


def undecided_for(node: NodeFacts, error: Exception) -> Hold:
    """Return what holds a node about which nothing can be decided."""
    return Hold(Undecided(f"{type(error).__name__}: {error}"), node.record.since)
