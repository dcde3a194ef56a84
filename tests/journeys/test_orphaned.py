"""An NVIDIADriver that is deleted with `--cascade=orphan`: its drivers run on, whoever tidies up what it left behind."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.resources import GVR
from tests.journeys.looking import condition_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import uids, with_one_owner
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver
from tests.journeys.test_removed import DEFAULT, NVIDIADRIVER, remove, removed, users


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
