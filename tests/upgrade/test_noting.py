"""What is noted of an upgrade at each step, and what the node remembers of it at the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.course import Course
from gpuward.model.history import ROOM, Ending, PastUpgrade, encode_history, history_of
from gpuward.model.states import State
from tests import build
from tests.build import ADMITTED, NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import ask, asked

COURSE = Course(ADMITTED, ADMITTED, before="550", to="560", digest="abc", asked="helm")
NEW: dict[str, Any] = {"driver": "560", "created": NOW - 5}


def remembering(state: State, course: Course | None = COURSE, **rest: Any) -> dict[str, Any]:
    return {"remembers": record(state, ours=True, course=course, **rest)}


def test_admission_notes_who_asked_what_the_node_had_and_how_many_gpus_it_has() -> None:
    rules = msgspec.structs.replace(policy(), asked="kubectl-edit")
    old = driver_pod(driver_image="nvcr.io/nvidia/driver:580.95.04-ubuntu22.04")
    view = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED), labels={names.GPU_COUNT: "8"})
    course = ask(view, old, gpu_pod(), policy=rules).course
    assert course is not None
    assert (course.began, course.out, course.before, course.asked, course.gpus) == (NOW, NOW, "580.95.04", "kubectl-edit", 8)


def test_work_is_lost_where_nothing_goes_on_elsewhere() -> None:
    pods = [gpu_pod(name="a", owner="ReplicaSet", gpus=4, started=NOW - 1000),
            gpu_pod(name="b", owner="Job", gpus=4, started=NOW - 1000), gpu_pod(name="c", owner="Job", gpus=2, started=NOW - 50),
            gpu_pod(name="d", owner="Job", gpus=2, started=NOW - 50, deleting=True)]
    view = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED))
    course = ask(view, driver_pod(), *pods).course
    assert course is not None
    assert (course.evicted, course.lost) == (3, 4100.0)


def test_pods_that_stay_were_not_evicted() -> None:
    course = msgspec.structs.replace(COURSE, evicted=2, lost=3000.0)
    memory = remembering(State.POD_DELETION_REQUIRED, course, since=NOW - 400)
    view = node(state=State.POD_DELETION_REQUIRED, cordoned=True, **memory)
    stays = gpu_pod(name="stays", owner="Job", gpus=1, created=NOW - 5000, started=NOW - 1400)
    answer = ask(view, driver_pod(), stays, policy=policy(timeout=300), refusals=asked(stays))
    assert answer.state is State.FAILED
    (past,) = answer.history
    assert (past.ending, past.evicted, past.lost, past.failed_in) == (Ending.FAILED, 1, 2000.0, "pod-deletion-required")
    assert past.spent == (0, 400, 0, 0)


def test_the_time_in_each_state_is_counted_once() -> None:
    view = node(state=State.POD_RESTART_REQUIRED, cordoned=True, **remembering(State.POD_RESTART_REQUIRED, since=NOW - 140))
    course = ask(view, driver_pod(ready=True, **NEW), validator(ready=False, created=NOW - 1)).course
    assert course is not None
    assert course.spent == (0.0, 0.0, 140.0, 0.0)


def test_the_end_is_written_in_the_patch_that_ends_it() -> None:
    course = msgspec.structs.replace(COURSE, spent=(0.0, 3.0, 40.0, 0.0), gpus=8)
    view = node(state=State.VALIDATION_REQUIRED, cordoned=True, **remembering(State.VALIDATION_REQUIRED, course, since=NOW - 10,
                                                                             pods=("uid-before",)))
    answer = ask(view, driver_pod(ready=True, **NEW), validator(created=NOW - 1))
    assert answer.state is State.DONE
    assert answer.course is None
    (past,) = answer.history
    assert (past.spent, past.ending, past.out, past.gpus, past.before, past.to) == (
        (0, 3, 40, 10), Ending.DONE, NOW - ADMITTED, 8, "550", "560")


def test_earlier_upgrades_stay_as_long_as_there_is_room() -> None:
    before = [PastUpgrade(float(number), number + 10.0, to=f"5{number}", asked="x" * 60) for number in range(90, 60, -1)]
    memory = {names.UPGRADE_HISTORY: encode_history(before) or ""}
    view = node(state=State.VALIDATION_REQUIRED, cordoned=True, annotations=memory,
                **remembering(State.VALIDATION_REQUIRED, pods=("uid-before",)))
    answer = ask(view, driver_pod(ready=True, **NEW), validator(created=NOW - 1))
    text = answer.patch.annotations[names.UPGRADE_HISTORY]
    assert text is not None
    assert len(text.encode()) <= ROOM
    newest, *others = history_of(text)
    assert (newest.to, [one.to for one in others]) == ("560", [one.to for one in before[: len(others)]])


def test_a_cordon_that_somebody_lifts_ends_the_time_out_of_service() -> None:
    view = node(state=State.POD_DELETION_REQUIRED, **remembering(State.POD_DELETION_REQUIRED, since=NOW - 1))
    course = ask(view, driver_pod(), gpu_pod(), policy=build.PAUSED).course
    assert course is not None
    assert (course.out, course.was_out) == (0.0, NOW - ADMITTED)
    again = ask(view, driver_pod(), gpu_pod()).course
    assert again is not None
    assert (again.out, again.was_out) == (NOW, NOW - ADMITTED)


def test_somebody_elses_cordon_is_no_cost_of_the_upgrade() -> None:
    view = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED), cordoned=True)
    course = ask(view, driver_pod(), gpu_pod()).course
    assert course is not None
    assert (course.began, course.out) == (NOW, 0.0)


def test_a_node_that_another_operator_began_with_is_told_of_too() -> None:
    taken_over = under_way(State.VALIDATION_REQUIRED, pods=("uid-before",))
    answer = ask(taken_over, driver_pod(ready=True, **NEW), validator(created=NOW - 1))
    (past,) = answer.history
    assert (past.ending, past.began, past.out) == (Ending.DONE, ADMITTED, NOW - ADMITTED)


@pytest.mark.parametrize("gpu_pods", [0, 2])
def test_a_whole_rollout_leaves_one_entry_on_each_node(gpu_pods: int) -> None:
    end = world.rollout(build.fleet(3, gpu_pods=dict.fromkeys(range(3), gpu_pods)), policy())
    for each in end.end.nodes.values():
        (past,) = history_of(each.annotations.get(names.UPGRADE_HISTORY))
        assert (past.ending, past.evicted, past.failures) == (Ending.DONE, gpu_pods, 0)
        assert each.record is not None
        assert each.record.course is None
