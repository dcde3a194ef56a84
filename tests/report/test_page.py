"""What the page is made from: the document of `status`, what ended lately, and commands that do what they say."""

from __future__ import annotations

import json
import shlex

import msgspec

from gpuward import names
from gpuward.model.plan import Hold, Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.waits import FailureBudgetSpent
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.report.document import document
from gpuward.report.page import Ended, Leading, RolloutHistory, page_document, waiting_document
from tests import build
from tests.report.fleets import Fleet, rollout

LEADS = Leading("operator-1", True, "operator-1")
NOTHING = RolloutHistory(build.NOW)


def told(fleet: Fleet, history: RolloutHistory = NOTHING) -> dict[str, object]:
    return page_document(*fleet, LEADS, history)


def commands(fleet: Fleet) -> list[str]:
    found = page_document(*fleet, LEADS, NOTHING)["commands"]
    return [one["command"] for one in found]


def test_it_holds_what_status_prints() -> None:
    fleet = rollout(100)
    page = told(fleet)
    plan = fleet.plan.as_labelled(fleet.snapshot.nodes)
    status = document(plan, fleet.snapshot, fleet.policies, LEADS.as_json())
    assert {key: page[key] for key in status} == status
    assert page["headline"] == "ClusterPolicy cluster-policy: 34 of 100 nodes up to date, 1 failed, 1 held"
    assert page["rollout"]["reason"] == "Progressing"  # type: ignore[index]  # JSON


def test_nodes_that_ended_are_told_with_how_long_they_took() -> None:
    history = RolloutHistory(build.NOW - 60, 2, 1, (Ended("b", build.NOW, True), Ended("a", build.NOW - 5, False, 61.7)))
    assert told(rollout(2), history)["history"] == {
        "since": "2023-11-14T22:12:20.000Z", "finished": 2, "failed": 1, "last": [
            {"node": "b", "at": "2023-11-14T22:13:20.000Z", "failed": True, "seconds": None},
            {"node": "a", "at": "2023-11-14T22:13:15.000Z", "failed": False, "seconds": 62}]}


def switched_off(fleet: Fleet, **annotations: str) -> Fleet:
    """Return a fleet whose upgrades are off."""
    (view,) = fleet.snapshot.policies
    view.body["spec"]["driver"]["upgradePolicy"]["autoUpgrade"] = False
    view.body["metadata"]["annotations"] = annotations
    return Fleet(fleet.plan, fleet.snapshot, PolicyReader().read(fleet.snapshot))


def test_the_first_command_turns_upgrades_off_or_on_again() -> None:
    assert commands(rollout(12))[0] == "gpuward pause"
    assert commands(switched_off(rollout(12), **{names.PAUSED_AT: "2026-01-02T03:04:05Z"}))[0] == "gpuward resume"
    *words, body = shlex.split(commands(switched_off(rollout(12)))[0])
    assert words == ["kubectl", "patch", "clusterpolicy", "cluster-policy", "--type", "merge", "-p"]
    assert json.loads(body) == {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": True}}}}


def test_commands_name_the_node_to_look_at_first_and_the_namespace() -> None:
    fleet = rollout(12)
    elsewhere = msgspec.structs.replace(fleet.snapshot, namespace="gpus")
    assert "gpuward explain gpu-0005" in commands(fleet)
    assert "gpuward explain gpu-0005 -n gpus" in commands(Fleet(fleet.plan, elsewhere, fleet.policies))


def test_a_hostile_name_stays_one_word_of_a_command() -> None:
    evil = "'; rm -rf ~; echo '"
    explain = next(one for one in commands(rollout(12, name=evil + "{}")) if one.startswith("gpuward explain"))
    assert shlex.split(explain) == ["gpuward", "explain", evil + "5"]
    patch, *_ = commands(switched_off(rollout(12, policy=evil)))
    assert shlex.split(patch)[3] == evil


def test_resume_is_offered_where_it_ends_something() -> None:
    assert "gpuward resume" not in commands(rollout(12))
    fleet = rollout(12)
    stopped = {name: msgspec.structs.replace(node, hold=Hold(FailureBudgetSpent(4, 3, 12, ("gpu-0005",))))
               for name, node in fleet.plan.nodes.items()}
    plan = msgspec.structs.replace(fleet.plan, nodes=stopped)
    assert "gpuward resume" in commands(Fleet(plan, fleet.snapshot, fleet.policies))


def test_a_cluster_without_a_policy_says_so_and_offers_no_switch() -> None:
    snapshot = Snapshot(build.NAMESPACE)
    page = page_document(Plan(), snapshot, PoliciesInForce(PolicyReader().read(snapshot).policy), LEADS, NOTHING)
    assert page["rollout"]["message"] == "no ClusterPolicy is in force: no driver is managed", "there is no condition to look at"
    assert page["headline"] == "no ClusterPolicy: nothing is managed (`gpuward check` says what to do)"
    assert [one["command"] for one in page["commands"]] == ["gpuward status --watch"]


def test_a_process_that_stands_by_says_who_leads() -> None:
    page = waiting_document(Leading("operator-2", False, "operator-1"), build.NAMESPACE)
    assert page == {"operator": {"process": "operator-2", "leads": False, "holder": "operator-1", "own": False},
                    "namespace": build.NAMESPACE, "nodes": None}
