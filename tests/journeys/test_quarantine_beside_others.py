"""What other controllers are told of a node in quarantine, about which nothing is done any more."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.told import DRAIN_IN_PROGRESS
from tests.journeys.maintenance_operator import MaintenanceOperator, watch_evictions
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_node_conditions import TOLD, told
from tests.journeys.test_node_maintenance import ASKED, noted
from tests.journeys.test_removed import MODES, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_undrainable import free
from tests.journeys.test_windows import ask

QUARANTINE = {"behaviour": "Quarantine", "after": "3m"}


@MODES
def test_others_are_maintained_in_the_place_of_a_node_in_quarantine(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=2)
        (old,) = stage.drivers()
        await stage.deploy("serving", 1, node="gpu-1", max_unavailable=1)
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED, undrainable=QUARANTINE)
        for node in ("gpu-2", "gpu-3"):
            await stage.label(node, names.UPGRADE_SKIP, "true")
        await stage.rest(5)
        wrong = watch_evictions(stage, operator)
        await ask(stage, mode)
        await stage.until(lambda: bool(operator.objects()))
        stage.set_budget("serving", 0)
        await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=3600)
        await stage.until(lambda: not operator.objects() and noted(stage) is None)
        assert (stage.cordoned("gpu-1"), stage.driver("gpu-1")) == (True, old)
        for node in ("gpu-2", "gpu-3"):
            await stage.label(node, names.UPGRADE_SKIP, None)
        await stage.until(lambda: stage.driver("gpu-2") != old and stage.driver("gpu-3") != old, within=3600)
        await stage.restart_operator()
        await stage.rest(60)
        assert stage.hold("gpu-1") == "Quarantined"
        stage.set_budget("serving", 1)
        await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-required")
        await stage.until(lambda: old not in stage.drivers() and not operator.objects() and not stage.cordons(), within=3600)
        assert (wrong, operator.lifted) == ([], [])
        operator.stop()

    scenario()


async def kept_pod(stage: Stage) -> None:
    """Run a pod that a finalizer keeps."""
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]
    body = {"metadata": {"finalizers": ["example.com/kept"]}}
    await stage.user.patch_merge(resources.PODS, pod["name"], body, pod["namespace"])


@on_stage(gpu_nodes=1)
async def test_a_node_whose_quarantine_is_forgotten_asks_for_leave_anew(stage: Stage) -> None:
    await stage.installed()
    await kept_pod(stage)
    operator = MaintenanceOperator.installed(stage)
    await apply(stage, interop=ASKED, undrainable=QUARANTINE)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined" and not operator.objects(), within=3600)
    operator.parallel = 0
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
    await stage.until(lambda: stage.hold("gpu-1") == "MaintenanceAwaited")
    await free(stage, "gpu-1")
    await stage.rest(600)
    assert stage.drivers() == [OLD]
    operator.parallel = 1
    await stage.upgraded(NEW)
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_node_in_quarantine_is_said_to_be_drained_no_more(stage: Stage) -> None:
    await stage.installed()
    await kept_pod(stage)
    await apply(stage, interop=TOLD, undrainable=QUARANTINE)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: told(stage, "gpu-1") == {DRAIN_IN_PROGRESS: "True"})
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=3600)
    await stage.until(lambda: told(stage, "gpu-1") == {})
    await free(stage, "gpu-1")
    await stage.upgraded(NEW)
    assert told(stage, "gpu-1") == {}
