"""Precompiled drivers of several kernels: what is said of one that fails is said of the nodes with its kernel alone."""

from __future__ import annotations

import pytest

from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of
from tests.journeys.stage import POLICY, Stage, on_stage
from tests.journeys.test_moves import be_precompiled

KERNELS = {"5.15.0-101-generic": ("gpu-1", "gpu-2"), "6.8.0-45-generic": ("gpu-3", "gpu-4")}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_driver_that_fails_for_one_kernel_stops_the_nodes_with_that_and_is_said_of_them(kernel: str) -> None:
    @on_stage(gpu_nodes=4)
    async def story(stage: Stage) -> None:
        await be_precompiled(stage)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 1)
        stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*590-{kernel}*"))
        others = [node for found, nodes in KERNELS.items() if found != kernel for node in nodes]
        await stage.patch_policy("driver/version", "590")
        tried, waits = KERNELS[kernel]
        await stage.until(lambda: stage.hold(tried) == "DriverFailing")
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 2)
        await stage.until(lambda: stage.hold(waits) == "NewDriverFails")
        await stage.rest(5)
        if not all(stage.state(node) == State.DONE for node in others):
            assert condition_of(stage)[1] == "Progressing"
        await stage.until(lambda: all(stage.state(node) == State.DONE for node in others))
        await stage.rest(60)
        assert condition_of(stage)[:2] == ("False", "NewDriverFails")
        assert await headline_of(stage) == (
            f"ClusterPolicy {POLICY}: 2 of 4 nodes up to date, 1 under way in trouble; the rollout has stopped for nodes with "
            f"kernel {kernel}: the new driver does not come up on {tried}")
        told = reason_of(await explanation_of(stage, waits))
        assert told.startswith(f"no more nodes with kernel {kernel} start: none of them is up to date with the new driver yet, "
                               f"and node {tried} is in trouble with it")

    story()
