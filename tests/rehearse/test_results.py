"""What drawn runs of a rollout say together."""

from __future__ import annotations

import pytest

from gpuward.rehearse.results import NodeRun, Rehearsal, Run, Spread, Waited, blockers, trial


def run(seed: int, lasted: float, *nodes: NodeRun, most: int = 1) -> Run:
    return Run(seed, lasted, nodes, most)


def node(name: str, started: float | None = 0.0, done: float | None = 60.0, **fields: object) -> NodeRun:
    return NodeRun(name, 8, started, done, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("values", "p50", "p90"), [
    ([7.0], 7.0, 7.0), ([2.0, 1.0], 1.0, 2.0), ([float(number) for number in range(1, 11)], 5.0, 9.0)])
def test_percentiles_are_values_that_were_drawn(values: list[float], p50: float, p90: float) -> None:
    assert Spread.of(values) == Spread(p50, p90)


def test_the_run_of_median_length_stands_for_all_and_orders_are_compared() -> None:
    a, b = node("a"), node("b")
    found = Rehearsal((run(0, 30.0, a, b), run(1, 10.0, b, a), run(2, 20.0, a, b)))
    assert (found.first.seed, found.same_order) == (2, 2)


def test_gpu_hours_are_those_of_the_nodes_and_who_did_not_start_has_no_place() -> None:
    one = run(0, 90.0, node("a", out=1800.0), node("b", None, None, out=0.0))
    assert (one.hours_out, one.order, [each.name for each in one.left]) == (4.0, ("a",), ["b"])
    assert one.changes
    assert not run(0, 0.0, node("a", None, 0.0)).changes


def test_who_held_nodes_up_is_summed_over_nodes() -> None:
    by = Waited("BudgetBlocks", "budget ml/x", 50.0)
    found = blockers(run(0, 90.0, node("a", waited=(by, Waited("ParallelLimit", "", 70.0))), node("b", waited=(by,))))
    assert [(one.whom, one.nodes, one.seconds) for one in found] == [("budget ml/x", 2, 100.0), ("", 1, 70.0)]


def test_a_change_is_told_only_if_it_shortens_the_rollout_or_frees_a_node() -> None:
    before = run(0, 1000.0, node("a"), node("b", None, None))
    assert trial("x", before, run(0, 990.0, node("a"), node("b", None, None))) is None
    assert trial("x", before, run(0, 100.0, node("a", done=None), node("b", None, None))) is None, "another node is left"
    freed = trial("x", before, run(0, 1500.0, node("a"), node("b"), most=2))
    assert freed is not None
    assert (freed.freed, freed.before, freed.lasted, freed.most_out, freed.left) == (("b",), 1000.0, 1500.0, 2, 0)
    faster = trial("x", before, run(0, 500.0, node("a"), node("b", None, None)))
    assert faster is not None
    assert (faster.freed, faster.left) == ((), 1)
