"""Nodes whose driver pod no DaemonSet makes, as for a taint: those on call are told, and others do not wait in silence."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gpuward.kube import resources
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_metrics import Scrape

ALERTS = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
HELD_SINCE = "gpuward_driver_upgrade_held_since_timestamp_seconds"


async def taint(stage: Stage, node: str) -> None:
    """Give a node a taint that no operand tolerates; its pods have to go."""
    taints = [{"key": "maintenance", "value": "true", "effect": "NoExecute"}]
    await stage.user.patch_merge(resources.NODES, node, {"spec": {"taints": taints}})


def paged(stage: Stage) -> set[str]:
    """Return the reasons for which GpuwardNodeHeld fires now."""
    (expr,) = (rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
               if rule["alert"] == "GpuwardNodeHeld")
    reasons = re.findall(r'reason=~"([^"]*)"', expr)[0].split("|")
    seen = Scrape(stage)
    return {reason for reason, since in seen.by(HELD_SINCE, "reason").items() if reason in reasons and seen.at - since > 1800}


@on_stage(gpu_nodes=2)
async def test_an_alert_tells_of_a_node_that_was_done_and_has_lost_its_driver_pod(stage: Stage) -> None:
    await stage.installed()
    await taint(stage, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
    assert paged(stage) == set(), "mostly that takes seconds"
    await stage.rest(2000)
    assert paged(stage) == {"DriverPodMissing"}
    assert stage.policy_status()["state"] == "ready", "nothing else tells of it: no pod is wanted there"
