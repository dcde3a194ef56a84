"""Nodes that are not under way: what keeps one from being up to date is said, whatever its label says."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.explain import sentence
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.remedies import remedies
from tests import build
from tests.build import ADMITTED, NOW, PAUSED, driver_pod, gpu_pod, node, policy, record, validator
from tests.upgrade import world
from tests.upgrade.one import ask

DRIVER = driver_pod(driver="560", created=ADMITTED)
SEEN = validator(created=ADMITTED + 5)
UNPLACED = driver_pod("", "560", ready=False, waiting="Unschedulable", meant_for="n0")
REST = [State.UNKNOWN, State.DONE]
replace = msgspec.structs.replace


@pytest.mark.parametrize("rules", [policy(), PAUSED], ids=["on", "off"])
@pytest.mark.parametrize("state", REST)
@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], Reason.DRIVER_POD_MISSING),
        ([replace(DRIVER, deleting=True)], Reason.DRIVER_STOPPING),
        ([replace(DRIVER, ready=False, waiting="PodInitializing")], Reason.DRIVER_STARTING),
        ([UNPLACED], Reason.DRIVER_UNPLACED),
        ([replace(DRIVER, ready=False, waiting="ImagePullBackOff")], Reason.DRIVER_FAILING),
        ([replace(DRIVER, ready=False, restarts=3), SEEN], Reason.DRIVER_FAILING),
        ([replace(DRIVER, orphan=True, owner=None), SEEN], Reason.DRIVER_ORPHANED),
        ([DRIVER], Reason.VALIDATOR_MISSING),
        ([DRIVER, replace(SEEN, ready=False)], Reason.VALIDATOR_STARTING),
        ([DRIVER, SEEN], None),
    ],
)
def test_a_node_at_rest_says_what_keeps_it_from_being_up_to_date(
    pods: list[PodView], reason: Reason | None, state: State, rules: UpgradePolicy
) -> None:
    answer = ask(node(state=state), *pods, policy=rules)
    assert answer.reason is reason
    assert answer.plan.counts.up_to_date == (reason is None)
    assert answer.plan.counts.total == 1
    assert answer.others == ()


@pytest.mark.parametrize("state", REST)
def test_a_second_driver_pod_is_told_of_a_node_that_is_up_to_date(state: State) -> None:
    """It takes the driver along when it goes, and nothing replaces it by itself."""
    answer = ask(node(state=state), DRIVER, driver_pod(name="left-behind", orphan=True), SEEN, policy=policy())
    assert answer.reason is Reason.TWO_DRIVER_PODS
    assert answer.others == ()


def test_a_new_node_is_not_done_before_its_driver_pod_is_there() -> None:
    assert ask(node(), UNPLACED).state is State.UNKNOWN
    assert ask(node(), replace(DRIVER, ready=False)).state is State.DONE


def test_a_driver_of_another_template_is_not_up_to_date() -> None:
    assert ask(node(state=State.DONE), driver_pod(), validator(), policy=policy(unavailable=0)).plan.counts.up_to_date == 0


@pytest.mark.parametrize("state", REST)
def test_an_older_driver_that_serves_is_not_said_to_start_while_upgrades_are_off(state: State) -> None:
    answer = ask(node(state=state), driver_pod(), validator(), policy=PAUSED)
    assert answer.reason is Reason.PAUSED
    assert answer.plan.counts.up_to_date == 0


def test_a_driver_that_fails_is_named_with_what_is_wrong_since_when_and_what_would_help() -> None:
    stuck = replace(DRIVER, ready=False, waiting="ImagePullBackOff", restarts=7, turned=NOW - 300)
    snapshot = build.cluster([node(state=State.DONE)], [stuck, gpu_pod()])
    answer = ask(node(state=State.DONE), stuck, gpu_pod())
    assert sentence(answer.hold) == f"waits for driver pod {stuck.name}, which does not start: ImagePullBackOff, 7 restarts"
    assert answer.hold.since == NOW - 300
    mend, ask_for = remedies(snapshot, policy(), NOW, "n0")
    assert mend.do == f"mend what keeps driver pod {stuck.name} from starting"
    assert mend.commands == (f"kubectl describe pod {stuck.name} -n {stuck.namespace}",)
    assert ask_for.commands == ("kubectl annotate node n0 nvidia.com/gpu-driver-upgrade-requested=true --overwrite",)


def test_a_validator_that_stood_beside_another_driver_pod_is_replaced() -> None:
    done = node(state=State.DONE, remembers=record(State.DONE, pods=(DRIVER.uid, SEEN.uid)))
    newer = replace(DRIVER, uid="uid-newer", created=NOW - 40)
    answer = ask(done, newer, SEEN)
    assert (answer.reason, answer.deleted) == (Reason.VALIDATOR_REPLACING, [SEEN.name])
    assert answer.plan.counts.up_to_date == 0
    assert ask(done, replace(newer, ready=False), SEEN).deleted == [], "the new driver comes first"
    assert ask(done, newer, validator(created=NOW - 30)).plan.counts.up_to_date == 1


def test_a_driver_pod_that_came_in_the_queue_and_does_not_load_keeps_its_node_there_until_the_node_is_emptied() -> None:
    queued = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED, pods=("uid-old",), target="550"))
    stuck = driver_pod(driver="560", created=NOW - 60, ready=False, config_digest="d")
    held = ask(queued, stuck, gpu_pod(), digest="d", policy=policy(admit=False))
    assert (held.state, held.plan.counts.up_to_date) == (State.UPGRADE_REQUIRED, 0)
    assert ask(queued, stuck, gpu_pod(), digest="d").evicted == ["train"]
    end = world.rollout(build.cluster([queued], [stuck, validator(), gpu_pod()], digest="d"), policy())
    assert end.plan.counts.up_to_date == 1
    loaded = ask(queued, replace(stuck, ready=True), validator(created=NOW - 10), gpu_pod(), digest="d")
    assert (loaded.entered, loaded.evicted) == (["upgrade-done"], [])


def test_a_target_that_went_back_in_the_queue_disturbs_nobody_though_the_driver_pod_is_not_ready_for_a_moment() -> None:
    old = driver_pod(ready=False)
    queued = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED, pods=(old.uid,)))
    answer = ask(queued, old, gpu_pod(), target="550")
    assert (answer.entered, answer.evicted, answer.reason) == ([], [], Reason.DRIVER_STARTING)
    assert ask(queued, replace(old, ready=True), gpu_pod(), target="550").entered == ["upgrade-done"]


FAILURE = Failure(State.VALIDATION_REQUIRED, "it broke", ADMITTED, driver=DRIVER.uid)
ONCE = policy(rollout=RolloutSettings(retries=0))


def failed(failure: Failure) -> NodeView:
    return node(state=State.FAILED, remembers=replace(record(State.FAILED, ours=True), failure=failure), cordoned=True)


@pytest.mark.parametrize(
    ("failure", "driver", "goes_on"),
    [
        (FAILURE, DRIVER, False),
        (FAILURE, replace(DRIVER, uid="another"), True),
        (FAILURE, replace(DRIVER, uid="another", ready=False), False),
        (replace(FAILURE, state=State.POD_RESTART_REQUIRED), DRIVER, True),
        (replace(FAILURE, driver=""), DRIVER, False),
    ],
    ids=["the same", "replaced by hand", "replaced and not ready", "it got ready after all", "not known"],
)
def test_a_failed_node_whose_driver_was_not_ready_then_is_validated(failure: Failure, driver: PodView, goes_on: bool) -> None:
    answer = ask(failed(failure), driver, validator(created=ADMITTED - 60), policy=ONCE)
    assert (answer.state is State.VALIDATION_REQUIRED) is goes_on


def test_the_reason_of_a_failed_node_does_not_stop_at_a_pod_that_is_gone() -> None:
    replaced = replace(DRIVER, uid="another", name="driver-new", ready=False, waiting="ErrImagePull")
    assert sentence(ask(failed(FAILURE), replaced, policy=ONCE).hold) == (
        "failed in validation-required: it broke; its driver pod is driver-new now, not ready: ErrImagePull")
    assert sentence(ask(failed(FAILURE), policy=ONCE).hold).endswith("; it has no driver pod now")
