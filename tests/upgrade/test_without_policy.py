"""While no ClusterPolicy is in force nothing is started, evicted or deleted; our cordons are given back where a driver serves."""

from __future__ import annotations

import pytest

from gpuward.model.actions import DeletePod, EvictPod
from gpuward.model.explain import sentence
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, UNDISTURBED, State
from gpuward.model.views import PodView
from tests.build import NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade.one import Answer, ask

NOBODY = policy(auto_upgrade=False, absent="there is no ClusterPolicy")
OLD, NEW = driver_pod(), driver_pod(driver="560", created=NOW - 30)
LOADING = driver_pod(driver="560", created=NOW - 30, ready=False)
GOING = driver_pod(deleting=True)
FRESH, STALE = validator(created=NOW - 20), validator()
RESTART, VALIDATION, UNCORDON = State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED


def alone(view: object, *pods: PodView) -> Answer:
    answer = ask(view, *pods, policy=NOBODY)  # type: ignore[arg-type]
    assert not any(isinstance(action, EvictPod | DeletePod) for action in answer.plan.actions)
    return answer


@pytest.mark.parametrize("state", sorted({*UNDISTURBED, RESTART}))
@pytest.mark.parametrize("foreign", [False, True])
def test_a_node_whose_driver_is_untouched_goes_back_into_the_queue(state: State, foreign: bool) -> None:
    answer = alone(under_way(state, foreign=foreign), OLD, gpu_pod())
    assert answer.entered == ["upgrade-required"]
    assert answer.reason is Reason.NO_POLICY
    assert answer.patch.unschedulable is (None if foreign else False)


@pytest.mark.parametrize(("state", "pods", "given_back", "entered"), [
    (RESTART, [], False, []),
    (RESTART, [GOING], False, []),
    (RESTART, [LOADING], False, []),
    (RESTART, [LOADING, GOING], False, []),
    (RESTART, [NEW], True, ["validation-required"]),
    (VALIDATION, [], False, []),
    (VALIDATION, [LOADING], False, []),
    (VALIDATION, [NEW], True, []),
    (VALIDATION, [NEW, STALE], True, []),
    (VALIDATION, [NEW, FRESH], True, ["uncordon-required", "upgrade-done"]),
    (UNCORDON, [NEW, FRESH], True, ["upgrade-done"]),
    (UNCORDON, [NEW], True, []),
    (State.POD_DELETION_REQUIRED, [LOADING], False, []),
    *((state, [NEW, gpu_pod()], True, [*way, "pod-restart-required", "validation-required"]) for state, way in (
        (State.CORDON_REQUIRED, ["wait-for-jobs-required", "pod-deletion-required"]), (State.DRAIN_REQUIRED, []),
        (State.WAIT_FOR_JOBS_REQUIRED, ["pod-deletion-required"]), (State.POD_DELETION_REQUIRED, []))),
    (State.FAILED, [OLD], False, []),
])
def test_our_cordon_is_given_back_where_a_driver_serves(
    state: State, pods: list[PodView], given_back: bool, entered: list[str]
) -> None:
    answer = alone(under_way(state, failed=RESTART) if state is State.FAILED else under_way(state), *pods)
    assert answer.entered == entered
    patched = [action for action in answer.plan.actions if hasattr(action, "unschedulable")]
    assert [patch.unschedulable for patch in patched if patch.unschedulable is not None] == ([False] if given_back else [])
    if answer.state in IN_PROGRESS:
        assert answer.reason is Reason.NO_POLICY
        assert ("stays cordoned" in sentence(answer.hold)) is not given_back


def test_a_node_at_rest_says_only_what_it_waits_for() -> None:
    done = node(state=State.DONE, remembers=record(State.DONE))
    assert alone(done, NEW, FRESH).reason is None
    assert alone(done, NEW).reason is Reason.NO_POLICY, "nobody can validate it"
    assert alone(done, OLD).reason is Reason.NO_POLICY
    failed = alone(under_way(State.FAILED, failed=RESTART), OLD)
    assert failed.reason is Reason.FAILED
    assert alone(node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED)), OLD).reason is Reason.NO_POLICY
