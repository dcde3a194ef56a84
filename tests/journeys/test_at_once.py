"""What the rollout waits for is noticed when it happens, and not at the next look."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from tests.journeys.stage import NEW, Stage, on_stage

AT_ONCE = 1.0


@pytest.mark.weakness(31)
@on_stage(gpu_nodes=1)
async def test_a_driver_and_a_validator_that_get_ready_are_noticed_at_once(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    began, ready = stage.clock.now(), dict[str, float]()

    def note(event: Event) -> None:
        meta = event.obj["metadata"]
        if is_ready(event.obj) and not meta.get("deletionTimestamp") and meta["creationTimestamp"] > stamp:
            ready.setdefault(meta["labels"].get("app", ""), stage.clock.now())

    stamp = stage.driver_pod("gpu-1")["metadata"]["creationTimestamp"]
    stop = stage.sandbox.store.subscribe(note, "pods")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    stop()
    entered = {moment.state: moment.at for moment in stage.history if moment.at > began}
    assert 0 <= entered[State.VALIDATION_REQUIRED] - ready[names.DRIVER_APP] < AT_ONCE
    assert 0 <= entered[State.DONE] - ready[names.VALIDATOR_APP] < AT_ONCE


@pytest.mark.weakness(32)
@pytest.mark.parametrize("annotation", [names.UPGRADE_REQUESTED, names.SAFE_LOAD])
def test_a_node_that_asks_by_annotation_is_noticed_at_once(annotation: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.rest(60)
        before = len(stage.events("gpu-1"))
        await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {annotation: "true"}}})
        await stage.rest(AT_ONCE)
        assert any("cordon-required" in text for text in stage.events("gpu-1")[before:])

    play()
