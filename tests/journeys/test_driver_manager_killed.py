"""What a driver manager of gpuward's own that is killed leaves on its node: labels in a pause, its cordon, and its note."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.cli.explain import as_json
from gpuward.cli.leader import Leader
from gpuward.kube import resources
from tests.journeys.looking import explanation_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_operand_fails import explained, installed
from tests.journeys.test_status_screen import shown

PLUGIN, CLIENT = names.DEPLOY_PREFIX + "device-plugin", names.DEPLOY_PREFIX + "client"
PAUSED = "paused-for-driver-upgrade"


async def left(stage: Stage, *, cordoned: bool = True) -> None:
    """Leave what a driver manager leaves that is killed while it waits for the operands."""
    await stage.user.patch_merge(resources.NODES, "gpu-1", {
        "metadata": {"annotations": {names.DRIVER_MANAGER_CORDON: "true"}, "labels": {PLUGIN: PAUSED, CLIENT: f"vm_{PAUSED}"}},
        "spec": {"unschedulable": cordoned or None}})


def noted(stage: Stage) -> bool:
    found = stage.sandbox.store.get("nodes", None, "gpu-1")
    return names.DRIVER_MANAGER_CORDON in (found["metadata"].get("annotations") or {})


def stands(stage: Stage) -> tuple[list[str], str | None, str | None, bool]:
    labels = stage.labels("gpu-1")
    return stage.cordons(), labels.get(PLUGIN), labels.get(CLIENT), noted(stage)


GIVEN_BACK: tuple[list[str], str, str, bool] = ([], "true", "vm", False)


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver"])
def test_a_node_that_gets_no_driver_any_more_is_given_back(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        await stage.rest(60)
        await left(stage)
        await stage.rest(60)
        assert stands(stage) == GIVEN_BACK

    story()


def test_a_node_whose_drivers_were_switched_off_is_given_back() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.patch_policy("driver/enabled", False)
        await stage.rest(600)
        await left(stage)
        await stage.rest(60)
        assert stands(stage) == GIVEN_BACK

    story()


def test_while_a_driver_pod_is_to_come_all_of_it_is_the_driver_managers() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.rest(30)
        pod = stage.driver_pod("gpu-1")["metadata"]["name"]
        await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
        await stage.rest(0.5)
        await left(stage)
        await stage.rest(2)
        assert stands(stage) == (["gpu-1"], PAUSED, f"vm_{PAUSED}", True)
        await stage.rest(300)
        assert stands(stage) == GIVEN_BACK, "the labels by the driver manager, and the cordon as that has ended"

    story()


def test_it_is_told_whose_cordon_it_is() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.kill_operator()
        await left(stage)
        assert any("cordoned by gpuward's driver manager" in line for line in await shown(stage))
        assert "by gpuward's driver manager: it lifts it" in (await explained(stage))["CORDONED"]
        found = await explanation_of(stage, "gpu-1")
        assert as_json(found, Leader("nobody", found.now))["cordonOwner"] == "driver-manager"

    story()


def test_the_note_of_a_cordon_that_somebody_lifted_goes() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await left(stage, cordoned=False)
        await stage.rest(5)
        assert not noted(stage)
        await stage.cordon("gpu-1")
        await stage.rest(60)
        assert stage.cordons() == ["gpu-1"], "the next cordon is somebody else's"

    story()


def test_an_upgrade_makes_the_cordon_its_own_and_lifts_it_at_its_end() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await left(stage)
        await stage.until(lambda: stage.state("gpu-1") == "validation-required")
        assert stage.cordons() == ["gpu-1"]
        assert not noted(stage)
        await stage.until(lambda: stage.state("gpu-1") == "upgrade-done")
        await stage.rest(30)
        assert "gpu-1" not in stage.cordons()

    story()
