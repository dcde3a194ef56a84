"""The whole stack on real nodes, with a workload that uses GPUs: what upgrades are played on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tools.node import cluster as clusters
from tools.node import standins

from tests.node.installed import NAMESPACE, operators
from tests.node.realnodes import Nodes, eventually
from tests.node.recorded import STATE

OLD, NEW, NEWEST, STAGED, NOWHERE = "595.91.07", "600.10.01", "605.20.02", "610.30.03", "601.00.00"
NAMES = ("node-1", "node-2")
# The default waits a minute before it asks a driver for the first time, for the time that a real one takes to be built.
PROBED = ("--set", "driver.startupProbe.initialDelaySeconds=1,driver.startupProbe.periodSeconds=1")
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpu-operator"
MEMORY = 350 * 2**20 // 2
"""Half of the chart's limit."""
IN_ORDER = ("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset",
            "nvidia-operator-validator")
DRIVER, TOOLKIT, PLUGIN, VALIDATOR = IN_ORDER
TRAIN = {"matchLabels": {"app": "train"}}
WORKLOAD: list[dict[str, Any]] = [
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "train"},
     "spec": {"maxUnavailable": 1, "selector": TRAIN}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "train"}, "spec": {
        "replicas": 2, "selector": TRAIN, "template": {"metadata": {"labels": TRAIN["matchLabels"]}, "spec": {
            "runtimeClassName": "nvidia",
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": TRAIN,
                                           "whenUnsatisfiable": "DoNotSchedule"}],
            "containers": [{"name": "main", "image": standins.WORKLOAD, "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}},
]


def apply(nodes: Nodes, obj: dict[str, Any]) -> None:
    nodes.kubectl("create", "-f", "-", given=json.dumps(obj))


def begin_work(nodes: Nodes) -> None:
    """Start a workload that uses a GPU on each node."""
    for each in WORKLOAD:
        apply(nodes, each)
    nodes.kubectl("rollout", "status", "deployment/train", "--timeout=60s")


def trail(nodes: Nodes, name: str) -> list[tuple[float, str, str]]:
    """Return what was loaded and unloaded in a node, and when, as the node's own files say."""
    lines = within(nodes, name, "cat", "/run/nvidia/.kernel/trail").splitlines()
    return [(float(at), what, version) for at, what, version in map(str.split, lines)]


def within(nodes: Nodes, name: str, *words: str) -> str:
    """Run a program on a node itself, in no pod, and return its output; it must succeed."""
    pid = clusters.NodeCluster(nodes.state).nodes()[name]
    return subprocess.run([*clusters.within(pid), *words], capture_output=True, text=True, check=True).stdout


def loads(nodes: Nodes, name: str) -> list[tuple[str, str]]:
    return [(what, version) for _, what, version in trail(nodes, name)]


def runs(nodes: Nodes, name: str, version: str) -> bool:
    return loads(nodes, name)[-1] == ("loaded", version)


def set_version(nodes: Nodes, version: str) -> None:
    nodes.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p",
                  json.dumps({"spec": {"driver": {"version": version}}}))


def await_upgrade(nodes: Nodes, version: str) -> None:
    """Wait until all nodes run a version and are in service, and the workload is back."""
    for name in NAMES:
        eventually(f"{name} runs {version}", partial(runs, nodes, name, version), 480)

    def done(node: dict[str, Any]) -> bool:
        return node["metadata"]["labels"][STATE] == "upgrade-done" and not node["spec"].get("unschedulable")

    eventually("all nodes are in service", lambda: all(map(done, nodes.get("nodes")["items"])), 240)
    eventually("the workload is back", lambda: nodes.get("deployment", "train")["status"].get("readyReplicas") == 2)


def memory(nodes: Nodes) -> list[int]:
    """Return the memory that the operators' containers use, as the kubelets tell."""
    names = {pod["metadata"]["name"] for pod in operators(nodes)}
    told = [nodes.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/stats/summary") for name in NAMES]
    pods = [pod for each in told for pod in json.loads(each)["pods"]]
    used = [pod["containers"][0]["memory"]["workingSetBytes"] for pod in pods if pod["podRef"]["name"] in names]
    assert len(used) == len(names)
    return used


def pods_on(nodes: Nodes, name: str, *words: str) -> list[dict[str, Any]]:
    """Return the pods of a node, of all namespaces or as `words` say."""
    pods: list[dict[str, Any]] = nodes.get("pods", *(words or ("-A",)), "--field-selector", f"spec.nodeName={name}")["items"]
    return pods


def denied(nodes: Nodes) -> list[str]:
    """Return what the API server did not let the operator do, as its audit log says."""
    lines = map(json.loads, (nodes.state / "controlplane" / "audit.log").read_text().splitlines())
    return [f"{each['verb']} {each['requestURI']}" for each in lines
            if each["user"].get("username") == ACCOUNT and each.get("responseStatus", {}).get("code") == 403]


def explained(nodes: Nodes, name: str) -> str:
    """Return what gpuward says of a node to the administrator, who may read logs; the operator's own account may not."""
    line = [str(Path(sys.executable).with_name("gpuward")), "explain", name]
    env = os.environ | {"KUBECONFIG": str(nodes.kubeconfig)}
    return subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout
