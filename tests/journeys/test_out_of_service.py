"""How long an upgrade keeps a node out of service: the validator's pod, whose shell ignores SIGTERM, may not hold it up."""

from __future__ import annotations

import pytest

from gpuward import names
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_unplaced import ask_for, installed_by, is_served

OUT_OF_SERVICE = 55
"""Seconds, of which the simulated driver takes most; 30 more were the grace that a validator pod has by itself."""


@pytest.mark.parametrize("owner", ["clusterpolicy", "nvidiadriver", "precompiled"])
def test_a_validator_pod_ends_at_once_where_it_lets_its_node_wait(owner: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        (before,) = stage.pods(names.VALIDATOR_APP, "gpu-1")
        version = NEW if owner != "precompiled" else "581"
        await ask_for(stage, owner, version=version)
        await stage.until(lambda: stage.cordoned("gpu-1"))
        begun = stage.clock.now()
        await stage.until(lambda: validator_ends(stage, before["metadata"]["uid"]))
        told = stage.clock.now()
        await stage.until(lambda: not validator_ends(stage, before["metadata"]["uid"]))
        assert stage.clock.now() - told < 4, "told to end by the driver manager, told by gpuward to hurry, and killed"
        await stage.until(lambda: is_served(stage))
        assert stage.clock.now() - begun < OUT_OF_SERVICE

    play()


def validator_ends(stage: Stage, uid: str) -> bool:
    return any(pod["metadata"]["uid"] == uid and "deletionTimestamp" in pod["metadata"]
               for pod in stage.pods(names.VALIDATOR_APP, "gpu-1"))
