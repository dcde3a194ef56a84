"""A maintenance operator is asked before nodes are emptied: judged from the pods, the cordons and its objects."""

from __future__ import annotations

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of, status_of
from tests.journeys.maintenance_operator import CRD, KEY, MaintenanceOperator, is_kept, watch_evictions
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_cleanup import cleanup, uninstall
from tests.journeys.test_removed import MODES, installed, users
from tests.journeys.test_rolloutpolicy import KEY as POLICIES
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_windows import ask

ASKED = {"nodeMaintenance": "Request"}
ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


def noted(stage: Stage, node: str = "gpu-1") -> str | None:
    return (stage.node(node)["metadata"].get("annotations") or {}).get(names.NODE_MAINTENANCE)


def requests(stage: Stage) -> int:
    return sum(count for key, count in stage.client.stats.requests.items() if key.resource == KEY)


@MODES
def test_no_pod_goes_before_it_is_ready_and_all_is_given_back(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        for number in (1, 2, 3):
            stage.run_pod(f"training-{number}", f"gpu-{number}", owned=True)
        (old,) = stage.drivers()
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED)
        await stage.rest(5)
        wrong = watch_evictions(stage, operator)
        await ask(stage, mode)
        await stage.until(lambda: bool(operator.objects()), within=600)
        assert all(is_kept(one) and one["spec"]["requestorID"] == "gpuward.io" for one in operator.objects())
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=7200)
        await stage.until(lambda: not operator.objects() and not any(noted(stage, node) for node in stage.states()))
        assert (wrong, operator.most, operator.lifted, stage.cordons()) == ([], 1, [], [])
        operator.stop()

    scenario()


@on_stage(gpu_nodes=2)
async def test_without_the_setting_nobody_is_asked(stage: Stage) -> None:
    await stage.installed()
    operator = MaintenanceOperator.installed(stage)
    await apply(stage, interop={"slurm": True})
    await stage.upgrade_to()
    await stage.upgraded()
    assert (requests(stage), operator.objects()) == (0, [])
    operator.stop()


@on_stage(gpu_nodes=2)
async def test_who_looks_sees_them_as_the_operator_does_once_the_rolloutpolicy_is_gone(stage: Stage) -> None:
    await stage.installed()
    operator = MaintenanceOperator.installed(stage)
    await apply(stage, interop=ASKED)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.rest(5)
    assert {one["reason"] for one in (await status_of(stage))["nodes"]} == {"NoNodeMayStart"} == {stage.hold("gpu-1")}
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_node_waits_with_its_pods_and_says_for_what(stage: Stage) -> None:
    await stage.installed()
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    await stage.rest(3600)
    assert (stage.hold("gpu-1"), stage.cordons(), pod in users(stage)) == ("MaintenanceAwaited", ["gpu-1"], True)
    told = "no pod is evicted before NodeMaintenance gpuward-gpu-1 is Ready: it is Pending"
    assert sentence(stage.operator.plan.holds["gpu-1"]) == told
    assert told in str(await explanation_of(stage, "gpu-1"))
    await stage.user.patch_merge(
        resources.NODES, "gpu-1", {"metadata": {"annotations": {names.NODE_MAINTENANCE: "ready"}}})
    await stage.upgraded()
    operator.stop()


