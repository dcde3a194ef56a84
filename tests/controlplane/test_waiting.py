"""Nodes that wait, fail and are paused, on a real Kubernetes API with real evictions and disruption budgets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from gpuward import names
from gpuward.model.record import Record, decode_record
from tests.controlplane.few import BROKEN, HOST, Tenant, driver_pods, few_nodes, reasons, rollout_policy, start_rollout
from tests.controlplane.plane import OPERATOR, WRITES, NodeWatch, Plane, Sight, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.xdist_group("few nodes")]

FIRST_RETRY = 2.0
STUCK = "gpuward.io/test"
"""A finalizer: a pod that carries it stays when it is deleted."""


@pytest.fixture(scope="module")
def plane(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a small control plane running, apart from the fleet of the other tests."""
    with few_nodes(tmp_path_factory.mktemp("waiting") / "run") as plane:
        yield plane


@pytest.fixture
def tenant(installed: Plane) -> Iterator[Tenant]:
    """Have a namespace of one's own, which is empty at the end."""
    rollout_policy(installed)
    tenant = Tenant(installed, f"ml-{uuid4().hex[:6]}")
    yield tenant
    tenant.leave()


def record(plane: Plane, node: str) -> Record:
    """Return what gpuward remembers about a node's upgrade."""
    return decode_record(plane.get("node", node)["metadata"]["annotations"][names.UPGRADE_RECORD])


def wait_for_states(watch: NodeWatch, **states: str) -> None:
    """Wait until nodes have these states; `gpu_1` is gpu-1."""
    wanted = {name.replace("_", "-"): state for name, state in states.items()}
    watch.wait_for(f"{wanted}", lambda now: all(now[name].state == state for name, state in wanted.items()))


def wait_for_rest(watch: NodeWatch, *held: str) -> None:
    """Wait until all nodes but those that are held have been upgraded."""
    watch.wait_for(f"all but {held}", lambda now: touched(watch) == now.keys() and all(
        (sight.state == "upgrade-done") == (name not in held) for name, sight in now.items()))


def touched(watch: NodeWatch) -> set[str]:
    """Return the nodes that were not up to date at some moment."""
    return {name for moment in watch.moments for name, sight in moment.items() if sight.state != "upgrade-done"}


def seen_at(watch: NodeWatch, node: str) -> list[Sight]:
    """Return what a node was like, one after the other."""
    return [moment[node] for moment in watch.moments]


def explained(plane: Plane, node: str, *words: str) -> None:
    """Check that `gpuward explain` says these words about a node."""
    said = " ".join(plane.gpuward("explain", node).split())
    for each in words:
        assert each in said, said


def evictions(requests: list[dict[str, Any]], namespace: str) -> dict[str, list[tuple[float, int]]]:
    """Return by pod of a namespace when the operator asked for its eviction, and the answers."""
    found: dict[str, list[tuple[float, int]]] = {}
    for entry in requests:
        about = entry.get("objectRef", {})
        if entry["user"]["username"] == OPERATOR and about.get("subresource") == "eviction" and about["namespace"] == namespace:
            asked = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            found.setdefault(about["name"], []).append((asked, entry["responseStatus"]["code"]))
    return found


def test_nodes_held_before_their_cordon(installed: Plane, watch: NodeWatch, tenant: Tenant) -> None:
    tenant.serve("strict", "gpu-1")
    tenant.budget("strict", minAvailable=1)
    tenant.serve("pair", "gpu-2")
    tenant.budget("pair", maxUnavailable=1)
    tenant.serve("other-half", "gpu-3", part_of="pair", gpus=0)
    tenant.change("deployment/other-half", at("gone"))
    tenant.bare("notebook", "gpu-4")
    tenant.serve("monitor", "gpu-5", gpus=0, runtimeClassName="nvidia")
    tenant.serve("prober", "gpu-6", gpus=0, volumes=[{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}])
    held = {"gpu-1": "BudgetBlocks", "gpu-2": "BudgetUsedUp", "gpu-4": "ProtectedPods", "gpu-5": "HeldDevices",
            "gpu-6": "HeldDevices"}
    drivers = driver_pods(installed)

    start_rollout(installed, "580.95.05")
    wait_for_rest(watch, *held)
    assert reasons(installed) == held
    space = tenant.name
    explained(installed, "gpu-1", f"disruption budget {space}/strict would never let pod", "allow 1 disruption, not 0")
    explained(installed, "gpu-2", f"disruption budget {space}/pair lets none go now")
    explained(installed, "gpu-4", f"pod {space}/notebook has to leave", f"kubectl delete pod notebook -n {space}")
    explained(installed, "gpu-5", "of ReplicaSet monitor-", "runtimeClass nvidia", '"deviceHolders":"Evict"')
    explained(installed, "gpu-6", "/dev/nvidia0")
    before = driver_pods(installed)
    assert {name for name in held if before[name] == drivers[name]} == held.keys()
    assert not any(sight.unschedulable for name in held for sight in seen_at(watch, name))

    tenant.change("poddisruptionbudget/strict", {"minAvailable": 0})
    tenant.change("deployment/other-half", at("gpu-3"))
    tenant.kubectl("delete", "pod", "notebook")
    wait_for_rest(watch, "gpu-5", "gpu-6")
    rollout_policy(installed, deviceHolders="Evict")
    wait_for_rest(watch)
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())


def at(node: str) -> dict[str, Any]:
    """Return what puts the pods of a Deployment on another node: the old ones go first."""
    return {"strategy": {"type": "Recreate", "rollingUpdate": None}, "template": {"spec": {"nodeSelector": {HOST: node}}}}


def test_a_pod_that_is_refused(installed: Plane, watch: NodeWatch, tenant: Tenant) -> None:
    """Somebody else uses a budget up while a job is awaited: the pod is refused, the node fails, and is tried again by itself."""
    rollout_policy(installed, retryBackoff="3s")
    tenant.job("training", "gpu-1")
    tenant.serve("pair", "gpu-1")
    tenant.serve("other-half", "gpu-2", part_of="pair", gpus=0)
    tenant.budget("pair", maxUnavailable=1)
    with installed.audited() as requests:
        start_rollout(installed, "580.82.07", waitForCompletion={"podSelector": "app=training", "timeoutSeconds": 0},
                      podDeletion={"timeoutSeconds": 10})
        wait_for_states(watch, gpu_1="wait-for-jobs-required")
        wait_for_rest(watch, "gpu-1")
        assert reasons(installed) == {"gpu-1": "JobsRunning"}
        installed.kubectl("cordon", "gpu-2")
        evict(tenant, tenant.pod("other-half"))
        tenant.kubectl("delete", "job", "training")
        wait_for_states(watch, gpu_1="upgrade-failed")
        failure = record(installed, "gpu-1").failure
        watch.wait_for("it is tried again, in vain", lambda now: now["gpu-1"].state == "upgrade-required")
        eventually("it is held", lambda: reasons(installed).get("gpu-1") == "BudgetUsedUp")
        assert not seen_at(watch, "gpu-1")[-1].unschedulable
        installed.kubectl("uncordon", "gpu-2")
        wait_for_rest(watch)
    assert failure is not None
    assert f"after 10 s these were still there: {tenant.name}/pair-" in failure.cause
    assert "disruption budget" in failure.cause
    [attempts] = [each for each in evictions(requests, tenant.name).values() if each[0][1] == 429]
    assert [code for _, code in attempts] == [429, 429, 429, 201]
    assert all(later - earlier >= FIRST_RETRY for (earlier, _), (later, _) in pairwise(attempts))


def evict(tenant: Tenant, pod: dict[str, Any]) -> None:
    """Evict a pod as anybody may."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": tenant.name}}
    path = f"/api/v1/namespaces/{tenant.name}/pods/{name}/eviction"
    tenant.plane.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(body))


def test_pods_are_killed_at_the_deadline(installed: Plane, watch: NodeWatch, tenant: Tenant) -> None:
    """Whatever its budget says, but with its own grace period."""
    rollout_policy(installed, killAtDeadline=True)
    tenant.serve("strict", "gpu-1", terminationGracePeriodSeconds=7)
    tenant.budget("strict", maxUnavailable=0)
    born = tenant.pod("strict")["metadata"]
    pod = born["name"]
    finalizers(tenant, pod, STUCK)
    start_rollout(installed, "580.95.05", podDeletion={"timeoutSeconds": 3})
    wait_for_rest(watch, "gpu-1")
    tenant.kubectl("wait", f"pod/{pod}", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=60s")
    graces = [each.get("deletionGracePeriodSeconds") for each in history(tenant, born)]
    assert next(grace for grace in graces if grace is not None) == 7
    assert reasons(installed) == {"gpu-1": "Killing"}
    finalizers(tenant, pod)
    wait_for_rest(watch)


def history(tenant: Tenant, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the metadata of a pod was like from then on."""
    selected = f"watch=true&timeoutSeconds=1&fieldSelector=metadata.name={pod['name']}&resourceVersion={pod['resourceVersion']}"
    said = tenant.kubectl("get", "--raw", f"/api/v1/namespaces/{tenant.name}/pods?{selected}")
    return [json.loads(line)["object"]["metadata"] for line in said.splitlines()]


