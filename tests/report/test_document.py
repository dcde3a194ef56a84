"""What programs read about a fleet."""

from __future__ import annotations

import json

import msgspec

from gpuward import names
from gpuward.report.document import document
from gpuward.report.nodes import node_reports, pool_of
from tests import build
from tests.report.fleets import NEW, OLD, STUCK, rollout


def test_a_fleet_in_a_rollout_is_told_node_by_node_and_in_sums_that_agree() -> None:
    fleet = rollout(100)
    told = json.loads(json.dumps(document(*fleet, {"running": True})))
    nodes = {node["name"]: node for node in told["nodes"]}
    assert list(nodes) == sorted(fleet.snapshot.nodes)
    assert sum(group["nodes"] for group in told["groups"]) == told["counts"]["total"] == 100
    assert (told["clusterPolicy"], told["problems"], told["operator"]) == ("cluster-policy", [], {"running": True})
    failed, waits, done = nodes["gpu-0005"], nodes["gpu-0001"], nodes["gpu-0003"]
    assert (failed["group"], failed["state"], failed["pool"]) == ("failed", "upgrade-failed", "NVIDIA-H100-80GB-HBM3")
    assert "llama-7b-0 was not evicted" in failed["message"]
    assert (waits["driver"], waits["upToDate"]) == ({"loaded": OLD, "doubtful": False, "wanted": NEW}, False)
    assert done["driver"] == {"loaded": NEW, "doubtful": False, "wanted": NEW}
    assert (done["group"], done["upToDate"]) == ("up to date", True)


def test_operands_say_which_pod_is_stuck_and_whether_an_upgrade_explains_it() -> None:
    told = {one["daemonSets"][0]: one for one in document(*rollout(100), {})["operands"]}
    stuck = told[STUCK]
    assert (stuck["ready"], stuck["desired"], stuck["explainedByUpgrade"]) == (99, 100, False)
    assert (stuck["stuck"]["node"], stuck["stuck"]["reason"]) == (
        "gpu-0001", "CrashLoopBackOff, 7 restarts, its last exit code was 1")
    driver = told["nvidia-driver-daemonset"]
    assert (driver["ready"], driver["desired"], driver["explainedByUpgrade"]) == (99, 100, True)
    assert driver["stuck"]["node"] == "gpu-0004"


def test_chosen_nodes_change_no_sum() -> None:
    fleet = rollout(12)
    every = document(*fleet, {})
    chosen = document(*fleet, {}, node_reports(*fleet)[:2], "look elsewhere")
    assert len(chosen["nodes"]) == 2
    assert {key: chosen[key] for key in ("counts", "groups", "operands")} == {
        key: every[key] for key in ("counts", "groups", "operands")}
    assert chosen["problems"] == ["look elsewhere"]


def test_a_node_belongs_to_its_nvidia_driver_and_else_to_its_product() -> None:
    product = {names.GPU_PRODUCT: "Tesla-T4"}
    assert pool_of(build.node(labels=product)) == "Tesla-T4"
    assert pool_of(build.node(labels={**product, names.DRIVER_OWNER: "inference"})) == "NVIDIADriver inference"
    assert pool_of(build.node()) == ""


def test_a_policy_whose_upgrades_cannot_be_decided_is_a_problem() -> None:
    plan, snapshot, policies = rollout(12)
    troubled = msgspec.structs.replace(plan, troubles={"inference": "KeyError: 'x'"})
    assert document(troubled, snapshot, policies, {})["problems"] == [
        "no upgrade under NVIDIADriver inference can be decided: KeyError: 'x'"]
