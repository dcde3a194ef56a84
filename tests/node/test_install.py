"""gpuward as its users run it: from its image, installed by the real helm, on real kubelets that pull from a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.installed import DISCOVERED, NAMESPACE, RELEASE, helm, operators
from tests.node.realnodes import Nodes, eventually

pytestmark = pytest.mark.realnode


def marks(nodes: Nodes, name: str) -> set[str]:
    meta = nodes.get("node", name)["metadata"]
    return {key for key in (*meta["labels"], *meta["annotations"]) if key.startswith(("nvidia.com/", "gpuward.io/"))}


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


def _explained(nodes: Nodes) -> str:
    return nodes.kubectl("exec", "-n", NAMESPACE, "deploy/gpu-operator", "--", "gpuward", "explain", "node-1")
