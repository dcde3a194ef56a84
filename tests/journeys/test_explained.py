"""A node that is held says so wherever people look: events, the policy's condition, metrics."""

from __future__ import annotations

from gpuward import names
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.stage import Object, Stage, on_stage


def rollout(stage: Stage) -> Object:
    """Return the condition of the driver upgrade."""
    return next((one for one in stage.policy_status().get("conditions", ()) if one["type"] == "DriverUpgrade"), {})


def held_events(stage: Stage, node: str) -> list[tuple[str, str]]:
    """Return type and message of the events that say why a node is held."""
    return [(event["type"], event["message"]) for event in stage.sandbox.store.list("events", "default")
            if event["reason"] == names.HELD_EVENT_REASON and event["involvedObject"]["name"] == node]


def metric(stage: Stage, reason: str) -> str:
    """Return the value of the metric of held nodes."""
    lines = stage.operator.metrics.text().decode().splitlines()
    return next(line.split()[-1] for line in lines if f'held_nodes{{reason="{reason}"}}' in line)


@on_stage(gpu_nodes=2)
async def test_a_node_with_a_bare_gpu_pod_says_so_everywhere(stage: Stage) -> None:
    await stage.installed()
    await stage.until(lambda: rollout(stage).get("reason") == "UpToDate")
    assert stage.condition()["type"] == "Ready"
    stage.run_pod("notebook", "gpu-1")
    await stage.upgrade_to()
    await stage.until(lambda: rollout(stage).get("reason") == "Blocked")
    assert rollout(stage)["status"] == "False"
    await stage.until(lambda: "1 of 2 nodes up to date" in rollout(stage)["message"])
    assert "held: 1 ProtectedPods (gpu-1)" in rollout(stage)["message"]
    ((kind, message),) = held_events(stage, "gpu-1")
    assert kind == "Warning"
    assert message.startswith(f"ProtectedPods: pod {WORKLOAD_NAMESPACE}/notebook has to leave")
    assert held_events(stage, "gpu-2") == []
    assert (metric(stage, "ProtectedPods"), metric(stage, "Skipped")) == ("1.0", "0.0")
    await stage.restart_operator()
    await stage.rest(60)
    assert len(held_events(stage, "gpu-1")) == 1, "what the former leader said is not said again"
    stage.sandbox.store.delete("pods", WORKLOAD_NAMESPACE, "notebook")
    await stage.upgraded()
    await stage.until(lambda: rollout(stage).get("status") == "True")
