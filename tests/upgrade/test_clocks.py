"""Times that a decision is given: a wait ends when its time is up, neither before nor for what a wrong clock wrote."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import GrantNodes, PatchNode
from gpuward.model.reasons import Reason
from gpuward.model.record import decode_record
from gpuward.model.snapshot import Refusal
from gpuward.model.states import State
from gpuward.upgrade import node_decision, writing
from gpuward.upgrade.decide import decide
from gpuward.upgrade.ledger import MOST_BYTES, write_grants
from gpuward.upgrade.node_decision import DecisionCache
from tests import build
from tests.build import NOW, cluster, driver_pod, hold_of, pod, policy, under_way

YEAR = 365 * 86_400.0


@pytest.mark.parametrize("ahead", [60.0, 3600.0, 10 * YEAR])
@pytest.mark.parametrize(("state", "seconds"), [(State.POD_RESTART_REQUIRED, 1800), (State.VALIDATION_REQUIRED, 600)])
def test_a_state_entered_in_the_future_counts_from_now_and_is_written_so(ahead: float, state: State, seconds: int) -> None:
    node = under_way(state, since=NOW + ahead, started=NOW + ahead)
    pods = [driver_pod(driver="560", ready=state is State.VALIDATION_REQUIRED, created=NOW - 50)]
    plan = decide(cluster([node], pods), policy(), NOW)
    assert hold_of(plan).until == NOW + seconds
    (patch,) = [action for action in plan.actions if isinstance(action, PatchNode)]
    assert decode_record(patch.annotations[names.UPGRADE_RECORD] or "").since == NOW


def test_a_failure_in_the_future_is_tried_again_as_if_it_were_of_now() -> None:
    record = build.record(State.FAILED, ours=True, failed=State.VALIDATION_REQUIRED, since=NOW + YEAR)
    assert record.failure is not None
    record = msgspec.structs.replace(record, failure=msgspec.structs.replace(record.failure, at=NOW + YEAR))
    failed = build.node("n0", State.FAILED, remembers=record, cordoned=True)
    plan = decide(cluster([failed], [driver_pod(driver="560", ready=False)]), policy(), NOW)
    assert hold_of(plan).until == NOW + 60


@pytest.mark.parametrize("begun", [NOW, NOW + 0.001, NOW + 0.5, NOW + 0.999])
def test_jobs_have_all_of_their_time_though_it_is_noted_in_whole_seconds(begun: float) -> None:
    notes = {names.WAIT_FOR_JOBS_SINCE: str(int(begun))}
    node = under_way(State.WAIT_FOR_JOBS_REQUIRED, since=begun, started=begun, annotations=notes)
    job = pod(labels={"app": "job"})
    waits = policy(wait_for="app=job", wait_timeout=30)
    facts = cluster([node], [driver_pod(), job])
    assert decide(facts, waits, begun + 29.999).nodes["n0"].state is State.WAIT_FOR_JOBS_REQUIRED
    assert decide(facts, waits, begun + 30.001).nodes["n0"].state is not State.WAIT_FOR_JOBS_REQUIRED


def test_the_ledger_stays_within_its_limit_whatever_is_granted() -> None:
    names_ = [f"ip-10-{number // 256:03}-{number % 256:03}-17.eu-central-1.compute.internal" for number in range(6000)]
    nodes = [build.node(name, "upgrade-required", remembers=build.record(State.UPGRADE_REQUIRED)) for name in names_]
    snapshot = msgspec.structs.replace(cluster(nodes, [driver_pod(name) for name in names_]), grants={})
    grants: dict[str, str] = {}
    memory = DecisionCache()
    for each in range(4):
        plan = decide(msgspec.structs.replace(snapshot, grants=grants), policy(parallel=0), NOW + each, memory)
        for action in plan.actions:
            if isinstance(action, GrantNodes):
                grants = {**{name: stamp for name, stamp in grants.items() if name not in action.drop}, **action.add}
        assert 0 < len(write_grants(grants)) <= MOST_BYTES


def test_a_patch_that_cannot_be_made_holds_its_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is put into the making of one node's patch."""
    true = writing.actions_of

    def fails(path: object, before: object) -> object:
        if before.node.name == "n0":  # type: ignore[attr-defined]  # the facts of a node
            raise OverflowError("absurd")
        return true(path, before)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(node_decision, "actions_of", fails)
    nodes = [build.node(f"n{number}", "upgrade-required") for number in range(3)]
    plan = decide(cluster(nodes, [driver_pod(f"n{number}") for number in range(3)]), policy(parallel=3), NOW)
    assert hold_of(plan, "n0").reason is Reason.UNDECIDED
    assert plan.nodes["n1"].state is plan.nodes["n2"].state is State.POD_RESTART_REQUIRED


@pytest.mark.parametrize(("count", "rest"), [(1, 1), (2, 2), (5, 16), (9, 45), (10**6, 45)])
def test_a_node_that_may_not_be_changed_rests_and_takes_no_slot(count: int, rest: float) -> None:
    nodes = [build.node(f"n{number}", "upgrade-required", remembers=build.record(State.UPGRADE_REQUIRED)) for number in range(2)]
    facts = cluster(nodes, [driver_pod(f"n{number}") for number in range(2)])
    facts = msgspec.structs.replace(facts, refused_writes={"uid-n0": Refusal(NOW, count, "denied")})
    plan = decide(facts, policy(), NOW + rest - 0.1)
    assert hold_of(plan, "n0").reason is Reason.WRITE_REFUSED
    assert hold_of(plan, "n0").until == plan.wake_at == NOW + rest
    assert plan.nodes["n1"].state is State.POD_RESTART_REQUIRED
    assert "n0" in {action.lane for action in decide(facts, policy(parallel=2), NOW + rest).actions}


@pytest.mark.parametrize(("ago", "reason"), [(300, Reason.WRITE_REFUSED), (601, Reason.PARALLEL_LIMIT)])
def test_a_refusal_of_long_ago_that_nothing_has_repeated_is_no_reason_of_now(ago: float, reason: Reason) -> None:
    """Others keep the node from being written to: whether the server would refuse that still nobody knows."""
    nodes = [build.under_way(State.POD_RESTART_REQUIRED), build.node("n1", State.UPGRADE_REQUIRED)]
    facts = cluster(nodes, [driver_pod(ready=False), driver_pod("n1")])
    facts = msgspec.structs.replace(facts, refused_writes={"uid-n1": Refusal(NOW - ago, 3, "denied")})
    assert hold_of(decide(facts, policy(parallel=1), NOW), "n1").reason is reason
