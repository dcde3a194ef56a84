"""What `gpuward plan` says of the objects that would be written: the command that it names shows them."""

from __future__ import annotations

import json
from pathlib import Path

from gpuward.cli.diff import compared
from gpuward.cli.plan import lines
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_plan import SPACE, lists_only, plan_of


def test_the_diff_that_a_plan_names_shows_what_it_writes(tmp_path: Path) -> None:
    file = tmp_path / "next one.json"

    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        first = "written first: change DaemonSet gpu-operator/nvidia-driver-daemonset"
        assert first in list(lines(await plan_of(stage, NEW))), "no policy asks for that version, so no command shows it"
        body = json.loads(json.dumps(stage.get("clusterpolicies.nvidia.com", POLICY, "")))
        body["spec"]["driver"]["version"] = NEW
        file.write_text(json.dumps(body))
        assert f"{first}. `gpuward diff --policy '{file}'` shows what" in list(lines(await plan_of(stage, "", file)))
        _, shown = await compared(lists_only(stage), [str(file)], SPACE)
        assert [one.ref.name for one in shown] == ["nvidia-driver-daemonset"]
        await stage.kill_operator()
        await stage.upgrade_to(NEW)
        assert f"{first}. `gpuward diff` shows what" in list(lines(await plan_of(stage)))

    story()
