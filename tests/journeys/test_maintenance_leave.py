"""A leave that was given back is asked for anew, and a node that waits for one says why."""

from __future__ import annotations

from tests.journeys.maintenance_operator import KEY, MaintenanceOperator, watch_evictions
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_node_maintenance import ASKED, noted
from tests.journeys.test_rolloutpolicy import apply

AUTO = "driver/upgradePolicy/autoUpgrade"


async def waiting(stage: Stage) -> MaintenanceOperator:
    """Bring a node to where it waits for leave."""
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    return operator


@on_stage(gpu_nodes=1)
async def test_a_cordon_that_is_lifted_in_a_pause_keeps_no_node_waiting_for_what_nobody_asked_for(stage: Stage) -> None:
    operator = await waiting(stage)
    await stage.patch_policy(AUTO, False)
    await stage.until(lambda: not operator.objects() and noted(stage) is None)
    await stage.cordon("gpu-1", False)
    await stage.rest(10)
    operator.parallel = 1
    wrong = watch_evictions(stage, operator)
    await stage.patch_policy(AUTO, True)
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    assert (wrong, stage.cordons(), operator.lifted) == ([], [], [])
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_after_another_requestor_gave_the_node_back_it_is_cordoned_by_the_upgrade(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=2)
    stage.sandbox.apply({"apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance",
                         "metadata": {"name": "network-gpu-1", "namespace": "gpu-operator"},
                         "spec": {"requestorID": "network.example", "nodeName": "gpu-1"}})
    await stage.until(lambda: operator.phase("gpu-1") == "Ready")
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: len(operator.objects()) == 2)
    await stage.rest(60)
    operator.parallel = 0
    stage.sandbox.store.delete(KEY, "gpu-operator", "network-gpu-1")
    await stage.until(lambda: operator.lifted == ["gpu-1"])
    await stage.rest(5)
    assert stage.cordons() == ["gpu-1"]
    operator.parallel = 1
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    assert (operator.lifted, stage.cordons()) == (["gpu-1"], [])
    operator.stop()
