"""What upgrades on real nodes keep promised to workloads: gpuward from its image, stand-ins for operands, a GPU pod on each."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.installed import DISCOVERED, NAMESPACE, RELEASE, helm, leader, require
from tests.node.outage import await_stack, parts, served, told
from tests.node.realnodes import ROOT, Nodes, eventually, running
from tests.node.recorded import Record, recording
from tests.node.stack import (
    MEMORY,
    NAMES,
    NEW,
    NEWEST,
    NOWHERE,
    OLD,
    PLUGIN,
    PROBED,
    STAGED,
    TOOLKIT,
    VALIDATOR,
    apply,
    await_upgrade,
    begin_work,
    denied,
    explained,
    loads,
    memory,
    pods_on,
    set_version,
    trail,
)

pytestmark = pytest.mark.realnode
FINALIZER = "tests.gpuward.io/held"


@pytest.fixture(scope="module")
def record(cluster: Nodes, chart: Path) -> Iterator[Record]:
    """Install gpuward, and record what comes after that."""
    require("busybox")
    cluster.run("operands", "--driver", OLD, "--driver", NEW, "--driver", NEWEST, "--driver", STAGED)
    helm(cluster, "install", "--wait", "--timeout", "3m", RELEASE[0], str(chart), *RELEASE[1:], *PROBED)
    with recording(cluster) as record:
        yield record


@pytest.fixture(scope="module")
def stack(cluster: Nodes, record: Record) -> Nodes:
    """Install the whole stack, and a workload that uses a GPU on each node."""
    # Whoever asks too soon may be told that the policy is ready from before, when there was nothing to do.
    eventually("gpuward sees no node", lambda: any(policy.says("Ready") for policy in record.of("ClusterPolicy")))
    cluster.kubectl("label", "nodes", "--all", *DISCOVERED)
    await_stack(cluster, record, OLD)
    begin_work(cluster)
    return cluster


def test_gpus_are_those_that_nvml_lists(stack: Nodes) -> None:
    offered = [node["status"]["allocatable"]["nvidia.com/gpu"] for node in stack.get("nodes")["items"]]
    assert offered == ["2", "2"]
    given = stack.kubectl("exec", "deployment/train", "--", "nvml-list").splitlines()
    assert [line.split("\t")[1:] for line in given] == [["stand-in", str(80 * 2**30)]]
    line = stack.kubectl_line("exec", "-n", NAMESPACE, f"daemonset/{TOOLKIT}", "--", "nvml-list")
    refused = subprocess.run(line, capture_output=True, text=True, check=False).stderr
    assert "libnvidia-ml.so.1: cannot open" in refused, "this container was given no driver"


def test_an_upgrade_under_a_workload(stack: Nodes, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    set_version(stack, NEW)
    await_upgrade(stack, NEW)
    for name in NAMES:
        drivers = trail(stack, name)
        assert [each[1:] for each in drivers] == [("loaded", OLD), ("unloaded", OLD), ("loaded", NEW)]
        with capsys.disabled():
            sys.stdout.write(f"\n{name} was out of service: {told(parts(record, name, NEW, drivers))}\n")


def test_a_version_that_does_not_exist_is_corrected_and_all_who_work_on_it_are_killed(
        stack: Nodes, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """On the second node a plugin's pod that does not go keeps the driver manager waiting, while operator and kubelet end."""
    before = {name: loads(stack, name) for name in NAMES}
    set_version(stack, NOWHERE)
    eventually("a node says why it waits", lambda: any("ImagePullBackOff" in explained(stack, name) for name in NAMES), 240)
    (untouched,) = (name for name in NAMES if loads(stack, name) == before[name])
    (waiting,) = set(NAMES) - {untouched}
    assert stack.get("deployment", "train")["status"]["readyReplicas"] == 1
    (plugin,) = (pod["metadata"]["name"] for pod in pods_on(stack, untouched, "-n", NAMESPACE, "-l", f"app={PLUGIN}"))
    keep(stack, plugin, [FINALIZER])
    corrected = time.time()
    set_version(stack, NEWEST)
    held = f"waiting for the pod {plugin}"
    eventually("the second node's driver manager waits", lambda: held in explained(stack, untouched), 480)
    back = min(node.at for node in record.of("Node") if node.name == waiting and not node.cordoned and node.at > corrected)
    with capsys.disabled():
        sys.stdout.write(f"\n{waiting} was back {back - corrected:.1f} s after the correction\n")
    kill_all_who_work(stack, untouched)
    eventually("the driver manager still waits", lambda: held in explained(stack, untouched))  # its log is the kubelet's to give
    assert loads(stack, untouched) == before[untouched]
    keep(stack, plugin, [])
    await_upgrade(stack, NEWEST)
    assert loads(stack, waiting) == [*before[waiting], ("unloaded", NEW), ("loaded", NEWEST)]
    assert loads(stack, untouched) == [*before[untouched], ("unloaded", NEW), ("loaded", NEWEST)], "nothing is done twice"


