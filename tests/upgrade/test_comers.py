"""Nodes that go to an NVIDIADriver from elsewhere, as where they go holds them."""

from __future__ import annotations

import pytest

from gpuward.model.placement import Placement
from gpuward.model.policy import MaxUnavailable, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Record
from gpuward.model.states import State
from gpuward.model.waves import Wave, WaveNotDone
from gpuward.upgrade.destinations import Fleets
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.targets import Target
from gpuward.upgrade.waves import WaveGate, Waves
from tests import build

CANARY = Wave("canary")
WAITS = Waves({"n1": 1}, (WaveGate(CANARY, waits=WaveNotDone("canary", 0, 1, ("n0",), 1)),))
FROM, TO = UpgradePolicy(driver="default"), UpgradePolicy(driver="a", max_unavailable=MaxUnavailable(count=0))


@pytest.mark.parametrize(("waves", "granted", "held"), [
    (WAITS, False, Reason.WAVE_NOT_DONE), (WAITS, True, Reason.WAVE_NOT_DONE), (Waves(), False, Reason.NO_NODE_MAY_START),
    (Waves(), True, None)])
def test_a_granted_node_has_its_place_where_it_goes_and_waits_for_the_waves_there(
        waves: Waves, granted: bool, held: Reason | None) -> None:
    node = NodeFacts(build.node("n1"), State.UPGRADE_REQUIRED, Record(), moving=Placement("a"), target="a//",
                     next_target=Target("hash"))
    fleets = Fleets([(FROM, Fleet(total=2)), (TO, Fleet(total=2, waves_of_comers=waves))])
    hold = fleets.held_there(node, FROM, granted=granted)
    assert (hold and hold.reason) == held
