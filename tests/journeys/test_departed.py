"""An NVIDIADriver that was deleted by mistake: its driver goes from its nodes, and people who would stop that are told how."""

from __future__ import annotations

import pytest

from gpuward.cli.nodes import skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.errors import GpuwardError
from gpuward.model.states import State
from tests.cli.verbs import said
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_removed import DEFAULT, NVIDIADRIVER, installed, remove
from tests.journeys.test_waves import abort


@on_stage(gpu_nodes=3)
async def test_a_verb_that_cannot_stop_it_names_what_can(stage: Stage) -> None:
    await installed(stage, NVIDIADRIVER, out=1)
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    told = "NVIDIADriver default was deleted, and its driver goes from its nodes"
    for driver in ("", DEFAULT):
        with pytest.raises(GpuwardError, match=told):
            await said(pause_rollouts(stage.user, driver, dry_run=False))
        with pytest.raises(GpuwardError, match=told):
            await abort(stage, driver)
    kept = next(name for name, state in stage.states().items() if state == State.UPGRADE_REQUIRED)
    await said(skip_nodes(stage.user, [kept], undo=False, dry_run=False))
    await stage.rest(1800)
    assert [node for node in stage.states() if driver_pods(stage, node)] == [kept]
    assert (stage.driver(kept), stage.cordoned(kept)) == (OLD, False)
