"""What is gathered about a node: which pod is its driver, what it should run, who vouches for it, and who is managed at all."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.record import Record
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.node_decision import DecisionCache
from gpuward.upgrade.recovery import unvalidated as is_unvouched
from tests import build
from tests.build import ADMITTED, LONG_AGO, NOW, driver_pod, gpu_pod, node, policy, record, validator
from tests.upgrade.one import facts


def managed(snapshot: Snapshot) -> list[str]:
    return [each.node.name for each in gather(snapshot, build.policy())]


@pytest.mark.parametrize(
    ("view", "pods", "yes"),
    [
        (node(), [driver_pod()], True),
        (node(), [driver_pod(orphan=True)], True),
        (node(), [], False),
        (node(), [validator(), build.gpu_pod()], False),
        (node(state=State.DONE), [], True),
        (node(state=State.UPGRADE_REQUIRED), [], True),
        (build.under_way(State.POD_RESTART_REQUIRED), [], True),
        (build.under_way(State.FAILED), [], True),
        (node(remembers=record(State.POD_RESTART_REQUIRED, ours=True), cordoned=True), [], True),
        (node(remembers=record(State.UNKNOWN, forced=True)), [], False),
        (node(), [msgspec.structs.replace(driver_pod(), namespace="default")], False),
        (node(), [msgspec.structs.replace(driver_pod(), owner=build.gpu_pod().owner)], False),
    ],
)
def test_a_node_is_managed_with_a_driver_pod_an_upgrade_under_way_or_our_cordon(
    view: NodeView, pods: list[PodView], yes: bool
) -> None:
    assert managed(build.cluster([view], pods, selects={"gpu": "elsewhere"})) == (["n0"] if yes else [])
    assert managed(build.cluster([view], pods)) == ["n0"], "a DaemonSet that selects a node owes it a driver"


def test_managed_nodes_come_by_name() -> None:
    snapshot = build.cluster([build.node(name) for name in "cab"], [driver_pod(name) for name in "bca"])
    assert managed(snapshot) == ["a", "b", "c"]


def test_pods_of_a_deleted_node_concern_nobody() -> None:
    assert managed(build.cluster([build.node("n1")], [driver_pod("n0"), driver_pod("n1")])) == ["n1"]


@pytest.mark.weakness(17)
@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([driver_pod(name="a", deleting=True), driver_pod(name="b")], "b"),
        ([driver_pod(name="a", orphan=True, created=NOW), driver_pod(name="b")], "b"),
        ([driver_pod(name="a", created=LONG_AGO), driver_pod(name="b", created=NOW)], "b"),
        ([driver_pod(name="b"), driver_pod(name="a")], "a"),
        ([driver_pod(name="a", deleting=True), driver_pod(name="b", orphan=True)], "b"),
    ],
)
def test_of_several_driver_pods_the_one_that_stays_counts(pods: list[PodView], chosen: str) -> None:
    driver = facts(node(), *pods).driver
    assert driver is not None
    assert driver.name == chosen


@pytest.mark.weakness(14)
def test_the_target_is_the_newest_revision_of_that_very_daemonset() -> None:
    other = build.daemonset(name=build.DAEMONSET + "-2", uid="uid-other")
    snapshot = build.cluster([node()], [driver_pod()])
    snapshot = msgspec.structs.replace(
        snapshot,
        daemonsets=(*snapshot.daemonsets, other),
        revisions=(*snapshot.revisions, build.revision("570", 9, owner="uid-other"), build.revision("999", 99, owner="nobody")),
    )
    (mine,) = gather(snapshot, build.policy())
    assert mine.target == "560"


def test_a_daemonset_of_another_namespace_drives_nothing_here() -> None:
    stranger = msgspec.structs.replace(build.daemonset(name="a", uid="uid-a"), namespace="elsewhere")
    snapshot = build.cluster([node()], [driver_pod(orphan=True)])
    snapshot = msgspec.structs.replace(
        snapshot,
        daemonsets=(stranger, *snapshot.daemonsets),
        revisions=(*snapshot.revisions, build.revision("111", 9, owner="uid-a")),
    )
    (mine,) = gather(snapshot, build.policy())
    assert mine.target == "560"


def test_a_template_that_has_not_settled_is_no_target() -> None:
    mine = facts(node(), driver_pod(), settled=False)
    assert (mine.target, mine.in_step, mine.asked) == ("", False, False)


def test_a_pod_of_a_revision_that_no_watch_has_shown_yet_is_newer_than_all_that_is_known() -> None:
    assert facts(node(), driver_pod(driver="570")).target == ""
    assert facts(node(), driver_pod(driver="570", orphan=True)).target == "560"


def test_a_pod_older_than_the_newest_revision_is_outdated_though_its_own_is_gone() -> None:
    """A DaemonSet takes over pods that another one with the same selector left behind."""
    snapshot = build.cluster([node()], [driver_pod(driver="adopted", created=NOW - 60)])
    newest = snapshot.revisions[-1]
    dated = msgspec.structs.replace(snapshot, revisions=(*snapshot.revisions[:-1], msgspec.structs.replace(newest, created=NOW)))
    (gathered,) = gather(dated, policy())
    assert gathered.asked


@pytest.mark.parametrize(("of_pod", "asked"), [("1", True), ("2", False), ("3", False), ("", False), ("one", False)])
def test_a_pod_of_an_earlier_template_is_outdated_though_its_revision_is_gone(of_pod: str, asked: bool) -> None:
    """After a rollback the newest revision is older than the pods that have to go."""
    pod = driver_pod(driver="gone")
    pod = msgspec.structs.replace(pod, labels={**pod.labels, names.TEMPLATE_GENERATION: of_pod})
    snapshot = build.cluster([node()], [pod])
    daemonset = msgspec.structs.replace(snapshot.daemonsets[0], template_generation=2)
    (gathered,) = gather(msgspec.structs.replace(snapshot, daemonsets=(daemonset,)), policy())
    assert (gathered.asked, bool(gathered.target)) == (asked, asked)


def test_a_pod_without_a_hash_is_not_in_step_with_an_unknown_target() -> None:
    bare = msgspec.structs.replace(driver_pod(), labels={"app": names.DRIVER_APP})
    assert not facts(node(), bare, settled=False).in_step
    assert not facts(node(), bare).in_step


@pytest.mark.parametrize(
    ("pod", "in_step", "ready", "asked"),
    [
        (driver_pod(driver="560"), True, True, False),
        (driver_pod(driver="560", ready=False), True, False, False),
        (driver_pod(driver="560", deleting=True), True, False, False),
        (driver_pod(driver="550"), False, False, True),
        (driver_pod(driver="550", orphan=True), False, False, False),
        (driver_pod(driver="560", orphan=True), False, False, False),
    ],
)
def test_a_driver_pod_is_in_step_or_asks_for_an_upgrade(pod: PodView, in_step: bool, ready: bool, asked: bool) -> None:
    mine = facts(node(), pod)
    assert (mine.in_step, mine.driver_ready, mine.asked) == (in_step, ready, asked)


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({}, False),
        ({names.SAFE_LOAD: "true"}, True),
        ({names.SAFE_LOAD: "anything"}, True),
        ({names.SAFE_LOAD: ""}, False),
        ({names.UPGRADE_REQUESTED: "true"}, True),
        ({names.UPGRADE_REQUESTED: "True"}, False),
        ({names.UPGRADE_REQUESTED: ""}, False),
    ],
)
@pytest.mark.parametrize("orphan", [False, True])
def test_annotations_ask_for_an_upgrade_of_any_driver_pod(annotations: dict[str, str], asked: bool, orphan: bool) -> None:
    assert facts(node(annotations=annotations), driver_pod(driver="560", orphan=orphan)).asked is asked


FORCED = record(State.VALIDATION_REQUIRED, forced=True)


@pytest.mark.parametrize(
    ("remembers", "pods", "validated"),
    [
        (None, [driver_pod(driver="560"), validator()], True),
        (None, [driver_pod(driver="560"), validator(created=LONG_AGO - 1)], False),
        (None, [driver_pod(driver="560", created=NOW - 9.0), validator(created=NOW - 10.0)], False),
        (None, [driver_pod(driver="560", created=NOW - 9.0), validator(created=NOW - 9.0)], True),
        (None, [driver_pod(driver="560", ready=False), validator()], False),
        (None, [driver_pod(driver="550"), validator()], False),
        (None, [driver_pod(driver="560"), validator(ready=False)], False),
        (None, [driver_pod(driver="560"), validator(deleting=True)], False),
        (None, [driver_pod(driver="560"), validator(phase="Failed")], False),
        (None, [driver_pod(driver="560")], False),
        (FORCED, [driver_pod(driver="560"), validator()], False),
        (FORCED, [driver_pod(driver="560"), validator(created=ADMITTED)], True),
        (FORCED, [driver_pod(driver="560"), validator(created=ADMITTED - 1)], False),
    ],
)
def test_only_validators_that_saw_the_driver_of_now_confirm_it(
    remembers: Record | None, pods: list[PodView], validated: bool
) -> None:
    assert facts(node(remembers=remembers), *pods).validated is validated


def test_without_a_driver_every_validator_is_stale() -> None:
    assert len(facts(build.under_way(State.VALIDATION_REQUIRED), validator(created=NOW)).stale_validators) == 1


@pytest.mark.parametrize(
    ("mine", "theirs", "annotations", "forced", "restart_only"),
    [
        ("d1", "d1", {}, False, True),
        ("d1", "d2", {}, False, False),
        ("", "", {}, False, False),
        ("", "d1", {}, False, False),
        ("d1", "", {}, False, False),
        ("d1", "d1", {names.UPGRADE_REQUESTED: "true"}, False, False),
        ("d1", "d1", {names.SAFE_LOAD: "true"}, False, False),
        ("d1", "d1", {}, True, False),
    ],
)
def test_only_the_very_same_driver_configuration_is_a_mere_restart(
    mine: str, theirs: str, annotations: dict[str, str], forced: bool, restart_only: bool
) -> None:
    view = node(annotations=annotations, remembers=record(State.UPGRADE_REQUIRED, forced=forced))
    assert facts(view, driver_pod(config_digest=mine), digest=theirs).restart_only is restart_only


def test_an_orphan_is_never_merely_restarted() -> None:
    assert not facts(node(), driver_pod(config_digest="d", orphan=True), digest="d").restart_only


@pytest.mark.parametrize(
    ("phase", "selector", "labels", "running"),
    [
        ("Running", "app=job", {"app": "job"}, True),
        ("Pending", "app=job", {"app": "job"}, True),
        ("Succeeded", "app=job", {"app": "job"}, False),
        ("Failed", "app=job", {"app": "job"}, False),
        ("Unknown", "app=job", {"app": "job"}, False),
        ("Running", "app=job", {"app": "web"}, False),
        ("Running", "", {"app": "job"}, False),
    ],
)
def test_jobs_are_the_pods_of_the_selector_that_run(phase: str, selector: str, labels: dict[str, str], running: bool) -> None:
    mine = facts(node(), driver_pod(), build.pod(phase=phase, labels=labels), policy=build.policy(wait_for=selector))
    assert bool(mine.jobs) is running


@pytest.mark.parametrize(
    ("remembers", "unvalidated"),
    [
        (record(State.DONE), False),
        (record(State.UPGRADE_REQUIRED), False),
        (record(State.CORDON_REQUIRED), False),
        (record(State.DRAIN_REQUIRED), False),
        (record(State.POD_RESTART_REQUIRED), True),
        (record(State.VALIDATION_REQUIRED), True),
        (record(State.UNCORDON_REQUIRED), True),
        (record(State.FAILED), True),
        (record(State.FAILED, failed=State.POD_RESTART_REQUIRED), True),
        (record(State.FAILED, failed=State.POD_DELETION_REQUIRED), False),
        (record(State.UPGRADE_REQUIRED, failed=State.VALIDATION_REQUIRED), True),
    ],
)
def test_a_driver_is_unvouched_between_its_restart_and_its_validation(remembers: Record, unvalidated: bool) -> None:
    assert is_unvouched(facts(node(remembers=remembers), driver_pod())) is unvalidated


@pytest.mark.parametrize(("of_daemonset", "of_revision"), [("new", "old"), ("old", "new")])
def test_two_watches_that_tell_of_different_drivers_tell_of_no_target(of_daemonset: str, of_revision: str) -> None:
    """Either watch may lag. A new revision with the DaemonSet's old digest once passed for a mere restart, under running jobs."""
    snapshot = build.cluster([node()], [driver_pod(config_digest="old"), gpu_pod()], digest=of_revision)
    lagging = msgspec.structs.replace(snapshot, daemonsets=(build.daemonset(digest=of_daemonset),))
    (seen,) = gather(lagging, policy())
    assert not seen.target
    assert not seen.restart_only
    (agreed,) = gather(snapshot, policy())
    assert agreed.target == "560"


