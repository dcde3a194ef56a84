"""A maintenance operator that answers after the window has shut: nobody is evicted then."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.history import history_of
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.maintenance_operator import MaintenanceOperator, watch_evictions
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_node_maintenance import ASKED, noted
from tests.journeys.test_removed import MODES, installed, users
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import abort, resume
from tests.journeys.test_windows import ask, window


@MODES
def test_a_node_that_waits_for_leave_as_its_window_shuts_goes_back_into_service(mode: str) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
        operator = MaintenanceOperator.installed(stage, parallel=0)
        shut = stage.clock.now() + 900
        await apply(stage, interop=ASKED, windows=[window(0, 900), window(7200, 9000)])
        await stage.rest(5)
        wrong = watch_evictions(stage, operator)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "MaintenanceAwaited" and operator.phase("gpu-1") == "Pending")
        await stage.rest(shut - stage.clock.now() - 5)
        assert stage.cordons() == ["gpu-1"]
        await stage.rest(8)
        assert (stage.cordons(), stage.hold("gpu-1")) == ([], "WindowShut")
        assert sentence(stage.operator.plan.holds["gpu-1"]).startswith("the windows of the RolloutPolicy let no node start now")
        assert any(each.startswith("Its windows shut before its NodeMaintenance was Ready") for each in stage.events("gpu-1"))
        await stage.until(lambda: not operator.objects() and noted(stage) is None)
        operator.parallel = 1
        await stage.restart_operator()
        await stage.rest(3600)
        assert (pod in users(stage), stage.drivers(), operator.objects(), stage.cordons()) == (True, [old], [], [])
        await stage.until(lambda: old not in stage.drivers() and not operator.objects() and not stage.cordons(), within=4000)
        assert wrong == []
        operator.stop()

    scenario()


@on_stage(gpu_nodes=1)
async def test_a_node_that_somebody_asks_for_waits_for_its_leave_beyond_the_window(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED, windows=[window(-7200, -3600)])
    await stage.rest(5)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
    await stage.until(lambda: stage.hold("gpu-1") == "MaintenanceAwaited")
    await stage.rest(600)
    assert (stage.hold("gpu-1"), stage.cordons(), stage.drivers()) == ("MaintenanceAwaited", ["gpu-1"], [OLD])
    operator.parallel = 1
    await stage.until(lambda: not stage.cordons() and not operator.objects())
    operator.stop()


@on_stage(gpu_nodes=1)
async def test_windows_without_leave_do_not_fill_what_a_node_remembers(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    operator = MaintenanceOperator.installed(stage, parallel=0)
    await apply(stage, interop=ASKED, windows=[{"schedule": "*/30 * * * *", "duration": "10m"}])
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.rest(3600 + 1200)
    assert stage.cordons() == []
    assert not history_of(stage.node("gpu-1")["metadata"]["annotations"].get(names.UPGRADE_HISTORY))
    operator.parallel = 1
    await stage.upgraded(within=3600)
    assert len(history_of(stage.node("gpu-1")["metadata"]["annotations"].get(names.UPGRADE_HISTORY))) == 1
    operator.stop()


@MODES
def test_a_node_that_failed_is_not_put_into_service_as_the_rollout_is_aborted_before_its_leave_comes(mode: str) -> None:
    """Nobody has touched its driver in this attempt: it is the new one, which is not validated."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        operator = MaintenanceOperator.installed(stage)
        await apply(stage, interop=ASKED, retries=3, retryBackoff="30s", stateTimeouts={"validation": "2m"})
        await stage.rest(5)
        stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY))
        await ask(stage, mode)
        await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
        operator.parallel = 0
        node = next(name for name, state in stage.states().items() if state == State.FAILED)
        await stage.until(lambda: stage.hold(node) == "MaintenanceAwaited", within=7200)
        await abort(stage)
        await stage.rest(60)
        assert (stage.hold(node), stage.cordons()) == ("Aborted", [node])
        stage.sandbox.faults.clear()
        operator.parallel = 1
        await resume(stage)
        await stage.until(lambda: stage.all_are(State.DONE) and not stage.cordons(), within=7200)
        operator.stop()

    scenario()
