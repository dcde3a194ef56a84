"""Gangs that can never leave their nodes at once, and start anew as a whole: their parts leave soon after one another."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.kube import resources
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from kubesandbox.timeloop import LoopClock
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_domains import RACK, WIDE
from tests.journeys.test_gangs import Alike, Evictions, gang_template
from tests.journeys.test_rolloutpolicy import apply

HALL = "example.com/hall"


@pytest.mark.parametrize("bound", [
    {"domains": {"key": HALL}},
    {"domains": {"key": RACK, "mode": "Whole"}},
    {"waves": [{"name": "one", "nodeSelector": {HALL: "h"}, "maxUnavailable": 1}]},
], ids=["spread", "whole", "wave"])
def test_a_gang_that_no_limit_lets_leave_at_once_is_not_spared_in_between(bound: dict[str, Any]) -> None:
    @on_stage(gpu_nodes=2, kind=Alike, upgrade=WIDE)
    async def scenario(stage: Stage) -> None:
        for node, rack in (("gpu-1", "a"), ("gpu-2", "b")):
            await stage.label(node, RACK, rack)
            await stage.label(node, HALL, "h")
        await stage.installed()
        stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, 2, gang_template()))
        await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 2)
        await apply(stage, gangs={}, **bound)
        await stage.rest(10)
        seen, begun = Evictions(stage), LoopClock().now()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: seen.seen)
        for pod in stage.workload_pods():  # as a JobSet does when one of its pods has gone
            if not pod["metadata"].get("deletionTimestamp"):
                await stage.user.delete(resources.PODS, pod["metadata"]["name"], namespace=WORKLOAD_NAMESPACE)
        await stage.upgraded(NEW, within=3600)
        assert stage.most_in_progress == 1
        assert LoopClock().now() - begun < 1800

    scenario()
