"""The simulation itself: a seed is a run, event for event, and a failing run gets small."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import msgspec
import pytest
from click.testing import CliRunner
from tools.simulate import coverage
from tools.simulate.__main__ import main
from tools.simulate.faults import KINDS
from tools.simulate.filling import TRIES, Filling
from tools.simulate.known import leaves_drivers, turns_drivers_off
from tools.simulate.loops import are_a_loop
from tools.simulate.modes import MODES
from tools.simulate.policies import policy_in_force
from tools.simulate.scenario import DUE, Fault, Ranges, Scenario, Variation, draw
from tools.simulate.shrink import shrink
from tools.simulate.watch import Violation
from tools.simulate.world import RunResult, play

from gpuward.kube.lease.ledger import LeaseLedger
from gpuward.upgrade.fleet_gates import GATES

SMALL = Ranges((3, 4), (5, 6))


def digest_in_a_process(seed: int, hash_seed: str) -> str:
    code = f"from tests.tools.test_simulate import *; print(play(draw({seed}, SMALL)).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True)
    return ended.stdout.strip()


def test_the_same_seed_is_the_same_run_whatever_the_process() -> None:
    here = play(draw(4, SMALL)).digest
    assert digest_in_a_process(4, "1") == digest_in_a_process(4, "2") == here
    assert play(draw(4, SMALL)).digest == here
    assert play(draw(6, SMALL)).digest != here


def test_some_runs_keep_every_rule() -> None:
    assert [play(draw(seed, SMALL)).violation for seed in (1, 4, 9)] == [None, None, None]


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_in_every_mode_keeps_every_rule(mode: str) -> None:
    new_driver = (Fault(100.0, "change-driver", 0.0, 0.0, 0.5),)
    found = play(msgspec.structs.replace(draw(0), mode=mode, nodes=4, seconds=200.0, rollout=None, workloads=("inference",),
                                         faults=new_driver, stays_broken=False, heals_policy=True))
    assert found.violation is None
    assert found.met["transition validation-required -> uncordon-required"] >= 1


def test_seeds_are_spread_over_the_modes() -> None:
    assert {draw(seed).mode for seed in range(len(MODES))} == set(MODES)
    assert {draw(seed, Ranges(modes=("precompiled",))).mode for seed in range(5)} == {"precompiled"}


def test_every_kind_of_fault_comes_in_every_mode_where_it_can() -> None:
    seeds = range(len(MODES) * (1 + len(KINDS) // DUE))
    drawn = {(scenario.mode, fault.kind) for scenario in map(draw, seeds) for fault in scenario.faults}
    assert {f"{mode} | fault {kind}" for mode, kind in drawn} == set(coverage.wanted_faults())


def cells_of(name: str, mode: str = "clusterpolicy") -> list[coverage.Cell]:
    return [cell for cell in coverage.wanted_cells() if (cell.mode, cell.name) == (mode, name)]


def test_runs_are_made_for_what_no_seed_has_met() -> None:
    """The run of a seed that met a transition, with faults just before that: it is met after them, too."""
    ranges = Ranges((3, 3), (3, 3), ("clusterpolicy",))
    filling, seed = Filling(ranges), Variation(4)
    filling.take(seed, play(seed.scenario(ranges)))
    left = {str(cell) for cell in filling.left}
    tried = next(run for run in filling.next_runs() if run.added)
    scenario = tried.scenario(ranges)
    assert len(scenario.faults) == len(seed.scenario(ranges).faults) + len(tried.added)
    assert str(tried) == f"--seed 4{''.join(f' --add {each}' for each in tried.added)}"
    filling.take(tried, play(scenario))
    assert {str(cell) for cell in filling.left} < left


def test_no_fault_is_added_where_none_is_played_any_more() -> None:
    ranges = Ranges((3, 3), (3, 3), ("clusterpolicy",))
    filling = Filling(ranges, cells_of("transition cordon-required -> unknown"))
    filling.take(Variation(4), RunResult(4, "", 0.0, 0, None, {}, {"transition cordon-required -> unknown": 181.0}))
    assert all(run.bare for run in filling.next_runs())


def test_a_cell_that_cannot_be_met_is_tried_only_so_often() -> None:
    ranges = Ranges((3, 3), (3, 3), ("clusterpolicy",))
    filling = Filling(ranges, cells_of("transition cordon-required -> unknown"))
    filling.take(Variation(4), RunResult(4, "", 0.0, 0, None, {}, {"transition cordon-required -> unknown": 120.0}))
    runs = 0
    while more := list(filling.next_runs()):
        runs += sum(not run.bare for run in more)
    assert runs == TRIES


@pytest.mark.parametrize(("words", "told"), [
    (("--seed", "4", "--add", "api-slo@120"), "'api-slo' is no kind of fault; did you mean api-slow?"),
    (("--seed", "4", "--add", "api-slow"), "write api-slow@ and virtual seconds from the start, such as api-slow@120"),
    (("--add", "api-slow@120"), "--as, --add and --bare change the run of one seed: give it by --seed"),
])
def test_what_cannot_be_added_to_a_run_is_named(words: tuple[str, ...], told: str) -> None:
    ended = CliRunner().invoke(main, words)
    assert (ended.exit_code, told in " ".join(ended.output.split())) == (2, True), ended.output


def relieved_between_grant_and_start() -> Scenario:
    """Another operator comes to lead when a waiting node is granted and not started yet, and this node is to be left alone."""
    faults = (Fault(100.0, "change-driver", 0.0, 0.5, 0.5), Fault(103.0, "relieved-at-grant", 200.0, 1.0, 0.1))
    one_by_one = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "100%"}
    return msgspec.structs.replace(draw(1), nodes=4, seconds=300.0, latency=0.004, upgrade=one_by_one, rollout=None,
                                   workloads=("inference",), faults=faults)


def test_a_leader_that_knows_nothing_of_what_was_granted_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(relieved_between_grant_and_start()).violation is None
    read = LeaseLedger._read

    async def forgetful(ledger: LeaseLedger) -> None:
        await read(ledger)
        if ledger.known:
            ledger._cluster.granted({})

    monkeypatch.setattr(LeaseLedger, "_read", forgetful)
    found = play(relieved_between_grant_and_start()).violation
    assert found is not None
    assert found.rule == "who starts is in the ledger"


def small(mode: str, nodes: int, *faults: Fault, workload: str = "inference", **upgrade: object) -> Scenario:
    """Return a run in which nothing happens but these faults."""
    return msgspec.structs.replace(
        draw(0), mode=mode, nodes=nodes, seconds=400.0, latency=0.02, rollout=None, upgrade={"autoUpgrade": True, **upgrade},
        workloads=(workload,), faults=faults, stays_broken=False, heals_policy=True)


def test_a_node_that_people_take_from_its_nvidiadriver_as_it_starts_goes_back_to_it() -> None:
    found = play(small("nvidiadriver", 3, Fault(100.0, "change-driver", 0.0, 0.5, 0.5),
                       Fault(131.19, "claim-driver", 20.0, 0.5, 0.5)))
    told = [each.text for each in found.story if each.about == "gpu-2" and "MODIFIED node" in each.text]
    taken = next(number for number, text in enumerate(told) if text.startswith("-: MODIFIED node owner= "))
    assert "owner=default" in told[taken + 1]
    assert found.violation is None


def test_a_validator_pod_that_people_delete_as_its_node_is_called_done_was_there_for_all_that_could_be_known() -> None:
    found = play(small("clusterpolicy", 1, Fault(100.0, "validator-overdue", 200.0, 0.0, 0.0),
                       Fault(305.6, "delete-validator-pod", 0.0, 0.1, 0.5)))
    told = [each.text for each in found.story if each.about == "gpu-1" and each.at >= 305.6]
    assert ("operator-validator" in told[0], "state=upgrade-done, cordoned=False" in told[1]) == (True, True)
    assert found.violation is None


def test_a_node_that_failed_before_its_driver_was_touched_may_be_done_when_people_take_the_new_one_back() -> None:
    found = play(small("clusterpolicy", 2, Fault(100.0, "change-driver", 0.0, 0.5, 0.5),
                       Fault(198.0, "delete-validator-pod", 0.0, 0.1, 0.5), Fault(200.0, "roll-back", 0.0, 0.1, 0.5),
                       workload="tolerant", podDeletion={"timeoutSeconds": 30}))
    assert found.met["transition upgrade-failed -> upgrade-required"] >= 1
    assert found.violation is None


def test_a_label_that_nobody_knows_stays_on_a_node_that_no_driver_is_for_while_others_have_one() -> None:
    found = play(small("two-nvidiadrivers", 3, Fault(100.0, "relabel-garbage", 400.0, 0.0, 0.0),
                       Fault(110.0, "delete-nvidiadriver", 0.0, 0.0, 0.0)))
    written = [each.text for each in found.story if each.about == "gpu-1" and 100.0 < each.at < 399.0]
    assert not any(text.startswith("operator-1: MODIFIED node state=") for text in written)
    assert found.violation is None


def test_a_failed_node_whose_label_a_pause_took_goes_on_to_validation_as_one_that_has_its_label() -> None:
    found = play(small("clusterpolicy", 1, Fault(100.0, "driver-overdue", 100.0, 0.0, 0.0),
                       Fault(185.0, "pause", 20.0, 0.0, 0.0)))
    assert any("state=validation-required, " in each.text for each in found.story if 205.0 < each.at < 205.1)
    assert found.violation is None


def broken(scenario: Scenario, needed: Iterable[str]) -> RunResult:
    """Play nothing: break a rule if all the needed faults are there, at the time of the last of them."""
    at = {fault.kind: fault.at for fault in scenario.faults}
    violation = Violation("a rule", max(at[kind] for kind in needed), "gpu-1", "") if set(needed) <= set(at) else None
    return RunResult(scenario.seed, "", 0.0, 0, violation, {})


def test_a_failing_run_is_shrunk_to_the_faults_that_it_takes() -> None:
    needed = ("pause", "cordon")
    faults = tuple(Fault(100.0 + number, kind, 0.0, 0.5, 0.5) for number, kind in enumerate(sorted(KINDS)))
    scenario = msgspec.structs.replace(draw(1), nodes=20, faults=faults)
    found = shrink(scenario, broken(scenario, needed), run=lambda candidate: broken(candidate, needed))
    assert sorted(fault.kind for fault in found.scenario.faults) == sorted(needed)
    assert found.scenario.nodes == 1


def test_every_gate_is_known_by_the_reasons_that_it_gives() -> None:
    assert set(coverage.GATE_OF.values()) == {gate.__name__ for gate in GATES}


def test_what_was_never_met_is_named() -> None:
    everything = {name: 1 for name in (*coverage.wanted(), *coverage.wanted_faults(), *map(str, coverage.wanted_cells()))}
    assert coverage.missing(everything, coverage.SOME) == list(coverage.wanted_in_families())
    everything |= {coverage.in_mode(cell.mode, cell.name): 1 for cell in coverage.wanted_cells()}
    assert coverage.missing(everything, coverage.FEW) == []
    cell = coverage.Cell("precompiled", "machines", "reason Paused")
    for name in ("reason Paused", "precompiled | fault cordon", str(cell)):
        del everything[name]
    assert coverage.missing(everything) == ["reason Paused", "precompiled | fault cordon"]
    assert coverage.missing(everything, coverage.FEW) == ["reason Paused", "precompiled | fault cordon", str(cell)]


def test_of_runs_in_one_mode_only_what_is_that_modes_is_asked() -> None:
    lacking = coverage.missing({}, coverage.FEW, ("precompiled",))
    assert {name.partition(" | ")[0] for name in lacking} == {"precompiled"}
    assert len(lacking) < len(coverage.missing({}, coverage.FEW))
    assert [line.split()[0] for line in coverage.table({}, ("precompiled",))[1:]] == ["precompiled"]


def test_what_is_missing_after_several_groups_of_faults_is_one_line() -> None:
    cells = ("precompiled | api | reason Paused", "precompiled | fuzz | reason Paused")
    lacking = ["reason Paused", "precompiled | fault cordon", *cells]
    assert coverage.together(lacking) == [
        "reason Paused", "precompiled | fault cordon", "precompiled | reason Paused, after api, fuzz"]


def test_the_table_has_a_line_for_each_mode_and_a_column_for_each_group_of_faults() -> None:
    lines = coverage.table({"nvidiadriver | switches | reason Paused": 1})
    assert lines[0].split() == ["mode", "kinds", "all", *coverage.groups()]
    assert [line.split()[0] for line in lines[1:]] == list(MODES)
    switches = lines[0].split().index("switches")
    assert next(line for line in lines if line.startswith("nvidiadriver ")).split()[switches].startswith("1/")
    assert next(line for line in lines if line.startswith("clusterpolicy ")).split()[switches] == "-"


def test_what_one_mode_of_a_family_met_is_met_in_the_family() -> None:
    met = coverage.in_mode("two-nvidiadrivers", "reason MovePaused")
    assert met in coverage.wanted_in_families()["NVIDIADrivers | reason MovePaused"]
    assert "NVIDIADrivers | reason MovePaused" in coverage.missing({}, coverage.SOME)
    assert "NVIDIADrivers | reason MovePaused" not in coverage.missing({met: 1}, coverage.SOME)
    assert "NVIDIADrivers | reason MovePaused" not in coverage.missing({}, coverage.SOME - 1)
    assert coverage.wanted_in_families()["compiled | reason MovePaused"] == ["switched-compilation | reason MovePaused"]


def test_a_cell_that_cannot_be_met_says_why() -> None:
    assert coverage.why_unmet(coverage.Cell("precompiled", "api", "reason Undecided")) == "it would be a bug"
    assert coverage.why_unmet(coverage.Cell("precompiled", "api", "reason Paused")) is None
    assert coverage.why_unmet(coverage.Cell("precompiled", "api", "reason DriverRefused")) is not None
    assert coverage.why_unmet(coverage.Cell("precompiled-nvidiadriver", "api", "reason NotSelected")) is None


@pytest.mark.parametrize(("driver", "left", "off"), [
    ({}, False, False),
    ({"enabled": False}, False, True),
    ({"useNvidiaDriverCRD": True}, True, False),
    ({"useNvidiaDriverCRD": True, "enabled": False}, True, False),
])
def test_a_switch_of_the_cluster_policys_driver_says_nothing_about_those_of_nvidiadrivers(
    driver: dict[str, bool], left: bool, off: bool
) -> None:
    policy = {"spec": {"driver": driver}}
    assert (leaves_drivers(policy), turns_drivers_off(policy)) == (left, off)


@pytest.mark.parametrize(("ending", "followed"), [((), "first"), (("first",), "second"), (("first", "second"), None)])
def test_the_oldest_cluster_policy_that_is_not_being_deleted_is_in_force(ending: tuple[str, ...], followed: str | None) -> None:
    made = {"second": "2026-01-01T00:00:02Z", "first": "2026-01-01T00:00:01Z"}
    policies = [{"metadata": {"name": name, "creationTimestamp": at, **({"deletionTimestamp": at} if name in ending else {})}}
                for name, at in made.items()]
    found = policy_in_force(policies)
    assert (found["metadata"]["name"] if found else None) == followed


@pytest.mark.parametrize(("revisions", "loop"), [("aaa", False), ("aaaa", True), ("abcd", False), ("abaab", True)])
def test_driver_pods_that_people_ask_for_anew_are_not_deleted_in_a_loop(revisions: str, loop: bool) -> None:
    assert are_a_loop(revisions) == loop
