"""gpuward's own driver manager and validator on real nodes: each with a stand-in of NVIDIA's other half, both together, and
without upgrades by the operator, where the driver manager is the upgrade.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.node import standins

from gpuward import names
from gpuward.model.pauses import MARKER
from tests.node import manager
from tests.node.installed import DISCOVERED, NAMESPACE, RELEASE, helm, require
from tests.node.outage import await_stack, parts, served, told
from tests.node.realnodes import ROOT, Nodes, eventually, running
from tests.node.recorded import Record, recording
from tests.node.stack import (
    DRIVER,
    NAMES,
    NEW,
    NEWEST,
    OLD,
    PLUGIN,
    PROBED,
    VALIDATOR,
    apply,
    await_upgrade,
    begin_work,
    denied,
    explained,
    loads,
    pods_on,
    runs,
    set_version,
    trail,
)

pytestmark = pytest.mark.realnode
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/gpuward/values.yaml").read_text())
NVIDIAS = {"manager": VALUES["driver"]["manager"], "validator": VALUES["validator"]}
MANAGED = {"AGENT_SYS": "/run/nvidia/.kernel", "AGENT_MODULE_TOOL": "/run/nvidia/.kernel/rmmod"}
"""Where our driver manager finds the stand-in of a kernel."""
ONE, OTHER = NAMES
IDLE = "nvidia-validato"
"""The name of our validator's process, as the kernel cuts it."""
MOST_MB = 30
"""What an agent that waits may use."""


def image(nodes: Nodes) -> dict[str, str]:
    """Return the operator's image in parts, as policies have them."""
    deployed = nodes.get("deployment", "gpu-operator", "-n", NAMESPACE)["spec"]["template"]["spec"]["containers"][0]["image"]
    repository, _, rest = deployed.rpartition("/")
    name, _, version = rest.partition(":")
    return {"repository": repository, "image": name, "version": version}


OURS = {"manager", "validator"}


def named(part: dict[str, Any]) -> dict[str, str]:
    return {key: part[key] for key in ("repository", "image", "version")}


def upgrade(nodes: Nodes, version: str, *, own: set[str]) -> None:
    """Change in one step the driver's version and whose halves a policy names."""
    ours = image(nodes)
    parts = {name: ours if name in own else named(part) for name, part in NVIDIAS.items()}
    nodes.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": {
        "driver": {"version": version, "manager": parts["manager"]}, "validator": parts["validator"]}}))


