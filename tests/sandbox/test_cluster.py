from __future__ import annotations

import asyncio
import json

from gpuward.names import UPGRADE_ENABLED
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import fleet, gpu_node, operator_place, workloads
from gpuward.sandbox.machine import HOST_DRIVER_ANNOTATION
from kubesandbox.builders import namespace
from kubesandbox.sim.objects import is_ready
from sandbox_helpers.virtual import started, virtual_with
from tests.sandbox.build import driver, labelled_gpu_node, stack

with_sandbox = virtual_with(lambda: started(Sandbox()))


def ready_pods(sandbox: Sandbox, namespace: str) -> int:
    return sum(map(is_ready, sandbox.store.list("pods", namespace)))


@with_sandbox
async def test_a_fleet_with_a_stack_and_workloads_comes_up(sandbox: Sandbox) -> None:
    for obj in (*operator_place(), *workloads(inference=4, training=2, web=3)):
        sandbox.apply(obj)
    for number in (1, 2):
        sandbox.add_node(labelled_gpu_node(f"gpu-{number}"))
    for daemonset in stack():
        sandbox.apply(daemonset)
    await sandbox.until(lambda: ready_pods(sandbox, "gpu-operator") == 13 and ready_pods(sandbox, "ml") == 9)
    budget = sandbox.store.get("poddisruptionbudgets.policy", "ml", "inference")
    assert budget["status"]["disruptionsAllowed"] == 1
    assert sandbox.machine("gpu-1").driver == "550.90.07"


@with_sandbox
async def test_an_eviction_asks_the_budget(sandbox: Sandbox) -> None:
    node = gpu_node("gpu-1")
    node["metadata"]["annotations"][HOST_DRIVER_ANNOTATION] = "550.90.07"
    node["status"]["allocatable"]["nvidia.com/gpu"] = node["status"]["capacity"]["nvidia.com/gpu"] = "8"
    sandbox.add_node(node)
    for obj in workloads(inference=4, training=0, web=0):
        sandbox.apply(obj)
    await sandbox.until(lambda: ready_pods(sandbox, "ml") == 4)
    await asyncio.sleep(1)
    transport = sandbox.transport()
    answers = []
    for pod in sandbox.store.list("pods", "ml"):
        name = pod["metadata"]["name"]
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "ml"}})
        answers.append(await transport.request(
            "POST", f"/api/v1/namespaces/ml/pods/{name}/eviction", body=body.encode()))
    assert [answer.status for answer in answers] == [201, 429, 429, 429]
    await sandbox.until(lambda: sandbox.store.get(
        "poddisruptionbudgets.policy", "ml", "inference")["status"]["disruptionsAllowed"] == 0)
    await sandbox.until(lambda: ready_pods(sandbox, "ml") == 4 and sandbox.store.get(
        "poddisruptionbudgets.policy", "ml", "inference")["status"]["disruptionsAllowed"] == 1)


@with_sandbox
async def test_a_namespace_that_is_deleted_takes_its_contents_along(sandbox: Sandbox) -> None:
    for node in fleet(1):
        sandbox.add_node(node)
    for obj in workloads(inference=1, training=1, web=2):
        sandbox.apply(obj)
    await sandbox.until(lambda: ready_pods(sandbox, "ml") == 2)
    sandbox.store.delete("namespaces", None, "ml")
    await sandbox.until(lambda: sandbox.store.find("namespaces", None, "ml") is None, timeout=60)
    assert not sandbox.store.list("pods", "ml")
    assert not sandbox.store.list("replicasets.apps", "ml")


@with_sandbox
async def test_the_driver_manager_evicts_gpu_pods_only_as_their_budget_allows(sandbox: Sandbox) -> None:
    node = labelled_gpu_node("gpu-1")
    del node["metadata"]["annotations"][UPGRADE_ENABLED]
    sandbox.add_node(node)
    for obj in (namespace("gpu-operator"), *stack("550.1"), *workloads(inference=2, training=0, web=0, max_unavailable=0)):
        sandbox.apply(obj)
    await sandbox.until(lambda: ready_pods(sandbox, "gpu-operator") == 6 and ready_pods(sandbox, "ml") == 2)
    sandbox.apply(driver("560.1"))
    pod = next(pod for pod in sandbox.store.list("pods", "gpu-operator") if "driver-daemonset" in pod["metadata"]["name"])
    sandbox.store.delete("pods", "gpu-operator", pod["metadata"]["name"])
    await asyncio.sleep(120)
    assert ready_pods(sandbox, "ml") == 2
    assert sandbox.machine("gpu-1").driver == "550.1"
    assert sandbox.store.get("nodes", None, "gpu-1")["spec"]["unschedulable"] is True
    sandbox.store.modify("poddisruptionbudgets.policy", "ml", "inference",
                         lambda obj: obj["spec"].update(maxUnavailable=2))
    await sandbox.until(lambda: sandbox.machine("gpu-1").driver == "560.1", timeout=120)
