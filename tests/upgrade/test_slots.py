"""How many nodes start, in NVIDIA's cases and in ours.

`theirs` is what NVIDIA's slot arithmetic (operator-libs, common manager) starts in the same situation. Where ours differs it is
on purpose: failed nodes give back their slot; a node is counted once; a cordoned node may pass maxUnavailable but not
maxParallelUpgrades; and a node that is not Ready never starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.upgrade.decide import decide
from tests import build

Q, C, F, D = State.UPGRADE_REQUIRED, State.CORDON_REQUIRED, State.FAILED, State.DONE


class Case(NamedTuple):
    nodes: int
    parallel: int
    unavailable: str | int | None
    theirs: int
    ours: int
    states: Mapping[int, State] = MappingProxyType({})
    cordoned: tuple[int, ...] = ()
    not_ready: tuple[int, ...] = ()
    held_by: Collection[Reason] = ()
    changed_by: tuple[int, ...] = ()
    """The weaknesses of NVIDIA's because of which ours differs."""


PARALLEL, UNAVAILABLE, NOBODY = Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.NO_NODE_MAY_START
NVIDIAS = {
    "1: no limits": Case(5, 0, None, 5, 5),
    "2: three at once": Case(5, 3, None, 3, 3, held_by={PARALLEL}),
    "3: three of four slots are taken": Case(5, 4, None, 1, 1, {0: C, 1: C, 2: C}, held_by={PARALLEL}),
    "4: all may be out, two are": Case(5, 0, "100%", 5, 5, cordoned=(3, 4)),
    "5: half may be out, two cordoned ones wait": Case(5, 0, "50%", 3, 3, cordoned=(3, 4), held_by={UNAVAILABLE}),
    "6: half may be out, two done ones are": Case(5, 0, "50%", 1, 1, {3: D, 4: D}, (3, 4), held_by={UNAVAILABLE}),
    "7: two may be out, three at once": Case(5, 3, 2, 2, 2, held_by={UNAVAILABLE}),
    "8: three of four may-be-out are": Case(5, 4, 4, 1, 1, {0: C, 1: C, 2: C}, held_by={UNAVAILABLE}),
    "9: a quarter of four": Case(4, 0, "25%", 1, 1, held_by={UNAVAILABLE}),
    "9: a quarter of five is rounded up": Case(5, 0, "25%", 2, 2, held_by={UNAVAILABLE}),
    "9: a quarter of ten is rounded up": Case(10, 0, "25%", 3, 3, held_by={UNAVAILABLE}),
    "9: a hundredth of three is one": Case(3, 0, "1%", 1, 1, held_by={UNAVAILABLE}),
    "10: two strangers are not ready": Case(8, 4, "25%", 0, 0, {6: D, 7: D}, not_ready=(6, 7), held_by={NOBODY}),
    "11: two failed": Case(10, 2, None, 0, 2, {0: F, 1: F}, held_by={PARALLEL}, changed_by=(5,)),
    "12: none may be out": Case(4, 0, 0, 0, 0, held_by={NOBODY}),
    "12: none of a hundred may be out": Case(4, 0, "0%", 0, 0, held_by={NOBODY}),
    "12: none may be out, one is": Case(4, 0, 0, 1, 1, cordoned=(2,), held_by={NOBODY}),
    "13: one under way was cordoned before": Case(
        10, 5, "25%", 1, 2, {0: C}, (0,), held_by={UNAVAILABLE}, changed_by=(21,)
    ),
}
OURS = {
    "failed and cordoned: no slot, but out of service": Case(
        10, 2, 3, 0, 1, {0: F, 1: F}, (0, 1), held_by={UNAVAILABLE}, changed_by=(5,)
    ),
    "cordoned nodes pass maxUnavailable but not maxParallel": Case(
        5, 1, 1, 3, 1, cordoned=(2, 3, 4), held_by={UNAVAILABLE, PARALLEL}, changed_by=(19,)
    ),
    "cordoned nodes wait for a slot like any other": Case(
        4, 1, None, 3, 1, cordoned=(2, 3), held_by={PARALLEL}, changed_by=(19,)
    ),
    "a cordoned node that is not ready does not start": Case(
        3, 0, 0, 1, 0, cordoned=(1,), not_ready=(1,), held_by={NOBODY}, changed_by=(19, 20)
    ),
    "a node that is not ready does not start": Case(3, 0, "100%", 3, 2, not_ready=(0,), changed_by=(20,)),
    "nodes under way over the limit start nobody": Case(6, 1, None, 0, 0, {0: C, 1: C}, held_by={PARALLEL}),
    "more may be out than there are": Case(3, 0, "200%", 3, 3),
}


