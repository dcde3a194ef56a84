"""The condition DriverUpgrade: one reason for the fleet, and who is held by what."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.driver_images import ImageMissing, missing_in
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure
from gpuward.model.states import IN_PROGRESS, State
from gpuward.operands.rollout import rollout_of
from gpuward.operands.status import differs_in_words_only, judged, status_of
from tests.waits import held_by

NOW = 1_700_000_000.0
WAITING, DONE, FAILED = State.UPGRADE_REQUIRED, State.DONE, State.FAILED
READY = judged({}, has_nfd_labels=True, has_gpu_nodes=True)


LOADED = (None, Reason.METADATA_BEHIND)
"""What is said of done nodes that are up to date."""


def plan(*nodes: tuple[State, Reason | None], auto: bool = True, labels: tuple[str, ...] = ()) -> Plan:
    """Build a plan about n0, n1, ...; their labels are those of the states unless said."""
    statuses = {
        f"n{number}": NodeStatus(state, 0.0, held_by(reason) if reason else None, labels[number] if labels else str(state),
                                 up_to_date=state is DONE and reason in LOADED)
        for number, (state, reason) in enumerate(nodes)
    }
    states = [state for state, _ in nodes]
    counts = Counts(len(states), sum(state in IN_PROGRESS for state in states), states.count(DONE), states.count(FAILED),
                    pending=states.count(WAITING), up_to_date=sum(status.up_to_date for status in statuses.values()))
    return Plan(nodes=statuses, counts=counts, auto_upgrade=auto)


@pytest.mark.parametrize(("fleet", "reason"), [
    (plan(), "NoNodes"),
    (plan((DONE, None), (DONE, Reason.METADATA_BEHIND)), "UpToDate"),
    (plan((DONE, None), (State.CORDON_REQUIRED, None), (WAITING, Reason.PARALLEL_LIMIT)), "Progressing"),
    (plan((DONE, None), (WAITING, Reason.PARALLEL_LIMIT), labels=("uncordon-required", "upgrade-required")), "Progressing"),
    (plan((DONE, None), (WAITING, Reason.PROTECTED_PODS)), "Blocked"),
    (plan((State.UNKNOWN, Reason.TEMPLATE_SETTLING)), "Progressing"),
    (plan((DONE, None), (DONE, Reason.DRIVER_FAILING)), "DriversNotReady"),
    (plan((DONE, None), (DONE, Reason.VALIDATOR_STARTING)), "DriversNotReady"),
    (plan((DONE, None), (State.UNKNOWN, Reason.DRIVER_POD_MISSING)), "DriversNotReady"),
    (plan((DONE, None), (WAITING, Reason.SKIPPED)), "Blocked"),
    (plan((FAILED, Reason.FAILED), (WAITING, Reason.NEW_DRIVER_FAILS)), "NewDriverFails"),
    (plan((State.POD_DELETION_REQUIRED, Reason.EVICTION_REFUSED), (WAITING, Reason.EVICTION_FORBIDDEN)), "EvictionForbidden"),
    (plan((State.POD_RESTART_REQUIRED, Reason.REPLACEMENT_REFUSED), (WAITING, Reason.REFUSED_ELSEWHERE)), "ReplacementRefused"),
    (plan((WAITING, Reason.FAILURE_BUDGET), (State.DRAIN_REQUIRED, Reason.EVICTING)), "FailureBudgetExceeded"),
    (plan((DONE, None), (FAILED, Reason.FAILED)), "NodesFailed"),
    (plan((FAILED, Reason.FAILED), (State.CORDON_REQUIRED, None)), "Progressing"),
    (plan((WAITING, None), auto=False), "Paused"),
    (plan((DONE, None), (State.UNKNOWN, Reason.DRIVER_STARTING), auto=False), "Paused"),
    (plan((DONE, None), (DONE, None), auto=False), "UpToDate"),
    (plan((WAITING, Reason.INVALID_POLICY)), "InvalidPolicy"),
])
def test_the_most_important_reason_of_the_fleet(fleet: Plan, reason: str) -> None:
    rollout = rollout_of(fleet)
    assert rollout.reason == reason
    assert rollout.status == {"UpToDate": "True", "NoNodes": "Unknown"}.get(reason, "False")


def test_the_message_counts_and_names_the_held_nodes_by_reason() -> None:
    held = [(WAITING, Reason.PARALLEL_LIMIT)] * 2 + [(WAITING, Reason.PROTECTED_PODS)] * 4
    assert rollout_of(plan((State.CORDON_REQUIRED, None), *held)).message == (
        "0 of 7 nodes up to date, 1 in progress, 6 pending, 0 failed; "
        "waiting: 2 ParallelLimit; held: 4 ProtectedPods (n3, n4, n5 and 1 more)")


def test_the_message_tells_done_nodes_whose_driver_is_not_ready_from_those_that_are_up_to_date() -> None:
    fleet = plan((DONE, None), (DONE, Reason.DRIVER_FAILING), (DONE, Reason.DRIVER_FAILING))
    assert rollout_of(fleet).message == (
        "1 of 3 nodes up to date, 0 in progress, 0 pending, 0 failed, 2 not ready; held: 2 DriverFailing (n1, n2)")


def test_a_node_that_is_skipped_is_not_said_to_be_not_ready() -> None:
    fleet = plan((DONE, None), (WAITING, Reason.SKIPPED), (WAITING, Reason.PARALLEL_LIMIT))
    fleet = msgspec.structs.replace(fleet, counts=msgspec.structs.replace(fleet.counts, pending=1))  # as decisions count them
    message = rollout_of(fleet).message
    assert message.startswith("1 of 3 nodes up to date, 0 in progress, 1 pending, 0 failed, 1 skipped; ")


def test_the_condition_stands_beside_nvidias_and_leaves_them_alone() -> None:
    bare, full = (status_of(READY, {}, "ns", NOW, rollout) for rollout in (None, rollout_of(plan((DONE, None)))))
    assert bare is not None
    assert full is not None
    assert full["conditions"][:2] == bare["conditions"]
    assert [(one["type"], one["status"]) for one in full["conditions"][2:]] == [("DriverUpgrade", "True")]


def test_the_condition_stays_while_nothing_is_known_of_the_fleet() -> None:
    before = status_of(READY, {}, "ns", NOW, rollout_of(plan((DONE, None))))
    assert before is not None
    assert status_of(READY, before, "ns", NOW + 60) is None


def test_progress_alone_is_a_change_of_words() -> None:
    before = status_of(READY, {}, "ns", NOW, rollout_of(plan((State.CORDON_REQUIRED, None), (WAITING, Reason.PARALLEL_LIMIT))))
    assert before is not None
    after = status_of(READY, before, "ns", NOW, rollout_of(plan((DONE, None), (State.CORDON_REQUIRED, None))))
    assert after is not None
    assert differs_in_words_only(after, before)


def test_nodes_that_failed_are_named_with_their_attempts_the_most_first() -> None:
    def status(state: State, attempts: int, reason: Reason | None = None) -> NodeStatus:
        failure = Failure(State.VALIDATION_REQUIRED, "it took 600 s", 1.0, attempts)
        return NodeStatus(state, 0.0, held_by(reason) if reason else None, str(state), failure=failure)

    nodes = {"n0": NodeStatus(DONE, 0.0), "n1": status(State.POD_RESTART_REQUIRED, 1), "n2": status(WAITING, 2),
             "n3": status(FAILED, 4, Reason.FAILED), "n4": status(FAILED, 1, Reason.RETRY_LATER)}
    message = rollout_of(Plan(nodes=nodes, counts=Counts(5, 1, 1, 2), auto_upgrade=True)).message
    why = "last in validation-required (it took 600 s)"
    assert (f"; n3 has failed 4 times, {why}, and is not tried again by itself; n2 has failed 2 times, {why}, and is tried again "
            f"by itself; n1 has failed once, {why}, and is in attempt 2; and 1 more node that failed; ") in message


def test_every_image_that_is_missing_is_named_as_where_each_kernel_has_its_own() -> None:
    missing = {f"r.io/driver:590-6.8.0-{number}": f"no manifest; {number}" for number in range(9)}
    statuses = {f"n{number}": NodeStatus(WAITING, 0.0, Hold(ImageMissing(*each), 0.0), str(WAITING))
                for number, each in enumerate(missing.items())}
    told = rollout_of(Plan(nodes=statuses, counts=Counts(9, 0, 0, 0, pending=9))).message
    assert dict(missing_in(told)).keys() == missing.keys()
