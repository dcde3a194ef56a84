"""gpuward as its users run it: from its image, installed by the real helm, on real kubelets that pull from a registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.chart.files import CHART, ROOT, without_dependency

from tests.image.unpacked import another_checkout, build
from tests.node.realnodes import Nodes, eventually

pytestmark = pytest.mark.realnode
NAMESPACE = "gpu-operator"
RELEASE = (NAMESPACE, "--namespace", NAMESPACE)
DISCOVERED = ("feature.node.kubernetes.io/pci-10de.present=true", "feature.node.kubernetes.io/system-os_release.ID=ubuntu",
              "feature.node.kubernetes.io/system-os_release.VERSION_ID=22.04")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, copy)
    without_dependency(copy)
    return copy


@pytest.fixture(scope="module")
def cluster(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Keep two nodes that can pull the operator's image, and a namespace for it."""
    for program in ("mmdebstrap", "helm"):
        if shutil.which(program, path=_path()) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{program} is not installed")
    nodes = Nodes(tmp_path_factory.mktemp("install") / "run")
    try:
        nodes.run("up", "--nodes", "2", "--registry")
        nodes.run("push", str(_archive(tmp_path_factory.mktemp("built"))))
        nodes.kubectl("create", "namespace", NAMESPACE)
        nodes.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
        yield nodes
    finally:
        nodes.run("down")


def _archive(folder: Path) -> Path:
    """Return the image of this checkout, with the packages that Debian has now if it has no longer those that are pinned."""
    done, checkout = build(ROOT, folder / "out"), ROOT
    if done.returncode != 0 and "./dev image --refresh" in done.stderr:
        checkout = another_checkout(folder / "checkout")
        assert build(checkout, folder / "out", "--refresh").returncode == 0
        done = build(checkout, folder / "out")
    assert done.returncode == 0, done.stderr
    told = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return checkout / told["IMAGE"]


def _path() -> str:
    return f"{os.environ['PATH']}:{ROOT / '.cache/bin'}"


def helm(nodes: Nodes, *words: str) -> str:
    env = os.environ | {"PATH": _path(), "KUBECONFIG": str(nodes.kubeconfig)}
    done = subprocess.run(["helm", *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def marks(nodes: Nodes, name: str) -> set[str]:
    meta = nodes.get("node", name)["metadata"]
    return {key for key in (*meta["labels"], *meta["annotations"]) if key.startswith(("nvidia.com/", "gpuward.io/"))}


def operators(nodes: Nodes) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = nodes.get("pods", "-n", NAMESPACE, "-l", "app=gpu-operator")["items"]
    return pods


def test_install_upgrade_and_uninstall(cluster: Nodes, chart: Path) -> None:
    helm(cluster, "install", "--wait", "--timeout", "3m", RELEASE[0], str(chart), *RELEASE[1:])
    assert len({pod["spec"]["nodeName"] for pod in operators(cluster)}) == 2, "one replica on each node"
    said = cluster.kubectl("exec", "-n", NAMESPACE, "deploy/gpu-operator", "--", "gpuward", "status")
    assert "no node has labels of node feature discovery" in said

    cluster.kubectl("label", "nodes", "--all", *DISCOVERED)
    eventually("driver pods are made", lambda: len(cluster.get(
        "pods", "-n", NAMESPACE, "-l", "app=nvidia-driver-daemonset")["items"]) == 2)
    eventually("the image that is nowhere is told of", lambda: "ErrImagePull" in _explained(cluster) or "ImagePullBackOff" in
               _explained(cluster))

    helm(cluster, "upgrade", "--timeout", "2m", RELEASE[0], str(chart), *RELEASE[1:], "--reset-then-reuse-values",
         "--set", "dcgmExporter.enabled=false")
    eventually("the exporter goes", lambda: "nvidia-dcgm-exporter" not in cluster.kubectl(
        "get", "daemonsets", "-n", NAMESPACE, "-o", "name"))
    logs = cluster.kubectl("logs", "-n", NAMESPACE, "-l", "app=gpu-operator", "--tail=-1")
    assert "forbidden" not in logs

    assert marks(cluster, "node-1")
    helm(cluster, "uninstall", *RELEASE, "--timeout", "3m")
    left = cluster.kubectl("get", "all,leases,roles,rolebindings", "-n", NAMESPACE, "-o", "name").split()
    assert not [name for name in left if "pod/nvidia" not in name and "pod/gpu" not in name], "pods may still be ending"
    assert marks(cluster, "node-1") == marks(cluster, "node-2") == set()
    wide = cluster.kubectl("get", "clusterroles,clusterrolebindings,runtimeclasses,clusterpolicies", "-o", "name")
    assert "nvidia" not in wide
    assert "gpu-operator" not in wide
    assert "clusterpolicies.nvidia.com" in cluster.kubectl("get", "crds", "-o", "name"), "CRDs stay, as policies may be kept"


def test_the_leader_dies_and_the_other_replica_goes_on(cluster: Nodes, chart: Path) -> None:
    helm(cluster, "install", "--wait", "--timeout", "3m", RELEASE[0], str(chart), *RELEASE[1:])
    before = _leader(cluster)
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, before, "--grace-period=0", "--force")
    eventually("another one leads", lambda: _leader(cluster) not in ("", before))
    helm(cluster, "uninstall", *RELEASE, "--timeout", "3m")


def _leader(nodes: Nodes) -> str:
    holder: str = nodes.get("lease", "53822513.nvidia.com", "-n", NAMESPACE)["spec"].get("holderIdentity") or ""
    return holder.partition("_")[0]


def _explained(nodes: Nodes) -> str:
    return nodes.kubectl("exec", "-n", NAMESPACE, "deploy/gpu-operator", "--", "gpuward", "explain", "node-1")
