"""Whole rollouts in a pure world: what people see from the change of a driver to the end of it."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.actions import DeletePod, EvictPod, PatchNode
from gpuward.model.explain import arguments
from gpuward.model.policy import DrainSettings
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, device_plugin, driver_pod, gpu_pod, node, policy, validator
from tests.upgrade import world

MAIN_ROUTE = [
    "upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required", "pod-restart-required",
    "validation-required", "uncordon-required", "upgrade-done",
]


def most_at_once(end: world.Rollout) -> int:
    return max(sum(view.state in IN_PROGRESS for view in snapshot.nodes.values()) for snapshot, _ in end.history)


def test_a_node_walks_the_main_route_and_every_state_is_an_event() -> None:
    end = world.rollout(build.fleet(1, gpu_pods={0: 2}), policy())
    assert end.entered("n0") == MAIN_ROUTE
    states = [message.rpartition(" ")[2] for message in end.messages if message.startswith("Successfully updated")]
    assert states == MAIN_ROUTE
    assert not end.end.nodes["n0"].unschedulable
    assert set(end.end.nodes["n0"].annotations) == {names.UPGRADE_RECORD, names.UPGRADE_HISTORY}


def test_a_node_costs_few_writes() -> None:
    end = world.rollout(build.fleet(1, gpu_pods={0: 2}), policy())
    actions = [action for _, plan in end.history for action in plan.actions]
    assert len([action for action in actions if isinstance(action, PatchNode)]) <= 4
    assert len([action for action in actions if isinstance(action, EvictPod)]) == 2
    assert len([action for action in actions if isinstance(action, DeletePod)]) == 2


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_no_more_than_allowed_are_under_way_at_once(parallel: int) -> None:
    end = world.rollout(build.fleet(7, gpu_pods={1: 1, 4: 2}), policy(parallel=parallel))
    assert most_at_once(end) == parallel
    assert {view.upgrade_label for view in end.end.nodes.values()} == {"upgrade-done"}


def test_a_quarter_of_the_fleet_may_be_out() -> None:
    end = world.rollout(build.fleet(8), policy(parallel=0, unavailable="25%"))
    assert most_at_once(end) == 2
    assert {view.upgrade_label for view in end.end.nodes.values()} == {"upgrade-done"}


@pytest.mark.weakness(5)
def test_one_failed_node_does_not_stop_the_others() -> None:
    end = world.rollout(build.fleet(5), policy(parallel=1), broken=["n1"])
    states = [view.state for view in end.end.nodes.values()]
    assert states == [State.DONE, State.FAILED, State.DONE, State.DONE, State.DONE]
    assert [name for name, view in end.end.nodes.items() if view.unschedulable] == ["n1"]
    assert arguments(build.hold_of(end.plan, "n1").what)["step"] == "pod-restart-required"


def test_a_failed_node_is_named_where_it_uses_up_what_may_be_out() -> None:
    end = world.rollout(build.fleet(5), policy(parallel=1, unavailable=1), broken=["n1"])
    assert build.hold_of(end.plan, "n2").reason is Reason.NO_NODE_MAY_START
    assert arguments(build.hold_of(end.plan, "n2").what)["nodes"] == "n1"


def test_a_fixed_driver_repairs_what_failed() -> None:
    failed = world.rollout(build.fleet(2), policy(parallel=2), broken=["n0", "n1"])
    assert {view.upgrade_label for view in failed.end.nodes.values()} == {"upgrade-failed"}
    end = world.rollout(world.retarget(failed.end, "570"), policy(), now=NOW + 1000)
    assert {view.upgrade_label for view in end.end.nodes.values()} == {"upgrade-done"}
    assert not any(view.unschedulable for view in end.end.nodes.values())


def test_a_driver_that_crashed_is_not_taken_for_good_because_the_target_went_back_to_it() -> None:
    failed = world.rollout(build.fleet(1), policy(), broken=["n0"])
    queued = world.rollout(world.retarget(failed.end, "570"), policy(admit=False), now=NOW + 1000, broken=["n0"])
    assert queued.end.nodes["n0"].upgrade_label == "upgrade-required"
    end = world.rollout(world.retarget(queued.end, "560"), policy(), now=NOW + 2000)
    assert "validation-required" in end.entered("n0")
    assert all(pod.ready and not pod.restarts for pod in end.end.pods["n0"])
    assert not end.end.nodes["n0"].unschedulable


def test_going_back_to_the_old_driver_repairs_what_failed_and_leaves_the_rest_alone() -> None:
    snapshot = build.fleet(4, gpu_pods={3: 1})
    failed = world.rollout(snapshot, policy(unavailable=1), broken=["n0"])
    assert failed.end.nodes["n3"].upgrade_label == "upgrade-required"
    end = world.rollout(world.retarget(failed.end, "550"), policy(unavailable=1), now=NOW + 1000)
    assert {view.upgrade_label for view in end.end.nodes.values()} == {"upgrade-done"}
    assert end.entered("n3") == ["upgrade-done"]
    assert [pod.name for pod in end.end.pods["n3"] if pod.uses_gpu] == ["train-n3-0"]


@pytest.mark.weakness(9)
def test_a_target_rolled_back_in_the_middle_evicts_nobody_more() -> None:
    snapshot = build.fleet(3, gpu_pods={0: 1, 1: 1, 2: 1})
    jobs = policy(parallel=2, wait_for="app=none")
    begun = world.apply(snapshot, [a for a in decide(snapshot, jobs, NOW).actions if isinstance(a, PatchNode)])
    end = world.rollout(world.retarget(begun, "550"), jobs, now=NOW + 1)
    assert [action for _, plan in end.history for action in plan.actions if not isinstance(action, PatchNode)] == []
    assert {view.upgrade_label for view in end.end.nodes.values()} == {"upgrade-done"}
    assert not any(view.unschedulable for view in end.end.nodes.values())


def test_a_newer_target_in_the_middle_is_taken_up_without_a_second_cordon() -> None:
    snapshot = build.fleet(1)
    for _ in range(2):
        snapshot = world.turn(world.apply(snapshot, decide(snapshot, policy(), NOW).actions), NOW)
    end = world.rollout(world.retarget(snapshot, "570"), policy(), now=NOW + 1)
    (driver,) = [pod for pod in end.end.pods["n0"] if pod.labels["app"] == names.DRIVER_APP]
    assert driver.revision == "570"
    assert "cordon-required" not in end.entered("n0")


def test_jobs_are_waited_for_and_then_evicted_at_their_timeout() -> None:
    job = gpu_pod(name="job", owner="Job", labels={"app": "job"})
    end = world.rollout(build.cluster([node()], [driver_pod(), validator(), job]), policy(wait_for="app=job", wait_timeout=120))
    assert end.entered("n0") == MAIN_ROUTE
    assert end.now >= NOW + 120
    waits = [plan.nodes["n0"].hold for _, plan in end.history]
    assert next(hold.reason for hold in waits if hold) is Reason.JOBS_RUNNING


def test_a_drain_takes_what_pod_deletion_may_not() -> None:
    snapshot = build.cluster([node()], [driver_pod(), validator(), gpu_pod(owner=None), build.pod()])
    end = world.rollout(snapshot, policy(drain=DrainSettings(enable=True, force=True)))
    assert end.entered("n0") == [*MAIN_ROUTE[:4], "drain-required", *MAIN_ROUTE[4:]]
    assert [pod.labels["app"] for pod in end.end.pods["n0"]] == [names.DRIVER_APP, names.VALIDATOR_APP]


def test_the_same_driver_under_another_template_disturbs_no_workload() -> None:
    snapshot = build.cluster([node()], [driver_pod(config_digest="d"), validator(), device_plugin(), gpu_pod()], digest="d")
    end = world.rollout(snapshot, policy())
    assert end.entered("n0") == ["upgrade-required", "pod-restart-required", *MAIN_ROUTE[5:]]
    assert "train" in [pod.name for pod in end.end.pods["n0"]]


def test_a_driver_that_waits_for_an_empty_node_gets_it() -> None:
    loading = driver_pod(driver="560", ready=False)
    snapshot = build.cluster([node(annotations={names.SAFE_LOAD: "true"})], [loading, validator(ready=False), gpu_pod()])
    end = world.rollout(snapshot, policy())
    assert end.entered("n0") == MAIN_ROUTE
    assert loading.name in [pod.name for pod in end.end.pods["n0"]]
    deleted = [a.pod.name for _, plan in end.history for a in plan.actions if isinstance(a, DeletePod)]
    assert loading.name not in deleted
    assert names.SAFE_LOAD not in end.end.nodes["n0"].annotations


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_relabelled_by_hand_is_upgraded_again(ready: bool) -> None:
    done = world.rollout(build.fleet(1), policy()).end
    pods = [driver_pod(driver="560", ready=ready), validator()]
    again = world.relabel(world.with_pods(done, "n0", pods), "n0", "upgrade-required")
    end = world.rollout(again, policy(), now=NOW + 500)
    assert end.entered("n0") == MAIN_ROUTE[1:]
    assert all(pod.ready for pod in end.end.pods["n0"])
    replaced = [a.pod.name for _, plan in end.history for a in plan.actions if isinstance(a, DeletePod)]
    assert replaced == (["validator-n0"] if ready else ["driver-560-n0", "validator-n0"])


def test_an_orphan_is_replaced_when_somebody_asks() -> None:
    orphan = driver_pod(driver="550", orphan=True)
    quiet = world.rollout(build.cluster([node()], [orphan, validator()]), policy())
    assert quiet.entered("n0") == ["upgrade-done"]
    asked = world.annotate(quiet.end, "n0", names.UPGRADE_REQUESTED, "true")
    end = world.rollout(asked, policy(), now=NOW + 500)
    (driver,) = [pod for pod in end.end.pods["n0"] if pod.labels["app"] == names.DRIVER_APP]
    assert (driver.revision, driver.orphan) == ("560", False)
    assert names.UPGRADE_REQUESTED not in end.end.nodes["n0"].annotations


def test_a_node_deleted_in_the_middle_gives_back_its_slot() -> None:
    snapshot = build.fleet(2, gpu_pods={0: 1, 1: 1})
    begun = world.apply(snapshot, decide(snapshot, policy(), NOW).actions)
    assert begun.nodes["n0"].state is State.POD_DELETION_REQUIRED
    gone = world.replace(begun, nodes={"n1": begun.nodes["n1"]})
    end = world.rollout(gone, policy(), now=NOW + 1)
    assert end.end.nodes["n1"].state is State.DONE


@pytest.mark.weakness(20)
def test_a_node_that_is_not_ready_waits_and_the_others_go_on() -> None:
    end = world.rollout(build.fleet(3, not_ready=[1]), policy())
    assert end.end.nodes["n1"].state is State.UPGRADE_REQUIRED
    assert build.hold_of(end.plan, "n1").reason is Reason.NODE_NOT_READY
    assert [end.end.nodes[name].state for name in ("n0", "n2")] == [State.DONE, State.DONE]
    later = world.rollout(world.set_ready(end.end, "n1", True), policy(), now=NOW + 500)
    assert later.end.nodes["n1"].state is State.DONE
