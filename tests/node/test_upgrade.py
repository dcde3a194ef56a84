"""A driver upgrade under a workload, on real kubelets with programs that stand in for NVIDIA's operands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.node import cluster as clusters
from tools.node import standins

from tests.node.installed import DISCOVERED, NAMESPACE, RELEASE, helm, operators, require
from tests.node.realnodes import Nodes, eventually
from tests.node.recorded import STATE, Record, recording

pytestmark = pytest.mark.realnode
OLD, NEW, NEWEST, NOWHERE = "595.91.07", "600.10.01", "605.20.02", "601.00.00"
NAMES = ("node-1", "node-2")
# The default waits a minute before it asks a driver for the first time, for the time that a real one takes to be built.
PROBED = ("--set", "driver.startupProbe.initialDelaySeconds=1,driver.startupProbe.periodSeconds=1")
MEMORY = 350 * 2**20 // 2
"""Half of the chart's limit."""
IN_ORDER = ("nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset",
            "nvidia-operator-validator")
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


@pytest.fixture(scope="module")
def stack(cluster: Nodes, chart: Path) -> Nodes:
    """Install gpuward and the whole stack, and a workload that uses a GPU on each node."""
    require("busybox")
    cluster.run("operands", "--driver", OLD, "--driver", NEW, "--driver", NEWEST)
    helm(cluster, "install", "--wait", "--timeout", "3m", RELEASE[0], str(chart), *RELEASE[1:], *PROBED)
    with recording(cluster) as record:
        cluster.kubectl("label", "nodes", "--all", *DISCOVERED)
        # Until then the policy can still be ready from before, when there was nothing to do.
        eventually("all nodes are validated", lambda: len({
            pod.node for pod in record.of("Pod") if pod.label("app") == IN_ORDER[-1] and pod.ready}) == len(NAMES))
        cluster.kubectl("wait", "--for=condition=Ready", "clusterpolicy/cluster-policy", "--timeout=150s")
    for name in NAMES:
        ready = [min(pod.at for pod in record.of("Pod") if pod.label("app") == app and pod.node == name and pod.ready)
                 for app in IN_ORDER]
        assert ready == sorted(ready), name
        assert loads(cluster, name) == [("loaded", OLD)]
    for each in WORKLOAD:
        cluster.kubectl("create", "-f", "-", given=json.dumps(each))
    cluster.kubectl("rollout", "status", "deployment/train", "--timeout=60s")
    return cluster


def trail(nodes: Nodes, name: str) -> list[tuple[float, str, str]]:
    """Return what was loaded and unloaded in a node, and when, as the node's own files say."""
    pid = clusters.NodeCluster(nodes.state).nodes()[name]
    done = subprocess.run([*clusters.within(pid), "cat", "/run/nvidia/.kernel/trail"], capture_output=True, text=True, check=True)
    return [(float(at), what, version) for at, what, version in map(str.split, done.stdout.splitlines())]


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
        eventually(f"{name} runs {version}", partial(runs, nodes, name, version), 240)

    def done(node: dict[str, Any]) -> bool:
        return node["metadata"]["labels"][STATE] == "upgrade-done" and not node["spec"].get("unschedulable")

    eventually("all nodes are in service", lambda: all(map(done, nodes.get("nodes")["items"])))
    eventually("the workload is back", lambda: nodes.get("deployment", "train")["status"].get("readyReplicas") == 2)