def kill_all_who_work(nodes: Nodes, name: str) -> None:
    """Kill the operator's pod that leads and a node's kubelet, and wait until others do their work."""
    led, (kubelet,) = leader(nodes), running(nodes.state, "kubelet", name)
    nodes.kubectl("delete", "pod", "-n", NAMESPACE, led, "--grace-period=0", "--force")
    os.kill(kubelet, signal.SIGKILL)
    eventually("another one leads", lambda: leader(nodes) not in ("", led), 180)
    eventually("a kubelet is back", lambda: running(nodes.state, "kubelet", name) not in ([], [kubelet]))


def keep(nodes: Nodes, pod: str, finalizers: list[str]) -> None:
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    nodes.kubectl("patch", "pod", "-n", NAMESPACE, pod, "--type=merge", "-p", patch)


def test_the_toolkit_restarts_containerd_under_everything(stack: Nodes, record: Record) -> None:
    def others() -> dict[str, tuple[int, str]]:
        return {f"{pod['metadata']['name']} {each['name']}": (each["restartCount"], each.get("containerID", ""))
                for pod in pods_on(stack, NAMES[0]) if pod["metadata"]["labels"].get("app") != TOOLKIT
                for each in pod["status"]["containerStatuses"]}

    # The last ones begin only once the upgrade before has been validated; what begins meanwhile would begin twice.
    eventually("all containers have begun", lambda: all(container for _, container in others().values()))
    began, before, containerd = time.time(), others(), running(stack.state, "containerd", NAMES[0])
    (old,) = pods_on(stack, NAMES[0], "-n", NAMESPACE, "-l", f"app={TOOLKIT}")
    stack.kubectl("delete", "pod", "-n", NAMESPACE, old["metadata"]["name"])
    eventually("another toolkit is ready", lambda: any(
        pod.ready and pod.name != old["metadata"]["name"] for pod in record.of("Pod")
        if pod.at > began and pod.label("app") == TOOLKIT and pod.node == NAMES[0]))
    eventually("containerd runs again", lambda: set(running(stack.state, "containerd", NAMES[0])) - set(containerd) != set())
    assert others() == before
    assert not any(node.cordoned for node in record.of("Node") if node.at > began)


def test_nvidiadrivers_take_nodes_over_one_at_a_time(stack: Nodes) -> None:
    before = {name: loads(stack, name) for name in NAMES}
    driver: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "nvidiadriver.yaml").read_text())
    driver["spec"]["version"] = NEW
    # What is not said would be Kubernetes' default, by which three answers that take more than a second end the driver.
    driver["spec"]["startupProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1}
    apply(stack, driver)
    stack.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p",
                  json.dumps({"spec": {"driver": {"useNvidiaDriverCRD": True}}}))
    await_upgrade(stack, NEW)
    for each in NAMES:
        assert loads(stack, each) == [*before[each], ("unloaded", NEWEST), ("loaded", NEW)]
    stack.kubectl("wait", "--for=condition=Ready", "nvidiadriver/default", "--timeout=30s")


def test_the_next_drivers_images_are_there_before_a_node_is_cordoned(stack: Nodes, record: Record) -> None:
    began, before = time.time(), {name: loads(stack, name) for name in NAMES}
    apply(stack, {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
                  "spec": {"prestage": {"mode": "Image"}}})
    stack.kubectl("patch", "nvidiadriver", "default", "--type=merge", "-p", json.dumps({"spec": {"version": STAGED}}))
    await_upgrade(stack, STAGED)
    events = stack.get("events", "-n", NAMESPACE, "--field-selector", "reason=Pulled")["items"]
    pulls = [(event["source"]["host"], event["involvedObject"]["name"], datetime.fromisoformat(event["lastTimestamp"]))
             for event in events if "Successfully pulled" in event["message"] and f":{STAGED}" in event["message"]]
    assert sorted(name for name, _, _ in pulls) == sorted(NAMES)
    for name, pod, at in pulls:
        cordons = [node.at for node in record.of("Node") if node.name == name and node.cordoned and node.at > began]
        assert pod.startswith("gpuward-prestage-"), "the driver's pod had to pull it"
        assert at.timestamp() <= min(cordons)
        assert loads(stack, name) == [*before[name], ("unloaded", NEW), ("loaded", STAGED)]
    assert not any(pod["metadata"]["name"].startswith("gpuward-prestage-") for name in NAMES for pod in pods_on(stack, name))


def test_what_held_in_all_of_these(stack: Nodes, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.torn() == [], "a driver went under a workload"
    for name in NAMES:
        unloaded = [at for at, what, _ in trail(stack, name) if what == "unloaded"]
        assert unloaded
        assert {at: ran for at in unloaded if (ran := record.running(name, at))} == {}
    assert record.most_cordoned() == 1
    ready = min((policy.at for policy in record.of("ClusterPolicy") if policy.says("Ready") == "Reconciled"), default=math.inf)
    assert served(record, ready) == set(NAMES), "the policy was ready before its nodes were"
    # Its shell ignores SIGTERM, as NVIDIA's does.
    assert {which: how for which, how in record.killed().items() if which != (VALIDATOR, VALIDATOR)} == {}
    assert denied(stack) == []
    assert "Cannot watch" not in stack.kubectl("logs", "-n", NAMESPACE, "-l", "app=gpu-operator", "--tail=-1")
    used = memory(stack)
    with capsys.disabled():
        sys.stdout.write(f"\nthe operators' memory: {', '.join(f'{each >> 20} MiB' for each in used)}\n")
    assert max(used) < MEMORY