@on_stage(gpu_nodes=2)
async def test_a_setting_that_is_taken_back_lets_the_node_go_on_and_takes_the_object(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    stage.run_pod("serving", "gpu-2", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: len(operator.objects()) == 1)
    await edit(stage, interop={"nodeMaintenance": "Off"})
    await stage.upgraded()
    await stage.until(lambda: not operator.objects() and not noted(stage, "gpu-1"))
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_restart_in_the_middle_and_a_policy_that_goes_with_it_leave_nothing(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    uid = operator.objects()[0]["metadata"]["uid"]
    await stage.restart_operator()
    await stage.rest(60)
    assert ([one["metadata"]["uid"] for one in operator.objects()], stage.hold("gpu-1")) == ([uid], "MaintenanceAwaited")
    await stage.kill_operator()
    stage.sandbox.store.delete(POLICIES, None, "default")
    await stage.restart_operator()
    await stage.upgraded()
    await stage.until(lambda: not operator.objects() and not noted(stage))
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_an_object_that_somebody_deletes_is_asked_for_again_and_nothing_goes_meanwhile(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    wrong = watch_evictions(stage, operator)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    first = operator.objects()[0]["metadata"]["uid"]
    stage.sandbox.store.delete(KEY, "gpu-operator", "gpuward-gpu-1")
    await stage.until(lambda: bool(operator.objects()) and operator.objects()[0]["metadata"]["uid"] != first)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.NODE_MAINTENANCE: None}}})
    await stage.until(lambda: noted(stage) == "asked")
    operator.parallel = 1
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    assert (wrong, stage.cordons()) == ([], [])
    operator.stop()


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_many_at_once_wait_for_each_other_there(stage: Stage) -> None:
    await stage.installed()
    for number in (1, 2, 3):
        stage.run_pod(f"training-{number}", f"gpu-{number}", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=2)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    wrong = watch_evictions(stage, operator)
    await stage.upgrade_to()
    await stage.until(lambda: len(operator.objects()) == 3)
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    assert (wrong, operator.most, operator.lifted) == ([], 2, [])
    operator.stop()


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_a_failed_node_makes_room_for_others_and_asks_again(stage: Stage) -> None:
    await stage.installed()
    for number in (1, 2):
        stage.run_pod(f"training-{number}", f"gpu-{number}", owned=True)
    operator = MaintenanceOperator.installed(stage)
    await apply(stage, interop=ASKED, retries=1, retryBackoff="10m", failureBudget={"nodes": 5})
    fault = Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.rest(5)
    wrong = watch_evictions(stage, operator)
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    await stage.rest(5)
    assert not operator.phase("gpu-1")
    stage.sandbox.faults.clear(fault)
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    assert (wrong, operator.most, stage.cordons()) == ([], 1, [])
    operator.stop()


@on_stage(gpu_nodes=2)
async def test_where_they_are_not_installed_no_node_is_cordoned(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.rest(300)
    assert (stage.cordons(), stage.drivers(), stage.hold("gpu-1")) == ([], [OLD], "MaintenanceUnseen")
    assert {one["reason"] for one in (await status_of(stage))["nodes"] if one["name"].startswith("gpu-")} == {"MaintenanceUnseen"}
    operator = MaintenanceOperator.installed(stage)
    await stage.upgraded()
    await stage.until(lambda: not operator.objects())
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_crd_that_goes_in_the_middle_strands_no_node(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    operator.stop()
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, KEY)
    await stage.rest(60)
    assert stage.hold("gpu-1") == "MaintenanceAwaited"
    await edit(stage, interop=None)
    await stage.upgraded()
    assert stage.cordons() == []
    stage.sandbox.apply(CRD)


def test_one_that_may_not_be_made_holds_its_node_alone_and_is_asked_for_again() -> None:
    refused: list[bool] = [True]

    def webhook(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "POST" and "nodemaintenances" in request.path and refused:
            return refusal(Forbidden("admission webhook says no"))
        return proceed()

    @on_stage(gpu_nodes=1, interfere=webhook)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.run_pod("training", "gpu-1", owned=True)
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED)
        await stage.rest(5)
        await stage.upgrade_to()
        await stage.rest(120)
        assert stage.hold("gpu-1") == "MaintenanceAwaited"
        assert requests(stage) < 20
        refused.clear()
        await stage.upgraded()
        operator.stop()

    scenario()


@on_stage(gpu_nodes=1)
async def test_an_uninstall_takes_them_along(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    await uninstall(stage)
    await cleanup(stage, timeout=60)
    assert (operator.objects(), noted(stage)) == ([], None)
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_node_that_somebody_puts_behind_the_wait_waits_all_the_same(stage: Stage) -> None:
    await stage.installed()
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    wrong = watch_evictions(stage, operator)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    await stage.label("gpu-1", names.UPGRADE_STATE, State.POD_DELETION_REQUIRED)
    await stage.rest(300)
    assert (stage.hold("gpu-1"), pod in users(stage)) == ("MaintenanceAwaited", True)
    operator.parallel = 1
    await stage.upgraded()
    assert wrong == []
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_a_pause_gives_back_what_is_undisturbed_and_the_node_asks_again(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED)
    await stage.rest(5)
    wrong = watch_evictions(stage, operator)
    await stage.upgrade_to()
    await stage.until(lambda: operator.phase("gpu-1") == "Pending")
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: not operator.objects() and noted(stage) is None)
    operator.parallel = 1
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.upgraded()
    assert (wrong, stage.cordons()) == ([], [])
    operator.stop()