def rows(*, marked: bool = False) -> list[object]:
    """Return the cases as parameters whose names say which weakness makes the difference."""
    return [
        pytest.param(
            case, id=name + (f" (weakness {', '.join(map(str, case.changed_by))})" if case.changed_by else ""),
            marks=[pytest.mark.weakness(*case.changed_by)] if marked and case.changed_by else [],
        )
        for name, case in {**NVIDIAS, **OURS}.items()
    ]


@pytest.mark.weakness(5, 19, 20, 21)
@pytest.mark.parametrize("case", rows(marked=True))
def test_as_many_nodes_start_as_may(case: Case) -> None:
    snapshot = build.fleet(
        case.nodes, state=Q, states=case.states, cordoned=case.cordoned, not_ready=case.not_ready,
    )
    started_before = {name for name, view in snapshot.nodes.items() if view.state in IN_PROGRESS}
    plan = decide(snapshot, build.policy(parallel=case.parallel, unavailable=case.unavailable), build.NOW)
    started = {name for name, status in plan.nodes.items() if status.state in IN_PROGRESS} - started_before
    assert len(started) == case.ours
    waiting = [name for name, status in plan.nodes.items() if status.state is Q and snapshot.nodes[name].ready]
    assert {build.hold_of(plan, name).reason for name in waiting} == set(case.held_by)


def nvidia_starts(case: Case) -> int:
    """Compute what NVIDIA's slot arithmetic starts: failed nodes hold slots, nodes to be cordoned count twice if they are."""
    states = [case.states.get(number, Q) for number in range(case.nodes)]
    out = set(case.cordoned) | set(case.not_ready)
    in_progress = sum(state not in (State.UNKNOWN, D, Q) for state in states)
    unavailable = len(out) + states.count(C)
    bound = build.max_unavailable(case.unavailable).of(case.nodes)
    slots = min(case.parallel - in_progress if case.parallel else states.count(Q), bound)
    if unavailable >= bound:
        slots = 0
    elif bound < case.nodes:
        slots = min(slots, bound - unavailable)
    started = 0
    for number, state in enumerate(states):
        if state is Q and (slots > 0 or number in case.cordoned):
            started, slots = started + 1, slots - 1
    return started


@pytest.mark.parametrize("case", rows())
def test_their_column_is_what_their_arithmetic_gives(case: Case) -> None:
    assert nvidia_starts(case) == case.theirs


@pytest.mark.parametrize("case", rows())
def test_where_ours_differs_a_weakness_says_why(case: Case) -> None:
    assert (case.ours != case.theirs) is bool(case.changed_by)


def test_every_case_of_nvidias_is_there() -> None:
    assert {int(name.split(":")[0]) for name in NVIDIAS} == set(range(1, 14))


def test_idle_nodes_start_first_and_then_by_name() -> None:
    snapshot = build.fleet(5, state=Q, gpu_pods={0: 3, 1: 1, 3: 1})
    order = []
    for count in range(1, 6):
        plan = decide(snapshot, build.policy(parallel=count), build.NOW)
        order.append({name for name, status in plan.nodes.items() if status.state in IN_PROGRESS})
    assert order == [{"n2"}, {"n2", "n4"}, {"n1", "n2", "n4"}, {"n1", "n2", "n3", "n4"}, {"n0", "n1", "n2", "n3", "n4"}]


def test_a_slot_that_is_given_back_is_given_out_when_it_is_seen_to_be_free() -> None:
    leaving = build.under_way(State.UNCORDON_REQUIRED, name="n1")
    nodes = [build.node("n0", Q), leaving]
    pods = [build.driver_pod("n0"), build.driver_pod("n1", "560"), build.validator("n1")]
    plan = decide(build.cluster(nodes, pods), build.policy(parallel=1, unavailable=1), build.NOW)
    assert plan.nodes["n1"].state is D
    assert plan.nodes["n0"].state is Q


def test_a_node_whose_admission_is_in_doubt_keeps_others_from_its_slot() -> None:
    snapshot = build.fleet(2, state=Q, unsettled=["n0"])
    plan = decide(snapshot, build.policy(parallel=1), build.NOW)
    assert [status.state for status in plan.nodes.values()] == [Q, Q]
    assert {action.lane for action in plan.actions} == {"n1"}
    assert build.hold_of(plan, "n1").reason is PARALLEL


def test_held_nodes_keep_the_patch_that_marked_them() -> None:
    plan = decide(build.fleet(2), build.policy(parallel=1), build.NOW)
    assert [status.state for status in plan.nodes.values()] == [State.POD_RESTART_REQUIRED, Q]
    assert sorted(action.lane for action in plan.actions) == ["n0", "n0", "n1"]
