"""Every transition of the table is reached, each by one small scenario, and no step takes one that is not in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from gpuward import names
from gpuward.model.policy import DrainSettings
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import TRANSITIONS, UNDISTURBED, State
from gpuward.model.undrainable import Behaviour, UndrainableSettings
from gpuward.model.views import NodeView
from tests.build import ADMITTED, NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade.one import Answer, ask

Edge = tuple[State, State]

UNKNOWN, QUEUED, CORDON, JOBS, DELETION = (
    State.UNKNOWN, State.UPGRADE_REQUIRED, State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED,
)
DRAINING, RESTART, VALIDATION, UNCORDON, DONE, FAILED = (
    State.DRAIN_REQUIRED, State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED,
    State.DONE, State.FAILED,
)
OLD, NEW, ROLLED_BACK = driver_pod(), driver_pod(driver="560", created=NOW - 30), driver_pod(driver="560")
FRESH = validator(created=NOW - 20)
DRAIN = policy(drain=DrainSettings(enable=True))
IMPATIENT = policy(wait_for="app=job", rollout=RolloutSettings(undrainable=UndrainableSettings(Behaviour.FAIL, 30.0)))
MAINTENANCE = {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED}


def rolled_back(view: NodeView) -> Answer:
    """Ask about a node whose target went back to the driver that it still runs."""
    return ask(view, ROLLED_BACK, policy=DRAIN)


def left(state: State) -> Answer:
    """Ask about a node that no driver DaemonSet selects any more."""
    return ask(node(state=state, remembers=record(state, ours=True), cordoned=True), selects={"gpu": "here"})


def alone(view: NodeView) -> Answer:
    """Ask about a node while no ClusterPolicy is in force."""
    return ask(view, OLD, policy=policy(auto_upgrade=False, absent="there is no ClusterPolicy"))


def after_a_pause() -> Answer:
    """Ask about a failed node whose label a pause took."""
    return ask(node(remembers=record(FAILED, failed=RESTART, paused=NOW - 20)), driver_pod(driver="560", ready=False))


SCENARIOS: dict[Edge, Callable[[], Answer]] = {
    (UNKNOWN, QUEUED): lambda: ask(node(), OLD, policy=policy(unavailable=0)),
    (UNKNOWN, DONE): lambda: ask(node(), NEW),
    (UNKNOWN, FAILED): after_a_pause,
    (DONE, QUEUED): lambda: ask(node(state=DONE), OLD, policy=policy(unavailable=0)),
    (QUEUED, CORDON): lambda: ask(node(state=QUEUED), OLD),
    (QUEUED, RESTART): lambda: ask(node(state=QUEUED, remembers=record(QUEUED)), driver_pod(config_digest="d"), digest="d"),
    (QUEUED, DONE): lambda: ask(node(state=QUEUED, remembers=record(QUEUED)), ROLLED_BACK),
    (CORDON, JOBS): lambda: ask(under_way(CORDON), OLD),
    (JOBS, FAILED): lambda: ask(under_way(JOBS), OLD, gpu_pod(labels={"app": "job"}), policy=IMPATIENT),
    (JOBS, DELETION): lambda: ask(under_way(JOBS), OLD),
    (DELETION, RESTART): lambda: ask(under_way(DELETION), OLD),
    (DELETION, DRAINING): lambda: ask(under_way(DELETION), OLD, gpu_pod(owner=None), policy=DRAIN),
    (DELETION, FAILED): lambda: ask(under_way(DELETION), OLD, gpu_pod(owner=None)),
    (DRAINING, RESTART): lambda: ask(under_way(DRAINING), OLD, policy=DRAIN),
    (DRAINING, FAILED): lambda: ask(under_way(DRAINING), OLD, gpu_pod(owner=None), policy=DRAIN),
    (RESTART, VALIDATION): lambda: ask(under_way(RESTART), NEW),
    (RESTART, DELETION): lambda: ask(under_way(RESTART), OLD, gpu_pod()),
    (RESTART, FAILED): lambda: ask(under_way(RESTART), driver_pod(driver="560", ready=False, restarts=11)),
    (VALIDATION, UNCORDON): lambda: ask(under_way(VALIDATION), NEW, FRESH),
    (VALIDATION, DONE): lambda: ask(under_way(VALIDATION, foreign=True), NEW, FRESH),
    (VALIDATION, RESTART): lambda: ask(under_way(VALIDATION)),
    (VALIDATION, FAILED): lambda: ask(under_way(VALIDATION), NEW, now=ADMITTED + 600),
    (UNCORDON, DONE): lambda: ask(under_way(UNCORDON), NEW, FRESH),
    (UNCORDON, VALIDATION): lambda: ask(node(state=UNCORDON, remembers=record(RESTART)), NEW),
    (FAILED, QUEUED): lambda: ask(under_way(FAILED, failed=RESTART), OLD, now=ADMITTED + 60, policy=policy(unavailable=0)),
    (FAILED, VALIDATION): lambda: ask(under_way(FAILED, failed=RESTART), NEW, FRESH),
    **{(state, UNCORDON): partial(rolled_back, under_way(state)) for state in sorted(UNDISTURBED)},
    **{(state, DONE): partial(rolled_back, under_way(state, foreign=True)) for state in sorted(UNDISTURBED)},
    **{(state, QUEUED): partial(alone, under_way(state)) for state in sorted({*UNDISTURBED, RESTART})},
    **{(state, UNKNOWN): partial(left, state) for state in State if state is not UNKNOWN and state not in MAINTENANCE},
}


@pytest.mark.parametrize("edge", SCENARIOS, ids=lambda edge: f"{edge[0] or 'unknown'} to {edge[1] or 'unknown'}")
def test_a_transition_is_taken(edge: Edge) -> None:
    before, after = edge
    answer = SCENARIOS[edge]()
    passed = [node_before(answer), *answer.entered]
    assert (str(before), str(after)) in list(pairwise(passed))


def node_before(answer: Answer) -> str:
    return answer.patch.expect_labels[names.UPGRADE_STATE] or ""


def test_every_transition_of_the_table_has_its_scenario() -> None:
    table = {(before, after) for before, nexts in TRANSITIONS.items() for after in nexts}
    assert table - set(SCENARIOS) == set(), "these are never reached"
    assert set(SCENARIOS) - table == set(), "these are not in the table"
