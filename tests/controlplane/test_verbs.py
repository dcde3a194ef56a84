"""What the verbs of the command line and a bug report do at a real API server."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools.controlplane.controlplane import BIN, RELEASE
from tools.controlplane.programs import NEWEST, RELEASES

from gpuward import names
from gpuward.cli.inspection import needed
from tests.controlplane.few import few_nodes
from tests.controlplane.plane import OPERATOR, Plane, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.xdist_group("few nodes")]

OFF = "{.spec.driver.upgradePolicy.autoUpgrade}"
STATE = names.UPGRADE_STATE.replace(".", r"\.")


@pytest.fixture(scope="module")
def verbs(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a control plane with two GPU nodes and an operator running."""
    with few_nodes(tmp_path_factory.mktemp("verbs") / "run", nodes=2) as plane, plane.operator():
        plane.policy_ready()
        yield plane


def gpu_node(plane: Plane) -> str:
    return str(min(node["metadata"]["name"] for node in plane.get("nodes", "-l", f"{names.GPU_PRESENT}=true")["items"]))


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:gz") as tar:
        found = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in found.items() if file is not None}


def test_a_pause_and_its_end(verbs: Plane) -> None:
    assert "upgrades are off (" in verbs.gpuward("pause")
    assert verbs.kubectl("get", "clusterpolicy/cluster-policy", "-o", f"jsonpath={OFF}") == "false"
    assert "upgrades are off already, since " in verbs.gpuward("pause")
    assert "upgrades are on again" in verbs.gpuward("resume")
    assert verbs.kubectl("get", "clusterpolicy/cluster-policy", "-o", f"jsonpath={OFF}") == "true"
    nodes = [node["metadata"]["name"] for node in verbs.get("nodes", "-l", f"{names.GPU_PRESENT}=true")["items"]]
    eventually("all are done again", lambda: all(state(verbs, node) == "upgrade-done" for node in nodes))
    assert "there is nothing to resume" in verbs.gpuward("resume")


def test_upgrades_that_a_person_has_turned_off_since_a_pause_stay_off(verbs: Plane) -> None:
    verbs.gpuward("pause")
    for value in (True, False):
        verbs.change_policy(upgradePolicy={"autoUpgrade": value})
    assert "upgrades are off, and not by `gpuward pause`" in verbs.gpuward("resume")
    verbs.change_policy(upgradePolicy={"autoUpgrade": True})


def state(plane: Plane, node: str) -> str:
    return plane.kubectl("get", "node", node, "-o", f"jsonpath={{.metadata.labels.{STATE}}}")


def test_a_node_is_skipped_and_tried_again(verbs: Plane) -> None:
    node = gpu_node(verbs)
    assert f"{node} is skipped; next: " in verbs.gpuward("skip", node)
    assert verbs.gpuward("skip", node) == f"{node} is skipped already: nothing is written\n"
    assert f"{node} is no longer skipped; next: " in verbs.gpuward("skip", "--undo", node)
    verbs.kubectl("label", "node", node, f"{names.UPGRADE_STATE}=upgrade-failed", f"{names.UPGRADE_SKIP}=true", "--overwrite")
    if state(verbs, node) == "upgrade-failed":  # the operator validates it again at once if it is faster
        verbs.gpuward("retry", node)
    verbs.gpuward("skip", "--undo", node)
    eventually("it is done again", lambda: state(verbs, node) == "upgrade-done")


def test_a_bug_report_only_reads_and_no_secrets(verbs: Plane, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with verbs.audited() as asked:
        verbs.gpuward("bug-report", "-o", str(path))
    ours = [entry for entry in asked if entry["userAgent"] == "gpuward" and entry["user"]["username"] != OPERATOR]
    assert {entry["verb"] for entry in ours} == {"get", "list", "watch"}
    assert [entry for entry in ours if (entry.get("objectRef") or {}).get("resource") == "secrets"] == []
    found = members(path)
    assert len(json.loads(found["cluster/nodes.json"])["items"]) >= 2
    assert len(json.loads(found["status.json"])["nodes"]) == 2
    assert json.loads(found["manifest.json"])["kubernetes"].startswith("v1.")
    told = [line for line in found["errors.txt"].decode().splitlines() if not line.startswith(("recordings: ", "log of "))]
    assert told == [], "the logs of pods that kwok plays are nowhere"


def test_a_bug_report_of_somebody_who_may_not_read_everything(verbs: Plane, tmp_path: Path) -> None:
    verbs.kubectl("create", "rolebinding", "reader", "-n", names.DEFAULT_NAMESPACE, "--clusterrole=view", "--user=reader")
    config = yaml.safe_load(verbs.kubeconfig.read_text())
    for user in config["users"]:
        user["user"]["as"] = "reader"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    path = tmp_path / "report.tar.gz"
    told = verbs.gpuward("bug-report", "-o", str(path), "--kubeconfig", str(kubeconfig))
    assert "things are not in it" in told
    found = members(path)
    assert "nodes: 403 Forbidden: " in found["errors.txt"].decode()
    assert "cluster/nodes.json" not in found
    assert json.loads(found["namespace/daemonsets.json"])["items"]


@pytest.mark.skipif(BIN in os.environ, reason=f"nobody knows of which release the programs in {BIN} are")
def test_the_api_server_is_of_the_release_that_was_asked_for(verbs: Plane) -> None:
    version = json.loads(verbs.kubectl("get", "--raw", "/version"))
    release = os.environ.get(RELEASE, NEWEST)
    assert version["gitVersion"] == RELEASES[release]
    assert f"{version['major']}.{version['minor']}" == release


def test_a_check_knows_the_operator_its_rights_and_its_crds(verbs: Plane) -> None:
    found = json.loads(verbs.gpuward("check", "--context", "admin", "-o", "json"))
    told = {(one["check"], one["found"]): one["level"] for one in found["findings"]}
    assert {level for (check, _), level in told.items() if check in ("crds", "namespace", "policy", "kubernetes")} == {"ok"}
    shipped = len(list(needed(names.DEFAULT_NAMESPACE)))
    assert told["rights", f"ServiceAccount gpu-operator has all {shipped}"] == "ok"
    assert [level for (check, text), level in told.items() if check == "operators" and "renewed its Lease" in text] == ["ok"]
