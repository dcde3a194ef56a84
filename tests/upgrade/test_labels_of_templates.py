"""Templates that differ from one another in labels and annotations only: nothing is restarted for them."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import ask

OLD, NEW = driver_pod(), driver_pod(driver="560", created=NOW - 30)
FRESH = validator(created=NOW - 20)
ALIKE = ["550", "560"]


@pytest.mark.weakness(15)
@pytest.mark.parametrize("state", [State.UNKNOWN, State.DONE])
def test_a_driver_pod_that_lacks_only_labels_runs_on_and_that_is_said(state: State) -> None:
    answer = ask(node(state=state), OLD, validator(), gpu_pod(), alike=ALIKE)
    assert (answer.state, answer.reason) == (State.DONE, Reason.METADATA_BEHIND)
    assert (answer.evicted, answer.deleted) == ([], [])
    settled = ask(node(state=State.DONE, remembers=record(State.DONE)), OLD, validator(), alike=ALIKE)
    assert (settled.plan.actions, settled.plan.wake_at) == ((), None)


def test_it_is_not_said_of_a_driver_pod_that_is_not_ready_or_of_another_kind() -> None:
    assert ask(node(state=State.DONE), driver_pod(ready=False), validator(), alike=ALIKE).reason is Reason.DRIVER_STARTING
    assert ask(node(state=State.DONE), NEW, FRESH, alike=ALIKE).reason is None
    other = ask(node(state=State.DONE), driver_pod(driver="540"), alike=ALIKE, policy=policy(unavailable=0))
    assert other.entered == ["upgrade-required"]


def test_templates_of_which_nothing_is_known_are_not_alike() -> None:
    snapshot = build.cluster([node()], [OLD])
    strange = tuple(msgspec.structs.replace(revision, pod_digest="") for revision in snapshot.revisions)
    assert decide(msgspec.structs.replace(snapshot, revisions=strange), policy(), NOW).nodes["n0"].state is not State.DONE


def relabelled(snapshot: Snapshot, like: str, new: str) -> Snapshot:
    """Let somebody change a label in the template whose pods are those of the driver `like`."""
    digest = next(revision.pod_digest for revision in snapshot.revisions if revision.hash == like)
    newest = build.revision(new, 1 + max(revision.revision for revision in snapshot.revisions), pods=digest)
    return msgspec.structs.replace(snapshot, revisions=(*snapshot.revisions, newest))


@pytest.mark.parametrize("passes", range(6))
def test_a_label_that_changes_in_mid_upgrade_costs_no_second_restart(passes: int) -> None:
    snapshot, now = build.fleet(1, gpu_pods={0: 1}), NOW
    for _ in range(passes):
        snapshot, now = world.turn(world.apply(snapshot, decide(snapshot, policy(), now).actions), now), now + 1
    end = world.rollout(relabelled(snapshot, "560", "560b"), policy(), now=now)
    driver_pods = {pod.uid for before, _ in end.history for pod in before.pods["n0"] if pod.revision.startswith("56")}
    assert end.plan.nodes["n0"].state is State.DONE
    assert len(driver_pods) == 1
    assert not end.end.nodes["n0"].unschedulable


def test_a_target_that_goes_back_to_the_old_driver_under_other_labels_is_a_rollback() -> None:
    answer = ask(under_way(State.POD_DELETION_REQUIRED, target="540"), OLD, gpu_pod(), alike=ALIKE)
    assert answer.entered[:2] == ["uncordon-required", "upgrade-done"]
    assert answer.patch.unschedulable is False


def test_a_failed_node_gets_no_new_chance_from_a_new_label() -> None:
    failed = under_way(State.FAILED, failed=State.POD_RESTART_REQUIRED, target="550")
    crashing = driver_pod(ready=False, restarts=11)
    once = policy(rollout=RolloutSettings(retries=0))
    assert ask(failed, crashing, alike=ALIKE, policy=once).plan.actions == ()
    assert ask(failed, crashing, policy=once).entered[0] == "upgrade-required"


def test_a_node_that_waits_leaves_the_queue_when_only_labels_are_left_to_change() -> None:
    waiting = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED))
    assert ask(waiting, OLD, alike=ALIKE).entered == ["upgrade-done"]


def test_validation_goes_on_under_new_labels() -> None:
    pod = driver_pod(created=NOW - 30)
    assert ask(under_way(State.VALIDATION_REQUIRED, target="550"), pod, FRESH, alike=ALIKE).entered[-1] == "upgrade-done"
