"""A driver whose DaemonSet the API server does not take is told wherever people look, in every place where drivers come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuward.kube import resources
from tests.journeys.looking import condition_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import set_driver

MODES = ["plain", "precompiled", "nvidiadriver"]
REFUSED = {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}


async def installed(stage: Stage, mode: str) -> None:
    if mode == "nvidiadriver":
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()
    await stage.until(lambda: condition_of(stage)[0] == "True")


async def change(stage: Stage, mode: str, fields: Mapping[str, object]) -> None:
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": fields})
    else:
        await set_driver(stage, fields)


def conditions(stage: Stage, mode: str) -> dict[str, Any]:
    """Return the conditions of what says which driver there should be, by type."""
    status = stage.get("nvidiadrivers.nvidia.com", "a", "")["status"] if mode == "nvidiadriver" else stage.policy_status()
    return {condition["type"]: condition for condition in status["conditions"]}


@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_its_daemonset_does_not_have_is_not_called_up_to_date(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        version = "590" if mode == "precompiled" else NEW
        before = stage.drivers()
        await change(stage, mode, {"version": version, "resources": REFUSED})
        await stage.rest(300)
        assert stage.drivers() == before
        assert condition_of(stage)[:2] == ("False", "DriverNotApplied")
        assert conditions(stage, mode)["Ready"]["status"] == "False"
        await change(stage, mode, {"resources": None})
        await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
        assert set(stage.drivers()) == {version}

    story()


@on_stage(gpu_nodes=2)
async def test_an_nvidiadrivers_conditions_say_of_which_generation_they_are(stage: Stage) -> None:
    await installed(stage, "nvidiadriver")
    assert set(stage.drivers()) == {OLD}
    await change(stage, "nvidiadriver", {"version": NEW})
    driver = stage.get("nvidiadrivers.nvidia.com", "a", "")
    await stage.until(lambda: conditions(stage, "nvidiadriver")["Ready"].get("observedGeneration")
                      == driver["metadata"]["generation"])
    assert conditions(stage, "nvidiadriver")["Ready"]["status"] == "False"
    assert condition_of(stage)[0] == "False"
    await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
    assert set(stage.drivers()) == {NEW}
