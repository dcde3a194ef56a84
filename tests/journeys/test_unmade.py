"""A driver that people ask for and that cannot be made: nodes that have not begun an upgrade do not begin one."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.states import State
from tests.journeys.looking import headline_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import be_precompiled, with_one_owner
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver

SECRET = "driver-env"


def make_secret(stage: Stage) -> None:
    meta = {"name": SECRET, "namespace": names.DEFAULT_NAMESPACE}
    files = dict.fromkeys(("gridd.conf", "client_configuration_token.tok"), "eA==")
    stage.sandbox.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": files})


def waiting(stage: Stage) -> list[str]:
    return [node for node, state in stage.states().items() if state == State.UPGRADE_REQUIRED]


async def nobody_begins(stage: Stage) -> None:
    """See that nodes that wait go on waiting, with that as their reason, while those under way get to an end."""
    await stage.rest(5)
    before = waiting(stage)
    assert before
    await stage.rest(1800)
    assert waiting(stage) == before
    assert {stage.hold(node) for node in before} == {"InvalidPolicy"}
    assert all(stage.driver(node) == OLD for node in before)
    assert stage.cordons() == []
    make_secret(stage)
    await stage.upgraded(within=7200)


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": 1})
async def test_nobody_begins_while_the_cluster_policys_driver_cannot_be_made(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") not in (State.DONE, State.UPGRADE_REQUIRED))
    await stage.patch_policy("driver/secretEnv", SECRET)
    await nobody_begins(stage)


@on_stage(gpu_nodes=4)
async def test_nobody_begins_while_an_nvidia_drivers_driver_cannot_be_made(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", {"maxParallelUpgrades": 1, "maxUnavailable": 1}, default=True))
    await stage.installed()
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: stage.state("gpu-1") not in (State.DONE, State.UPGRADE_REQUIRED))
    await set_driver(stage, "default", {"secretEnv": SECRET})
    await nobody_begins(stage)


@on_stage(gpu_nodes=3)
async def test_another_operand_that_cannot_be_made_holds_no_upgrade(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("gfd", {"image": "discovery"})
    await stage.until(lambda: "gpu-feature-discovery" in stage.condition().get("message", ""))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.drivers() == [NEW], within=3600)


@pytest.mark.parametrize(("field", "mode"), [
    ("secretEnv", "plain"), ("secretEnv", "NVIDIADrivers"),
    ("licensingConfig", "plain"), ("licensingConfig", "precompiled"), ("licensingConfig", "NVIDIADrivers"),
])
def test_a_secret_that_is_missing_from_the_start_costs_no_node_its_pods(field: str, mode: str) -> None:
    named = SECRET if field == "secretEnv" else {"secretName": SECRET}
    asked = {field: named, "version": "590" if mode == "precompiled" else NEW}

    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if mode == "NVIDIADrivers":
            await with_one_owner(stage)
            await set_driver(stage, "default", asked)
        elif mode == "precompiled":
            await be_precompiled(stage)
        before, driver_pods = stage.drivers(), {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)}
        for key, value in asked.items() if mode != "NVIDIADrivers" else ():
            await stage.patch_policy(f"driver/{key}", value)
        await stage.rest(900)
        assert (stage.drivers(), stage.cordons()) == (before, [])
        assert {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)} == driver_pods
        assert f"{SECRET!r} cannot be used: create a Secret of that name" in await headline_of(stage)
        make_secret(stage)
        await stage.until(lambda: stage.drivers() == [asked["version"]], within=7200)

    scenario()
