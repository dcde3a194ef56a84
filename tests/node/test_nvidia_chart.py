"""NVIDIA's own chart with gpuward's image on real nodes, and the way from it to gpuward's chart and back, under a GPU workload.

Their chart is not part of the project: GPUWARD_NVIDIA_CHART names a folder with `deployments/gpu-operator` of NVIDIA/gpu-operator
v26.7.0.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.installed import DISCOVERED, NAMESPACE, RELEASE, helm, require
from tests.node.realnodes import Nodes, eventually
from tests.node.stack import NAMES, OLD, PROBED, WORKLOAD, loads

pytestmark = pytest.mark.realnode

GIVEN = "GPUWARD_NVIDIA_CHART"
VERSION = "v26.7.0"
OURS = ("--set", "operator.repository=docker.io/library,operator.image=gpuward,operator.version=0.1.0")
WITHOUT_NFD = ("--set", "nfd.enabled=false")
KEEP = ("--reset-then-reuse-values",)
WAIT = ("--wait", "--timeout", "4m")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return NVIDIA's chart in the version in which it is published, without that of node feature discovery."""
    if not (given := os.environ.get(GIVEN)):
        pytest.skip(f"{GIVEN} names no folder with NVIDIA's chart")
    require("busybox")
    chart = tmp_path_factory.mktemp("theirs") / "gpu-operator"
    shutil.copytree(given, chart, ignore=shutil.ignore_patterns("charts", "Chart.lock"))
    meta = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    meta.pop("dependencies", None)
    (chart / "Chart.yaml").write_text(yaml.safe_dump(meta | {"version": VERSION, "appVersion": VERSION}), encoding="utf-8")
    return chart


def stands(nodes: Nodes) -> dict[str, tuple[str, int]]:
    """Return what must not change: uids and restarts of all pods but the operator's own, and generations of DaemonSets."""
    found: dict[str, tuple[str, int]] = {}
    for pod in nodes.get("pods", "--all-namespaces")["items"]:
        meta, labels = pod["metadata"], pod["metadata"].get("labels") or {}
        if labels.get("app") != "gpu-operator" and not any(one["kind"] == "Job" for one in meta.get("ownerReferences", ())):
            restarts = sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
            found[f"{meta['namespace']}/{meta['name']}"] = (meta["uid"], restarts)
    for each in nodes.get("daemonsets", "-n", NAMESPACE)["items"]:
        found[f"DaemonSet {each['metadata']['name']}"] = (each["metadata"]["uid"], each["metadata"]["generation"])
    return found


def about_rights(nodes: Nodes) -> list[str]:
    """Return what the condition about missing rights says."""
    status: dict[str, Any] = nodes.get("clusterpolicy", "cluster-policy").get("status") or {}
    return [one["message"] for one in status.get("conditions", ()) if one["type"] == "RightsMissing"]


def settled(nodes: Nodes) -> None:
    """Wait until the operator of the last release leads, and the policy is ready under it."""
    nodes.kubectl("rollout", "status", "deployment/gpu-operator", "-n", NAMESPACE, "--timeout=50s")
    pods = {pod["metadata"]["name"] for pod in nodes.get("pods", "-n", NAMESPACE, "-l", "app=gpu-operator")["items"]
            if not pod["metadata"].get("deletionTimestamp")}

    def leads() -> bool:
        holder = nodes.get("lease", "53822513.nvidia.com", "-n", NAMESPACE)["spec"].get("holderIdentity") or ""
        return holder.split("_")[0] in pods

    eventually("the new operator leads", leads)
    nodes.kubectl("wait", "--for=condition=Ready", "clusterpolicy/cluster-policy", "--timeout=50s")


def test_nvidias_chart_and_ours_take_turns_and_nothing_restarts(cluster: Nodes, theirs: Path, chart: Path) -> None:
    nodes = cluster
    nodes.run("operands", "--driver", OLD)
    helm(nodes, "install", *WAIT, RELEASE[0], str(theirs), *RELEASE[1:], *OURS, *WITHOUT_NFD, *PROBED)
    nodes.kubectl("label", "nodes", "--all", *DISCOVERED)
    eventually("all nodes are validated", lambda: [
        one["status"].get("numberReady") for one in nodes.get("daemonsets", "-n", NAMESPACE)["items"]
        if one["metadata"]["name"] == "nvidia-operator-validator"] == [len(NAMES)], 480)
    for each in WORKLOAD:
        nodes.kubectl("create", "-f", "-", given=json.dumps(each))
    nodes.kubectl("rollout", "status", "deployment/train", "--timeout=50s")
    settled(nodes)
    (told,) = about_rights(nodes)
    assert told.endswith("kubectl apply -f deploy/nvidia-chart-rights.yaml")
    before = stands(nodes)
    assert len([name for name in before if name.startswith("default/train")]) == len(NAMES)

    # Their chart is upgraded, and its hook brings the CRDs.
    helm(nodes, "upgrade", *WAIT, RELEASE[0], str(theirs), *RELEASE[1:], *KEEP, "--set", "operator.logging.level=debug")
    settled(nodes)
    assert stands(nodes) == before

    # To our chart, with its values.
    helm(nodes, "upgrade", *WAIT, RELEASE[0], str(chart), *RELEASE[1:], *KEEP)
    settled(nodes)
    eventually("no right is missing", lambda: not about_rights(nodes))
    assert stands(nodes) == before

    # And back, to the release before.
    helm(nodes, "rollback", *WAIT, *RELEASE)
    settled(nodes)
    eventually("the rights that their chart does not give are missing", lambda: bool(about_rights(nodes)))
    assert stands(nodes) == before
    nodes.kubectl("apply", "-f", str(Path(__file__).parents[2] / "deploy" / "nvidia-chart-rights.yaml"))
    eventually("the rights are noticed", lambda: not about_rights(nodes))
    assert [loads(nodes, name) for name in NAMES] == [[("loaded", OLD)]] * len(NAMES)

    nodes.kubectl("delete", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": WORKLOAD}))
    helm(nodes, "uninstall", *WAIT, *RELEASE)
    eventually("the operands are gone", lambda: not nodes.get("pods,daemonsets", "-n", NAMESPACE)["items"], 240)
