"""Nodes that an edited selector leaves to no NVIDIADriver: that they lose their driver is said before they do."""

from __future__ import annotations

import json
from pathlib import Path

from gpuward.cli.plan import lines as lines_of_plan
from gpuward.model.states import State
from tests.journeys.looking import condition_of, headline_of, status_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_moves import with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_plan import plan_of


def test_nodes_that_a_mistyped_selector_leaves_to_nobody_are_said_to_lose_their_driver_before_they_do(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await label_pools(stage, x="gpu-1 gpu-2 gpu-3")
        await make(stage, nvidia_driver("x", {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": 1}))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(30)
        await stage.until(lambda: stage.all_are(State.DONE) and len(driver_pods(stage)) == 3, within=3600)
        await with_workloads(stage)
        await stage.rest(60)
        loses = ("NVIDIADriver x selects 3 nodes no more, nor does another one: they lose the driver, each once it is emptied; "
                 "correct nodeSelector or the labels to keep it")
        mistyped = nvidia_driver("x", {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": 1})
        mistyped["spec"]["nodeSelector"] = {"pool": "xx"}
        (tmp_path / "mistyped.json").write_text(json.dumps(mistyped))
        assert f"warning: {loses}" in list(lines_of_plan(await plan_of(stage, "", tmp_path / "mistyped.json")))
        await set_driver(stage, "x", {"nodeSelector": {"pool": "xx"}})
        await stage.until(lambda: any(stage.cordons()), within=60)
        assert loses in await headline_of(stage)
        assert loses in condition_of(stage)[2]
        waiting = next(one for one in (await status_of(stage))["nodes"] if one["reason"] == "UnavailableLimit")
        assert waiting["driver"]["wanted"] is None, "it is to have none"
        said = [line["msg"] for line in stage.log]
        assert not any("new driver" in line for line in said[-20:]), said[-20:]
        assert any("to lose the driver, and none comes after it" in line for line in said), said[-20:]
        await set_driver(stage, "x", {"nodeSelector": {"pool": "x"}})
        await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"), within=3600)
        assert "no more" not in await headline_of(stage)

    story()
