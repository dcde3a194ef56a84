"""What leads to what seeds seldom meet: each lead has a run, of its own faults alone, drawn as it says."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import islice

import pytest
from tools.simulate import coverage
from tools.simulate.faults.kinds import KINDS, LED
from tools.simulate.leads import LEADS, Lead, runs_for, runs_of
from tools.simulate.scenario import Ranges, Variation, added_fault, draw
from tools.simulate.world import play

RANGES = Ranges((3, 5), (3, 5))


@pytest.mark.parametrize("lead", LEADS, ids=lambda lead: " ".join((lead.names[0], lead.steps[0].kind)))
def test_a_lead_has_runs_for_what_can_be_met(lead: Lead) -> None:
    can = {cell.name for cell in coverage.wanted_cells()}
    assert all(any(fnmatchcase(name, pattern) for name in can) for pattern in lead.names)
    run = next(runs_of(lead, "two-nvidiadrivers", RANGES))
    kinds = [step.kind for step in lead.steps]
    faults = {fault.kind: fault for fault in run.scenario(RANGES).faults if kinds.count(fault.kind) == 1}
    for step in lead.steps:
        if (fault := faults.get(step.kind)) is not None:
            assert step.level[0] <= fault.level <= step.level[1]
            assert step.lasts[0] <= fault.seconds <= step.lasts[1]


def test_a_lead_to_a_reason_is_a_run_of_its_faults_and_no_other() -> None:
    run = next(runs_for("reason DriverUnplaced", "precompiled", RANGES))
    scenario = run.scenario(RANGES)
    assert (scenario.mode, run.bare) == ("precompiled", True)
    assert [fault.kind for fault in scenario.faults] == ["change-limits", "change-limits", "change-labels", "too-large-driver"]
    assert 60.0 <= scenario.faults[-1].seconds <= 300.0


def test_several_runs_lead_to_one_thing() -> None:
    assert len(set(islice(runs_for("reason Quarantined", "clusterpolicy", RANGES), 3))) == 3


def test_a_bare_run_has_only_the_faults_that_are_added() -> None:
    run = Variation(7, "precompiled", ("pause@120.00",), bare=True)
    assert str(run) == "--seed 7 --as precompiled --bare --add pause@120.00"
    assert run.scenario(RANGES).faults == (added_fault(7, "pause@120.00"),)
    assert run.scenario(RANGES).workloads == draw(7, RANGES).workloads


def test_a_lead_about_nvidiadrivers_leaves_drivers_to_them_where_they_are_the_cluster_policys_first() -> None:
    switched, theirs = (next(runs_for("reason NotSelected", mode, RANGES)).scenario(RANGES) for mode in (
        "switched-owner", "nvidiadriver"))
    assert switched.faults[0].kind == "switch-owner"
    assert switched.faults[0].level >= 0.5
    assert "switch-owner" not in [fault.kind for fault in theirs.faults]


@pytest.mark.parametrize("reason", ["WaveLimit", "WaveFailed", "GangSpared", "GangAwaited", "DoesNotStop", "RefusedElsewhere"])
def test_runs_that_are_made_for_a_reason_meet_it_where_few_nodes_are_of_one_driver(reason: str) -> None:
    name = f"reason {reason}"
    runs = islice(runs_for(name, "two-nvidiadrivers", RANGES), 4)
    assert any(name in play(run.scenario(RANGES)).first for run in runs)


def test_seeds_draw_no_fault_that_is_made_for_leads() -> None:
    led = {kind.name for kind in KINDS.values() if kind.stream == LED}
    assert led
    assert led.isdisjoint(fault.kind for seed in range(200) for fault in draw(seed, RANGES).faults)
