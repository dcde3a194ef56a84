"""Gangs on paper before they are in the cluster: a rehearsal knows them by what a capture keeps."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.model.states import State
from gpuward.rehearse.assumptions import DrawnDelays
from gpuward.rehearse.captured import Captured
from gpuward.report.when import When
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import NEW, playing
from tests.journeys.test_gangs import Alike, Evictions, at, gang_template
from tests.journeys.test_plan import plan_of, started
from tests.journeys.test_rehearse import EXACT, capture, installed, of
from tests.journeys.test_rolloutpolicy import apply

LIMITS = {"maxParallelUpgrades": 2, "maxUnavailable": "100%"}


def template(mark: str) -> dict[str, Any]:
    made = gang_template()
    if mark != names.JOBSET_NAME:
        del made["metadata"]["labels"][names.JOBSET_NAME]
        made["metadata"].setdefault("annotations", {})[mark] = "train"
    return made


@pytest.mark.parametrize("mark", [names.JOBSET_NAME, names.VOLCANO_POD_GROUPS[0]])
def test_a_rehearsal_lets_a_gang_leave_together_as_the_cluster_then_does(mark: str) -> None:
    happened: dict[str, Any] = {}

    async def play() -> Captured:
        async with playing(Alike(3, delays=DrawnDelays(EXACT, 0), upgrade=LIMITS)) as stage:
            await installed(stage)
            await apply(stage, gangs={})
            await stage.deploy("lone", 1, node="gpu-2")
            await stage.rest(60)
            stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, 2, template(mark)))
            await stage.until(lambda: sum(map(is_ready, stage.workload_pods("train"))) == 2)
            happened["gang"] = at(stage)
            await stage.rest(60)
            found = await capture(stage)
            planned = await plan_of(stage, version=NEW)
            happened["planned"] = [one.node for one in sorted(planned.nodes, key=lambda one: one.place)]
            happened["when"] = {one.node: one.when for one in planned.nodes}
            seen = Evictions(stage)
            await stage.upgrade_to(NEW)
            await stage.until(lambda: len(started(stage)) == 3 and stage.all_are(State.DONE), 7200)
            happened.update(order=started(stage), lasted=seen.lasted)
            return found

    run = of(play).first
    assert happened["order"] == ["gpu-2", *happened["gang"]]
    assert list(run.order) == happened["order"] == happened["planned"]
    assert happened["lasted"] < 5
    begun = {node.name: node.started for node in run.nodes}
    assert begun[happened["gang"][0]] == pytest.approx(begun[happened["gang"][1]], abs=2)
    assert [happened["when"][name] for name in happened["order"]] == [When.NOW, When.NEXT, When.NEXT]
