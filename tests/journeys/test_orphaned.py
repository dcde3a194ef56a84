"""An NVIDIADriver that is deleted with `--cascade=orphan`: its drivers run on, whoever tidies up what it left behind."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.resources import GVR
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import uids, with_one_owner
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver
from tests.journeys.test_removed import DEFAULT, NVIDIADRIVER, installed, remove, removed, users


@on_stage(gpu_nodes=2)
async def test_its_drivers_run_on(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    before = uids(stage), users(stage)
    await remove(stage, NVIDIADRIVER, "Orphan")
    await stage.rest(900)
    assert (uids(stage), users(stage), watcher.torn, stage.cordons()) == (*before, [], [])


async def tidy(stage: Stage, kind: GVR) -> None:
    """Delete what an NVIDIADriver has or had of a kind."""
    found = [each["metadata"]["name"] for each in stage.sandbox.store.list(str(kind))]
    for name in (mine := [name for name in found if f"-driver-{DEFAULT}-" in name]):
        await stage.user.delete(kind, name, names.DEFAULT_NAMESPACE)
    assert mine


@pytest.mark.parametrize("kind", [resources.SERVICE_ACCOUNTS, resources.ROLES], ids=["accounts", "roles"])
def test_whoever_tidies_up_takes_no_driver_along(kind: GVR) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        watcher = await with_one_owner(stage)
        before = uids(stage), users(stage)
        await remove(stage, NVIDIADRIVER, "Orphan")
        await stage.rest(60)
        await tidy(stage, kind)
        await stage.restart_operator()
        await stage.rest(900)
        assert (uids(stage), users(stage), watcher.torn, stage.cordons()) == (*before, [], [])

    scenario()


@on_stage(gpu_nodes=2)
async def test_an_account_that_is_away_says_nothing_of_how_it_went(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    before = uids(stage), users(stage)
    await stage.kill_operator()
    await tidy(stage, resources.SERVICE_ACCOUNTS)
    await remove(stage, NVIDIADRIVER, "Orphan")
    await stage.rest(5)
    await stage.restart_operator()
    await stage.rest(900)
    assert (uids(stage), users(stage), watcher.torn, stage.cordons()) == (*before, [], [])


@pytest.mark.parametrize("version", [OLD, NEW])
def test_one_that_is_made_again_and_deleted_takes_them_along(version: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        watcher = await with_one_owner(stage)
        await remove(stage, NVIDIADRIVER, "Orphan")
        await stage.rest(60)
        await make(stage, nvidia_driver(DEFAULT, {"maxUnavailable": 1}, default=True, version=version))
        await stage.until(lambda: condition(stage, DEFAULT)[0] == "ready")
        await stage.until(lambda: stage.finished(version) and condition_of(stage)[:2] == ("True", "UpToDate"), within=3600)
        await remove(stage, NVIDIADRIVER)
        await removed(stage, watcher)

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_node_that_failed_is_not_put_into_service_as_its_next_attempt_is_called_off(stage: Stage) -> None:
    """Nobody has touched its driver in this attempt: it is the new one, which is not validated."""
    await installed(stage, NVIDIADRIVER, out=1)
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY))
    upgrade = {"waitForCompletion": {"podSelector": "app=job", "timeoutSeconds": 0}}
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, DEFAULT, {"spec": {"version": NEW, "upgradePolicy": upgrade}})
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    node = next(name for name, state in stage.states().items() if state == State.FAILED)
    stage.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": WORKLOAD_NAMESPACE,
                         "labels": {"app": "job"}}, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x:1"}]}})
    await stage.rest(10)
    await stage.label(node, names.UPGRADE_STATE, State.UPGRADE_REQUIRED)
    await stage.until(lambda: stage.state(node) == State.WAIT_FOR_JOBS_REQUIRED)
    await remove(stage, NVIDIADRIVER, "Orphan")
    await stage.until(lambda: stage.state(node) == "")
    await stage.rest(60)
    assert (stage.driver(node), stage.cordons()) == (NEW, [node])
    stage.sandbox.faults.clear()
    await stage.until(lambda: not stage.cordons())
    assert stage.driver(node) == NEW
