"""A driver that people ask for and that cannot be installed is told wherever they look, before any count of nodes."""

from __future__ import annotations

import pytest

from gpuward.cli.capture import captured
from gpuward.cli.diff import compared
from gpuward.cli.differences import looked_at
from gpuward.cli.explanation import explained
from gpuward.cli.leader import Leader
from gpuward.cli.overview import headline
from gpuward.cli.shadow import shadowed
from gpuward.cli.status import as_json
from gpuward.cli.waiting import stopped
from gpuward.errors import GpuwardError
from tests.journeys.looking import explanation_of, headline_of, looking, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_moves import be_precompiled, with_one_owner
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import shown


@pytest.mark.parametrize("precompiled", [False, True])
def test_a_cluster_policy_whose_driver_cannot_be_made_is_said_so_first(precompiled: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if precompiled:
            await be_precompiled(stage)
        await stage.rest(60)
        assert "2 of 2 nodes up to date" in await headline_of(stage)
        await stage.patch_policy("driver/kernelModuleConfig", {"name": "not-there"})
        before = stage.drivers()
        await stage.upgrade_to("590" if precompiled else NEW)
        await stage.rest(60)
        assert stage.drivers() == before
        told = "ClusterPolicy cluster-policy cannot be followed: spec.driver.kernelModuleConfig.name: 'not-there' cannot be used"
        assert (await headline_of(stage)).startswith(told)
        assert (await explanation_of(stage, "gpu-1")).policy.startswith(told)
        (problem,) = (await status_of(stage))["problems"]
        assert problem.startswith(told)
        status, reason, message = rollout(stage)
        assert (status, reason) == ("False", "DriverNotApplied")
        assert message.index("not-there") < message.index("2 of 2 nodes up to date")
        await stage.patch_policy("driver/kernelModuleConfig", {})
        await stage.until(lambda: rollout(stage)[1] == "UpToDate", 3600)
        assert stage.drivers() != before
        assert (await headline_of(stage)).startswith("ClusterPolicy cluster-policy: 2 of 2 nodes up to date")
        assert (await status_of(stage))["problems"] == []

    scenario()


CASES = [
    ({"certConfig": {"name": "not-there"}, "version": NEW}, "spec.certConfig.name: 'not-there' cannot be used: create"),
    ({"image": "", "version": NEW}, "spec.image: '' cannot be used: write it too"),
]


@pytest.mark.parametrize(("spec", "why"), CASES)
def test_an_nvidia_driver_that_cannot_be_followed_is_said_so_first(spec: dict[str, object], why: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        await label_pools(stage, b="gpu-1")
        await make(stage, nvidia_driver("b"))
        await stage.until(lambda: stage.labels("gpu-1").get("nvidia.com/gpu-operator.driver.owner") == "b", 3600)
        await stage.rest(600)
        await set_driver(stage, "b", spec)
        await stage.rest(120)
        told = f"NVIDIADriver b cannot be followed: {why}"
        headline = await headline_of(stage)
        assert headline.startswith(told)
        assert "; apart from that ClusterPolicy cluster-policy: 3 of 3 nodes up to date" in headline
        assert (await explanation_of(stage, "gpu-1")).policy.startswith(told)
        assert (await explanation_of(stage, "gpu-2")).policy == "NVIDIADriver default"
        (problem,) = (await status_of(stage))["problems"]
        assert problem.startswith(told)

    scenario()


@on_stage(gpu_nodes=3)
async def test_nvidia_drivers_in_each_others_way_are_said_so_first(stage: Stage) -> None:
    await with_one_owner(stage)
    await label_pools(stage, b="gpu-1", c="gpu-2")
    await make(stage, nvidia_driver("b", nodeSelector={"kubernetes.io/os": "linux"}), nvidia_driver("c"))
    await stage.rest(120)
    why = "cannot be followed: multiple NVIDIADrivers match the same node gpu-2: [b c]"
    assert f"NVIDIADriver b {why} (and 1 more problem); apart from that" in await headline_of(stage)
    assert f"problem: NVIDIADriver c {why}" in await shown(stage)


@on_stage(gpu_nodes=2)
async def test_status_names_each_problem_of_the_policies(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "0 25 * * FRI", "duration": "8h"}])
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.rest(30)
    first, *others = await shown(stage)
    told = "\n".join([first, *(line for line in others if line.startswith("problem: "))])
    for each in ("driver.upgradePolicy.maxUnavailable", "windows[0].schedule"):
        assert told.count(each) == 1


@on_stage(gpu_nodes=2)
async def test_whoever_looks_in_another_namespace_than_the_operators_is_told_the_right_one(stage: Stage) -> None:
    await stage.installed()
    told = ("ClusterPolicy cluster-policy is followed in namespace gpu-operator, "
            "and this is about namespace default: add -n gpu-operator")
    async with looking(stage, "default") as picture:
        assert headline(picture) == told
        assert explained(picture, "gpu-1").policy == told
        assert as_json(picture, Leader("", 0.0))["problems"] == [told]
        assert stopped(picture) == told, "whoever waits there for the end would wait in vain"
        with pytest.raises(GpuwardError, match="add -n gpu-operator"):
            picture.refuse_elsewhere()
    async with looked_at(stage.user, "default") as look:
        with pytest.raises(GpuwardError, match="add -n gpu-operator"):
            await shadowed(stage.user, look)
    with pytest.raises(GpuwardError, match="add -n gpu-operator"):
        await captured(stage.user, "default")
    with pytest.RaisesGroup(pytest.RaisesExc(GpuwardError, match="add -n gpu-operator"), flatten_subgroups=True):
        await compared(stage.user, (), "default")
    assert (await headline_of(stage)).startswith("ClusterPolicy cluster-policy: 2 of 2")


@on_stage(gpu_nodes=2)
async def test_whoever_looks_before_an_operator_has_followed_the_policy_is_told_so(stage: Stage) -> None:
    await stage.kill_operator()
    async with looking(stage, "wrong") as picture:
        assert headline(picture) == (
            "ClusterPolicy cluster-policy: no node has a driver that is managed in namespace wrong yet; no operator has followed "
            "the ClusterPolicy, or it lives in another namespace: name that with -n")