@pytest.fixture(scope="module")
def record(cluster: Nodes, chart: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Install gpuward with its own halves, and record what comes after that."""
    require("busybox")
    cluster.run("operands", "--driver", OLD, "--driver", NEW, "--driver", NEWEST)
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(yaml.safe_dump({"operator": {"agents": "gpuward"}, "driver": {"version": OLD, "manager": {
        "env": [{"name": name, "value": value} for name, value in MANAGED.items()]}}}))
    helm(cluster, "install", "--wait", "--timeout", "3m", RELEASE[0], str(chart), *RELEASE[1:], *PROBED, "--values", str(values))
    with recording(cluster) as record:
        yield record


@pytest.fixture(scope="module")
def stack(cluster: Nodes, record: Record) -> Nodes:
    """Install the whole stack, and a workload that uses a GPU on each node."""
    eventually("gpuward sees no node", lambda: any(policy.says("Ready") for policy in record.of("ClusterPolicy")))
    cluster.kubectl("label", "nodes", "--all", *DISCOVERED)
    await_stack(cluster, record, OLD)
    begin_work(cluster)
    return cluster


def deployed(nodes: Nodes, node: str) -> dict[str, str]:
    """Return the labels by which operands come and go."""
    labels: dict[str, str] = nodes.get("node", node)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith(names.DEPLOY_PREFIX)}


def given_back(nodes: Nodes, node: str) -> bool:
    found = nodes.get("node", node)
    annotations = found["metadata"].get("annotations", {})
    return (not found["spec"].get("unschedulable") and names.DRIVER_MANAGER_CORDON not in annotations
            and set(deployed(nodes, node).values()) == {"true"})


def test_pods_are_those_of_the_own_halves(stack: Nodes) -> None:
    ours = image(stack)
    reference = f"{ours['repository']}/{ours['image']}:{ours['version']}"
    for app, container in ((DRIVER, manager.CONTAINER), (VALIDATOR, "cuda-validation"), (VALIDATOR, "plugin-validation"),
                           (PLUGIN, "toolkit-validation")):
        for pod in stack.get("pods", "-n", NAMESPACE, "-l", f"app={app}")["items"]:
            assert {each["name"]: each["image"] for each in pod["spec"]["initContainers"]}[container] == reference
    assert deployed(stack, ONE)
    assert given_back(stack, ONE)


# The first and the last change the version only: what they take is that of their halves alone.
@pytest.mark.parametrize(("version", "own"), [
    (NEW, OURS), (NEWEST, {"manager"}), (OLD, {"validator"}), (NEW, set()), (NEWEST, set())],
    ids=["both", "manager", "validator", "neither", "neither-again"])
def test_an_upgrade_by_the_operator(stack: Nodes, record: Record, version: str, own: set[str],
                                    capsys: pytest.CaptureFixture[str]) -> None:
    before, began = {name: loads(stack, name) for name in NAMES}, time.time()
    upgrade(stack, version, own=own)
    await_upgrade(stack, version)
    for name in NAMES:
        assert loads(stack, name) == [*before[name], ("unloaded", before[name][-1][1]), ("loaded", version)]
        assert given_back(stack, name)
        with capsys.disabled():
            took = told(parts(record, name, version, trail(stack, name), began))
            sys.stdout.write(f"\n{name} was out of service with own {sorted(own)}: {took}\n")


def test_what_held_while_the_operator_upgraded(stack: Nodes, record: Record) -> None:
    assert record.torn() == [], "a driver went under a workload"
    for name in NAMES:
        unloaded = [at for at, what, _ in trail(stack, name) if what == "unloaded"]
        assert len(unloaded) == 5
        assert {at: ran for at in unloaded if (ran := record.running(name, at))} == {}
    assert record.most_cordoned() == 1
    assert served(record) == set(NAMES)
    assert denied(stack) == []


@pytest.fixture(scope="module")
def unattended(stack: Nodes) -> Nodes:
    """Turn upgrades by the operator off, and to both halves of ours: whoever deletes a driver pod upgrades its node."""
    stack.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p",
                  json.dumps({"spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}}}}))
    upgrade(stack, loads(stack, ONE)[-1][1], own=OURS)
    eventually("the operator upgrades no node", lambda: not any(
        names.UPGRADE_ENABLED in node["metadata"].get("annotations", {}) for node in stack.get("nodes")["items"]))
    eventually("our validator stays on all nodes", lambda: all(staying(stack, name) for name in NAMES), 480)
    return stack


def staying(nodes: Nodes, node: str) -> list[int]:
    """Return the processes of a node's validator of ours that stays once all is validated."""
    found = []
    for pid in running(nodes.state, IDLE, node):
        with suppress(OSError):
            found += [pid] if b"\0idle\0" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


def test_the_validator_that_stays_is_small(unattended: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    (pid,) = staying(unattended, ONE)
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) / 1024
    assert peak < MOST_MB
    with capsys.disabled():
        sys.stdout.write(f"\nthe validator that stays has used {peak:.0f} MiB at most\n")


def workload_is_back(nodes: Nodes) -> bool:
    return bool(nodes.get("deployment", "train")["status"].get("readyReplicas") == 2)


def test_a_driver_manager_that_is_killed_at_every_step_loses_nothing(unattended: Nodes, record: Record) -> None:
    nodes = unattended
    before, labels, began = loads(nodes, ONE), deployed(nodes, ONE), time.time()
    (_, was), others = before[-1], loads(nodes, OTHER)
    set_version(nodes, NEW)
    manager.hold(nodes, ONE, "nvidia_uvm")
    manager.renew(nodes, ONE)
    manager.await_word(nodes, ONE, "cordoning", began)
    manager.kill(nodes, ONE)  # and the kubelet starts it again
    pausing, waiting = "pausing operands", "waiting: the operands"
    at = manager.kill_at(nodes, ONE, "default/train", began, pausing, waiting, at_latest_unloading=True)
    at = manager.kill_at(nodes, ONE, pausing, at, waiting, at_latest_unloading=True)
    at = manager.kill_at(nodes, ONE, waiting, at, at_latest_unloading=True)
    eventually("nvidia_uvm is being unloaded", partial(manager.unloads, nodes, ONE), 240)
    assert set(deployed(nodes, ONE).values()) == {"true", MARKER}
    manager.hold(nodes, ONE, "nvidia")
    manager.go_on(nodes, ONE, "nvidia_uvm")
    manager.kill_at(nodes, ONE, "unloaded the module nvidia_uvm", at)
    eventually("nvidia is being unloaded", partial(manager.unloads, nodes, ONE), 240)
    manager.kill(nodes, ONE)
    manager.go_on(nodes, ONE, "nvidia")
    manager.replace(nodes, ONE)
    eventually("the node has the driver", partial(runs, nodes, ONE, NEW), 240)
    eventually("the node is given back", partial(given_back, nodes, ONE))
    assert deployed(nodes, ONE) == labels
    assert loads(nodes, ONE) == [*before, ("unloaded", was), ("loaded", NEW)]
    eventually("the workload is back", partial(workload_is_back, nodes), 240)
    assert loads(nodes, OTHER) == others


def pod(name: str, node: str, **container: Any) -> dict[str, Any]:
    """Return a pod without a controller that trains on a node."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "runtimeClassName": "nvidia", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": standins.WORKLOAD, **container}]}}


def events(nodes: Nodes, node: str) -> str:
    found = nodes.get("events", "--field-selector", f"involvedObject.kind=Node,involvedObject.name={node}")["items"]
    return "\n".join(f"{each['reason']}: {each['message']}" for each in found)


def test_a_pod_that_may_not_go_is_named_and_stays(unattended: Nodes) -> None:
    nodes, began = unattended, time.time()
    before = loads(nodes, OTHER)
    apply(nodes, pod("alone", OTHER, resources={"limits": {"nvidia.com/gpu": 1}}))
    nodes.kubectl("wait", "pod/alone", "--for=condition=Ready", "--timeout=60s")
    manager.renew(nodes, OTHER)
    why = "pod default/alone has no controller that would start it again (DRAIN_USE_FORCE=true permits it)"
    manager.await_word(nodes, OTHER, why, began)
    eventually("the node says why", lambda: why in events(nodes, OTHER))
    eventually("explain says why", lambda: why in explained(nodes, OTHER))
    assert loads(nodes, OTHER) == before
    assert given_back(nodes, OTHER)
    words = ("pausing", "cordoning", "evicted pod")
    assert not [line for line in manager.said(nodes, OTHER, began) if any(word in line for word in words)]
    assert workload_is_back(nodes)
    nodes.kubectl("delete", "pod", "alone")
    eventually("the node has the driver", partial(runs, nodes, OTHER, NEW), 480)
    eventually("the node is given back", partial(given_back, nodes, OTHER))
    assert loads(nodes, OTHER) == [*before, ("unloaded", before[-1][1]), ("loaded", NEW)]
    eventually("the workload is back", partial(workload_is_back, nodes), 240)


def test_a_machine_that_is_busy_is_left_as_it_is_until_it_is_free(unattended: Nodes) -> None:
    """A pod holds a GPU by the variable of the runtime, and has no resource by which anybody would evict it."""
    nodes = unattended
    before, operands, began = loads(nodes, ONE), ids(nodes, ONE), time.time()
    apply(nodes, pod("busy", ONE, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]))
    nodes.kubectl("wait", "pod/busy", "--for=condition=Ready", "--timeout=60s")
    set_version(nodes, OLD)
    manager.renew(nodes, ONE)
    manager.await_word(nodes, ONE, "waiting: the GPUs are in use by process ", began)
    eventually("the node says who", lambda: "(train) of pod default/busy" in events(nodes, ONE))
    assert loads(nodes, ONE) == before
    assert ids(nodes, ONE) == operands, "nobody was disturbed"
    assert not nodes.get("node", ONE)["spec"].get("unschedulable"), "a cordon would end nobody, and the node serves on"
    (driver,) = manager.driver_pods(nodes, ONE)
    hidden = {"metadata": {"labels": {f"{names.DEPLOY_PREFIX}driver": "false"}}}
    told_to_end = time.time()
    nodes.kubectl("patch", "node", ONE, "--type=merge", "-p", json.dumps(hidden))
    manager.await_word(nodes, ONE, "told to end by SIGTERM", told_to_end)
    assert not nodes.get("node", ONE)["spec"].get("unschedulable")
    assert names.DRIVER_MANAGER_CORDON not in nodes.get("node", ONE)["metadata"]["annotations"]
    hidden["metadata"]["labels"][f"{names.DEPLOY_PREFIX}driver"] = "true"
    nodes.kubectl("patch", "node", ONE, "--type=merge", "-p", json.dumps(hidden))
    eventually("there is a driver pod again", lambda: [each["metadata"]["name"] for each in manager.driver_pods(nodes, ONE)]
               not in ([], [driver["metadata"]["name"]]))
    nodes.kubectl("delete", "pod", "busy")
    eventually("the node has the driver", partial(runs, nodes, ONE, OLD), 480)
    eventually("the node is given back", partial(given_back, nodes, ONE))
    assert loads(nodes, ONE) == [*before, ("unloaded", NEW), ("loaded", OLD)]


def ids(nodes: Nodes, node: str) -> set[str]:
    """Return the pods of the operands on a node, but for the driver's."""
    return {each["metadata"]["uid"] for each in pods_on(nodes, node, "-n", NAMESPACE, "-l", f"app notin ({DRIVER},gpu-operator)")}


def test_a_cordon_of_somebody_else_stays(unattended: Nodes) -> None:
    nodes, before = unattended, loads(unattended, OTHER)
    nodes.kubectl("cordon", OTHER)
    manager.renew(nodes, OTHER)
    eventually("the node has the driver", partial(runs, nodes, OTHER, OLD), 480)
    eventually("the operands are back", lambda: set(deployed(nodes, OTHER).values()) == {"true"})
    assert loads(nodes, OTHER) == [*before, ("unloaded", NEW), ("loaded", OLD)]
    time.sleep(3)
    assert nodes.get("node", OTHER)["spec"]["unschedulable"]
    nodes.kubectl("uncordon", OTHER)
    eventually("the workload is back", partial(workload_is_back, nodes), 240)


def test_what_held_without_the_operator(unattended: Nodes, record: Record) -> None:
    for name in NAMES:
        unloaded = [at for at, what, _ in trail(unattended, name) if what == "unloaded"]
        assert {at: ran for at in unloaded if (ran := record.running(name, at))} == {}, "a driver went under a workload"
    assert denied(unattended) == []