def finalizers(tenant: Tenant, pod: str, *present: str) -> None:
    """Set a pod's finalizers."""
    tenant.kubectl("patch", "pod", pod, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": list(present)}}))


def test_a_driver_that_never_gets_ready(installed: Plane, watch: NodeWatch, tenant: Tenant) -> None:
    """Two nodes fail at their deadline, which are too many, and somebody says that the rollout may go on."""
    rollout_policy(installed, failureBudget={"nodes": 1, "percent": 0}, retries=0, deadlines={"pod-restart-required": "5s"})
    start_rollout(installed, BROKEN, maxParallelUpgrades=2)
    watch.wait_for("two have failed", lambda now: [sight.state for sight in now.values()].count("upgrade-failed") == 2)
    failed = sorted(name for name, sight in watch.moments[-1].items() if sight.state == "upgrade-failed")
    assert all(seen_at(watch, name)[-1].unschedulable for name in failed), "their drivers are gone"
    failure = record(installed, failed[0]).failure
    assert failure is not None
    assert re.fullmatch(r"still waits for driver pod \S+ to get ready, after 5 s", failure.cause)
    installed.kubectl("wait", "clusterpolicy/cluster-policy", "--timeout=60s",
                      "--for=jsonpath={.status.conditions[?(@.type=='DriverUpgrade')].reason}=FailureBudgetExceeded")
    held = reasons(installed)
    assert [held.pop(name) for name in failed] == ["Failed", "Failed"]
    assert set(held.values()) == {"FailureBudget"}
    explained(installed, min(held), f"2 of 8 nodes failed ({', '.join(failed)}) and 1 may", "gpuward resume")
    assert "FailureBudget" in installed.gpuward("status", "-o", "json")
    assert "2 failed nodes no longer count" in installed.gpuward("resume")
    watch.wait_for("another one begins", lambda now: any(sight.state == "pod-restart-required" for sight in now.values()))
    rollout_policy(installed, failureBudget={"nodes": 1, "percent": 0}, retries=0)
    start_rollout(installed, "580.82.07")
    wait_for_rest(watch)
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())


def test_a_pause_in_the_middle(installed: Plane, watch: NodeWatch, tenant: Tenant) -> None:
    """A node in mid-upgrade and one that waits: neither is touched while upgrades are off, and both are done later."""
    tenant.serve("served", "gpu-1")
    stuck = tenant.pod("served")["metadata"]["name"]
    finalizers(tenant, stuck, STUCK)
    tenant.bare("notebook", "gpu-2")
    start_rollout(installed, "580.95.05")
    wait_for_states(watch, gpu_1="pod-deletion-required")
    wait_for_rest(watch, "gpu-1", "gpu-2")
    drivers = driver_pods(installed)

    before = record(installed, "gpu-1")
    start_rollout(installed, "580.95.05", autoUpgrade=False)
    wait_for_states(watch, gpu_2="", gpu_3="")
    eventually("the clock stands still", lambda: record(installed, "gpu-1").paused > 0)
    with installed.audited() as requests:
        finalizers(tenant, stuck)
        tenant.kubectl("delete", "pod", "notebook")
        tenant.kubectl("wait", "--for=delete", f"pod/{stuck}", "--timeout=60s")
        assert reasons(installed) == {"gpu-1": "Paused", "gpu-2": "Paused"}
        explained(installed, "gpu-1", "upgrades are paused", "autoUpgrade")
    asked = [entry for entry in requests if entry["user"]["username"] == OPERATOR and entry["objectRef"]["resource"] == "pods"]
    assert [entry["requestURI"] for entry in asked if entry["verb"] in WRITES] == []
    assert driver_pods(installed) == drivers
    paused = record(installed, "gpu-1")
    assert paused.cordon == before.cordon
    assert (paused.state, paused.since) == (before.state, before.since)
    assert seen_at(watch, "gpu-1")[-1].unschedulable

    start_rollout(installed, "580.95.05")
    wait_for_rest(watch)
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())
