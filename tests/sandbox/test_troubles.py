"""Faults that a node's annotation brings about, and that end when it goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node, gpu_node
from kubesandbox.builders import deployment, namespace, template
from kubesandbox.messages import Answer, Request
from kubesandbox.sim.objects import condition, is_ready
from kubesandbox.timeloop import run_virtual

Object = dict[str, Any]
FAULT = "sandbox.gpuward.io/fault"
HOUR = 3600.0


def patch(sandbox: Sandbox, node: str, meta: Object) -> Answer:
    """Change a node's metadata through the API, as kubectl does."""
    body = json.dumps({"metadata": meta}).encode()
    answer = sandbox.api.handle(Request("PATCH", f"/api/v1/nodes/{node}", {}, body, "application/merge-patch+json"))
    assert isinstance(answer, Answer)
    return answer


def annotate(sandbox: Sandbox, node: str, value: str | None) -> Answer:
    return patch(sandbox, node, {"annotations": {FAULT: value}})


def play(body: Callable[[Sandbox], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a sandbox with two GPU nodes and one without GPUs."""
    async def main() -> None:
        sandbox = Sandbox()
        await sandbox.start()
        for node in (gpu_node("a"), gpu_node("b"), cpu_node("c")):
            sandbox.add_node(node)
        await sandbox.until(lambda: status(sandbox, "a") == "True")
        await body(sandbox)
        await sandbox.stop()
    run_virtual(main)


def status(sandbox: Sandbox, node: str) -> str:
    found = condition(sandbox.store.get("nodes", None, node), "Ready")
    return found["status"] if found else ""


@pytest.mark.parametrize(("fault", "shown"), [("node-not-ready", "False"), ("node-unreachable", "Unknown")])
def test_a_node_is_in_trouble_while_its_annotation_says_so(fault: str, shown: str) -> None:
    async def body(sandbox: Sandbox) -> None:
        assert annotate(sandbox, "a", fault).status == 200
        await sandbox.until(lambda: status(sandbox, "a") == shown)
        assert status(sandbox, "b") == "True"
        annotate(sandbox, "a", None)
        await sandbox.until(lambda: status(sandbox, "a") == "True")
    play(body)


def test_one_fault_ends_while_another_goes_on() -> None:
    async def body(sandbox: Sandbox) -> None:
        annotate(sandbox, "c", "pod-does-not-end, node-not-ready")
        await sandbox.until(lambda: status(sandbox, "c") == "False")
        annotate(sandbox, "c", "pod-does-not-end")
        await sandbox.until(lambda: status(sandbox, "c") == "True")
        sandbox.apply(namespace("web"))
        pods = template("web", "i", {})
        pods["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "c"}
        sandbox.apply(deployment("web", "web", 1, pods))
        await sandbox.until(lambda: any(map(is_ready, sandbox.store.list("pods", "web"))))
        (pod,) = sandbox.store.list("pods", "web")
        sandbox.store.delete("deployments.apps", "web", "web", propagation="Background")
        with pytest.raises(TimeoutError):
            await sandbox.until(lambda: not sandbox.store.list("pods", "web"), timeout=HOUR)
        annotate(sandbox, "c", None)
        await sandbox.until(lambda: sandbox.store.find("pods", "web", pod["metadata"]["name"]) is None)
    play(body)


def test_the_faults_of_a_node_end_with_the_node() -> None:
    async def body(sandbox: Sandbox) -> None:
        annotate(sandbox, "a", "node-not-ready,driver-crash")
        await sandbox.until(lambda: status(sandbox, "a") == "False")
        sandbox.remove_node("a")
        sandbox.add_node(gpu_node("a"))
        await asyncio.sleep(1.0)
        assert status(sandbox, "a") == "True"
        assert not sandbox.faults.hits("driver-crash", "a", "p")
    play(body)


def test_a_workload_under_a_strict_budget_comes_and_goes() -> None:
    async def body(sandbox: Sandbox) -> None:
        annotate(sandbox, "a", "budget-blocks")
        await sandbox.until(lambda: sandbox.store.list("pods", "ml"))
        (budget,) = sandbox.store.list("poddisruptionbudgets.policy", "ml")
        assert budget["spec"]["maxUnavailable"] == 0
        annotate(sandbox, "a", None)
        await sandbox.until(lambda: not sandbox.store.list("pods", "ml"))
        assert sandbox.store.list("poddisruptionbudgets.policy", "ml") == []
    play(body)


def test_a_webhook_refuses_changes_of_its_node_but_not_the_end_of_the_fault() -> None:
    async def body(sandbox: Sandbox) -> None:
        annotate(sandbox, "a", "webhook-refuses")
        await asyncio.sleep(1.0)
        refused = patch(sandbox, "a", {"labels": {"x": "y"}})
        assert refused.status == 403
        assert json.loads(refused.body)["message"] == (
            'admission webhook "nodes.policy.example.com" denied the request: node a is frozen: its labels, annotations and spec '
            'may not be changed')
        assert patch(sandbox, "b", {"labels": {"x": "y"}}).status == 200
        assert annotate(sandbox, "a", None).status == 200
        await asyncio.sleep(1.0)
        assert patch(sandbox, "a", {"labels": {"x": "y"}}).status == 200
    play(body)


def test_an_unknown_fault_is_refused_with_the_nearest_known_one() -> None:
    async def body(sandbox: Sandbox) -> None:
        refused = annotate(sandbox, "a", "driver-crash,drver-hangs")
        assert refused.status == 422
        assert "there is no fault 'drver-hangs'; did you mean driver-hangs?" in json.loads(refused.body)["message"]
        assert not sandbox.faults.hits("driver-crash", "a", "p")
    play(body)
