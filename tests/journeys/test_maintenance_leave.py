"""A leave that was given back is asked for anew, and a node that waits for one says why."""

from __future__ import annotations

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.maintenance_operator import CRD, KEY, MaintenanceOperator, watch_evictions
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_node_maintenance import ASKED, noted
from tests.journeys.test_rolloutpolicy import apply, edit

AUTO = "driver/upgradePolicy/autoUpgrade"


def told(stage: Stage, node: str = "gpu-1") -> str:
    return sentence(stage.operator.plan.holds[node])


async def serving(stage: Stage) -> str:
    """Run a pod of a Deployment that no budget lets go; return its uid."""
    await stage.deploy("serving", 1, node="gpu-1", max_unavailable=1)
    return str(stage.workload_pods("serving")[0]["metadata"]["uid"])


def runs(stage: Stage, uid: str) -> bool:
    return any(pod["metadata"]["uid"] == uid and not pod["metadata"].get("deletionTimestamp")
               for pod in stage.workload_pods("serving"))


async def evicting(stage: Stage) -> tuple[MaintenanceOperator, str]:
    """Bring a node to where it has leave, and a pod that may not be evicted."""
    await stage.installed()
    pod = await serving(stage)
    operator = MaintenanceOperator.installed(stage)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: bool(operator.objects()))
    stage.set_budget("serving", 0)
    await stage.until(lambda: noted(stage) == "ready")
    await stage.rest(5)
    return operator, pod


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
async def test_after_a_pause_nothing_is_evicted_by_the_leave_of_before(stage: Stage) -> None:
    operator, pod = await evicting(stage)
    operator.stop()  # so that the object stays, in its deletion
    await stage.patch_policy(AUTO, False)
    await stage.until(lambda: bool(operator.objects()[0]["metadata"].get("deletionTimestamp")))
    stage.set_budget("serving", 1)
    await stage.patch_policy(AUTO, True)
    await stage.rest(300)
    assert runs(stage, pod)
    assert told(stage).endswith("the last one is still being deleted")
    wrong = watch_evictions(stage, operator)
    operator.begin()
    await stage.upgraded()
    assert (wrong, stage.cordons()) == ([], [])
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_setting_that_comes_again_asks_again(stage: Stage) -> None:
    operator, pod = await evicting(stage)
    operator.stop()
    await edit(stage, interop={"nodeMaintenance": "Off"})
    await stage.until(lambda: bool(operator.objects()[0]["metadata"].get("deletionTimestamp")))
    await edit(stage, interop=ASKED)
    await stage.rest(5)
    stage.set_budget("serving", 1)
    await stage.rest(300)
    assert runs(stage, pod)
    operator.begin()
    await stage.upgraded()
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_pods_have_all_of_their_time_after_a_leave_that_came_late(stage: Stage) -> None:
    await stage.installed()
    pod = await serving(stage)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, killAtDeadline=True)
    await stage.rest(5)
    await stage.upgrade_to()
    stage.set_budget("serving", 0)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
    await stage.rest(5)
    await edit(stage, interop=ASKED)
    await stage.rest(3600)
    assert runs(stage, pod)
    operator.parallel = 1
    await stage.until(lambda: noted(stage) == "ready")
    await stage.rest(200)
    assert runs(stage, pod), "killed before its time to go was over"
    await stage.upgraded()
    assert State.FAILED not in stage.entered("gpu-1")
    operator.stop()


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


def test_a_node_says_why_its_object_could_not_be_made() -> None:
    refused = [True]

    def webhook(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "POST" and "nodemaintenances" in request.path and refused:
            return refusal(Forbidden("exceeded quota: maintenances"))
        return proceed()

    @on_stage(gpu_nodes=1, interfere=webhook)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        operator = MaintenanceOperator.installed(stage, parallel=0)
        stage.run_pod("training", "gpu-1", owned=True)
        await apply(stage, interop=ASKED)
        await stage.rest(5)
        await stage.upgrade_to()
        await stage.rest(60)
        assert told(stage).endswith("Ready: it could not be made: exceeded quota: maintenances")
        refused.clear()
        await stage.until(lambda: told(stage).endswith("it is Pending"))
        operator.stop()

    scenario()


def test_a_right_to_see_them_that_is_taken_away_has_no_node_cordoned() -> None:
    denied: list[bool] = []

    def roles(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.path.endswith("/nodemaintenances") and request.method == "GET" and denied:
            return refusal(Forbidden("nodemaintenances is forbidden"))
        return proceed()

    @on_stage(gpu_nodes=1, interfere=roles)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.run_pod("training", "gpu-1", owned=True)
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED)
        await stage.rest(5)
        denied.append(True)
        await stage.rest(900)  # a watch notices it when it ends
        await stage.upgrade_to()
        await stage.rest(120)
        assert (stage.cordons(), stage.drivers(), stage.hold("gpu-1")) == ([], [OLD], "MaintenanceUnseen")
        denied.clear()
        await stage.upgraded()
        operator.stop()

    scenario()


@on_stage(gpu_nodes=2)
async def test_after_their_crd_has_gone_no_further_node_is_cordoned_and_what_was_seen_before_is_not_told(stage: Stage) -> None:
    await stage.installed()
    for number in (1, 2):
        stage.run_pod(f"training-{number}", f"gpu-{number}", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: bool(stage.cordons()) and bool(operator.objects()))
    (waits,) = stage.cordons()
    operator.stop()
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, KEY)
    await stage.rest(900)
    assert told(stage, waits).endswith("NodeMaintenances cannot be seen")
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 0)
    await stage.rest(60)
    assert stage.cordons() == [waits]
    stage.sandbox.apply(CRD)


def test_a_process_that_may_not_see_the_rolloutpolicy_asks_for_leave_by_what_is_remembered() -> None:
    denied: list[bool] = []

    def roles(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.path.endswith("/rolloutpolicies") and denied:
            return refusal(Forbidden("rolloutpolicies.gpuward.io is forbidden"))
        return proceed()

    @on_stage(gpu_nodes=1, interfere=roles)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.run_pod("training", "gpu-1", owned=True)
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED)
        await stage.rest(30)
        denied.append(True)
        await stage.restart_operator()
        await stage.rest(60)
        wrong = watch_evictions(stage, operator)
        await stage.upgrade_to()
        await stage.until(lambda: bool(operator.objects()))
        await stage.upgraded(NEW)
        assert wrong == []
        operator.stop()

    scenario()


@on_stage(gpu_nodes=1)
async def test_an_object_of_somebody_else_that_has_the_name_keeps_no_note_on_the_node(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    stage.sandbox.apply({"apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance",
                         "metadata": {"name": "gpuward-gpu-1", "namespace": "gpu-operator"},
                         "spec": {"requestorID": "network.example", "nodeName": "gpu-9"}})
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "MaintenanceAwaited")
    await edit(stage, interop={"nodeMaintenance": "Off"})
    await stage.upgraded()
    await stage.until(lambda: noted(stage) is None)
    assert len(operator.objects()) == 1
    assert names.NODE_MAINTENANCE not in stage.node("gpu-1")["metadata"]["annotations"]
    operator.stop()