def parts(record: Record, name: str, version: str, drivers: list[tuple[float, str, str]]) -> dict[str, float]:
    """Return how long a node was out of service, in seconds, and for what."""
    def unschedulable(value: bool) -> list[float]:
        return [node.at for node in record.of("Node") if node.name == name and node.cordoned is value]

    def ready(app: str, since: float) -> float:
        return min(pod.at for pod in record.of("Pod") if pod.node == name and pod.label("app") == app and pod.ready
                   and pod.at > since and pod.name in fresh)

    cordoned = min(unschedulable(True))
    uncordoned = min(at for at in unschedulable(False) if at > cordoned)
    before = {pod.name for pod in record.of("Pod") if pod.at < cordoned}
    fresh = {pod.name for pod in record.of("Pod")} - before
    ended: dict[str, float] = {}
    for pod in record.of("Pod"):
        if pod.at > cordoned and pod.name in before and pod.node == name and pod.uses_gpu and not pod.runs:
            ended.setdefault(pod.name, pod.at)
    evicted = max(ended.values(), default=cordoned)
    unloaded = next(at for at, what, _ in drivers if what == "unloaded" and at > cordoned)
    loaded = next(at for at, what, found in drivers if (what, found) == ("loaded", version) and at > cordoned)
    times = [cordoned, evicted, unloaded, loaded, ready(IN_ORDER[0], loaded), ready(IN_ORDER[-1], loaded), uncordoned]
    what = ("eviction", "driver manager", "driver", "driver's probe", "validation", "uncordon")
    took = {part: end - begin for part, begin, end in zip(what, times, times[1:], strict=False)}
    return {"in all": uncordoned - cordoned, **took}


def test_an_upgrade_under_a_workload(stack: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    with recording(stack) as record:
        set_version(stack, NEW)
        await_upgrade(stack, NEW)
    for name in NAMES:
        drivers = trail(stack, name)
        assert [each[1:] for each in drivers] == [("loaded", OLD), ("unloaded", OLD), ("loaded", NEW)]
        assert record.running(name, drivers[1][0]) == set(), "a driver went under a workload"
        with capsys.disabled():
            took = parts(record, name, NEW, drivers)
            told = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in took.items())
            sys.stdout.write(f"\n{name} was out of service: {told}\n")
    assert record.killed() <= {("nvidia-operator-validator", "nvidia-operator-validator")}
    assert "forbidden" not in stack.kubectl("logs", "-n", NAMESPACE, "-l", "app=gpu-operator", "--tail=-1")
    with capsys.disabled():
        sys.stdout.write(f"the operators' memory: {', '.join(f'{used >> 20} MiB' for used in memory(stack))}\n")
    assert max(memory(stack)) < MEMORY


def memory(nodes: Nodes) -> list[int]:
    """Return the memory that the operators' containers use, as the kubelets tell."""
    names = {pod["metadata"]["name"] for pod in operators(nodes)}
    told = [nodes.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/stats/summary") for name in NAMES]
    pods = [pod for each in told for pod in json.loads(each)["pods"]]
    used = [pod["containers"][0]["memory"]["workingSetBytes"] for pod in pods if pod["podRef"]["name"] in names]
    assert len(used) == len(names)
    return used


def test_a_version_that_does_not_exist_and_its_correction(stack: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: trail(stack, name)[-1] for name in NAMES}
    with recording(stack) as record:
        set_version(stack, NOWHERE)
        eventually("a node says why it waits", lambda: any("ImagePullBackOff" in explained(stack, name) for name in NAMES), 120)
        untouched = [name for name in NAMES if trail(stack, name)[-1] == before[name]]
        assert len(untouched) == 1, "one node at a time"
        assert stack.get("deployment", "train")["status"]["readyReplicas"] == 1
        corrected = time.time()
        set_version(stack, NEWEST)
        await_upgrade(stack, NEWEST)
    for name in NAMES:
        drivers = trail(stack, name)
        assert drivers[-1][1:] == ("loaded", NEWEST)
        assert NOWHERE not in {version for _, _, version in drivers}
        assert all(record.running(name, at) == set() for at, what, _ in drivers if what == "unloaded" and at > before[name][0])
    (waiting,) = set(NAMES) - set(untouched)
    back = min(node.at for node in record.of("Node") if node.name == waiting and not node.cordoned and node.at > corrected)
    with capsys.disabled():
        sys.stdout.write(f"\n{waiting} was back {back - corrected:.1f} s after the correction\n")


def explained(nodes: Nodes, name: str) -> str:
    return nodes.kubectl("exec", "-n", NAMESPACE, "deploy/gpu-operator", "--", "gpuward", "explain", name)