def test_a_memory_gathers_anew_only_what_changed_and_never_something_else() -> None:
    memory = DecisionCache()
    snapshot = build.fleet(nodes=3, gpu_pods={0: 1})
    first = gather(snapshot, policy(), memory)
    again = gather(msgspec.structs.replace(snapshot), policy(), memory)
    assert [one is two for one, two in zip(first, again, strict=True)] == [True] * 3
    relabelled = {**snapshot.nodes, "n1": msgspec.structs.replace(snapshot.nodes["n1"], unschedulable=True)}
    some = gather(msgspec.structs.replace(snapshot, nodes=relabelled), policy(), memory)
    assert [one is two for one, two in zip(first, some, strict=True)] == [True, False, True]
    assert some[1].unschedulable
    for changed, rules in (
        (snapshot, policy(force=True)),
        (msgspec.structs.replace(snapshot, revisions=()), policy()),
        (msgspec.structs.replace(snapshot, refusals={"x": Refusal(1.0, 1, "no")}), policy()),
        (build.fleet(nodes=2), policy()),
    ):
        assert gather(changed, rules, memory) == gather(changed, rules)


def test_the_time_in_a_state_that_was_entered_in_this_pass_is_not_up() -> None:
    here = facts(build.under_way(State.DRAIN_REQUIRED), driver_pod())
    entered = msgspec.structs.replace(here, state=State.POD_RESTART_REQUIRED)
    assert (here.just_entered, entered.just_entered) == (False, True)
    assert (here.is_overdue(NOW, NOW), here.is_overdue(NOW + 1, NOW), here.is_overdue(None, NOW)) == (True, False, False)
    assert not entered.is_overdue(NOW, NOW)
