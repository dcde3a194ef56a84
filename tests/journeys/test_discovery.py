"""Node feature discovery that fails, comes back, and tells the truth."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.reading import read_time
from gpuward.model.record import format_time
from gpuward.model.states import State
from tests.journeys.looking import explanation_of
from tests.journeys.stage import Stage, on_stage

MINUTE = 60.0
OUTAGE = "Discovery outage"


async def lose(stage: Stage, node: str, prefix: str = names.NFD_PREFIX) -> dict[str, str]:
    """Take a node's discovery labels away, all or those of a prefix, and return them."""
    lost = {key: value for key, value in stage.labels(node).items() if key.startswith(prefix)}
    for key in lost:
        await stage.label(node, key, None)
    return lost


async def lose_gpu(stage: Stage, node: str) -> dict[str, str]:
    """Let discovery see no GPU on a node any more; it goes on to say what else is there."""
    return await lose(stage, node, names.NFD_PREFIX + "pci-")


async def bring_back(stage: Stage, node: str, labels: dict[str, str]) -> None:
    for key, value in labels.items():
        await stage.label(node, key, value)


def driver_pods(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)}


def remembered(stage: Stage, node: str) -> str:
    return str(stage.node(node)["metadata"]["annotations"].get(names.DISCOVERY_LOST, ""))


@on_stage(gpu_nodes=4)
async def test_an_outage_of_discovery_on_all_nodes_restarts_no_driver(stage: Stage) -> None:
    await stage.installed()
    before = driver_pods(stage)
    lost = {f"gpu-{number}": await lose(stage, f"gpu-{number}") for number in range(1, 5)}
    await stage.rest(15 * MINUTE)
    assert driver_pods(stage) == before
    for node, labels in lost.items():
        await bring_back(stage, node, labels)
    await stage.installed()
    assert driver_pods(stage) == before
    assert len(stage.warnings(OUTAGE)) == 1
    assert stage.states() == dict.fromkeys(lost, str(State.DONE))


@pytest.mark.parametrize("labels", [(names.NFD_OS_ID, names.NFD_OS_VERSION), ()])
def test_an_outage_on_the_nodes_of_one_system_gives_nobody_the_driver_of_another(labels: tuple[str, ...]) -> None:
    """Of three nodes two are silent for a moment, and the third has another operating system."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-3", names.NFD_OS_VERSION, "24.04")
        stage.run_pod("training", "gpu-1", owned=True)
        await stage.rest(60)
        before = stage.get("daemonsets.apps", names.DRIVER_APP)["metadata"]["generation"]
        known = stage.labels("gpu-1").items()
        told = {key: value for key, value in known if (key in labels if labels else key.startswith(names.NFD_PREFIX))}
        for lost in (dict.fromkeys(told), told):
            for node in ("gpu-1", "gpu-2"):
                await stage.user.patch_merge(resources.NODES, node, {"metadata": {"labels": lost}})
            await stage.rest(300)
            assert [pod["metadata"]["name"] for pod in stage.workload_pods()] == ["training"]
        assert stage.get("daemonsets.apps", names.DRIVER_APP)["metadata"]["generation"] == before

    scenario()


@on_stage(gpu_nodes=4)
async def test_nodes_that_come_back_one_by_one_after_an_outage_all_keep_their_drivers(stage: Stage) -> None:
    await stage.installed()
    before = driver_pods(stage)
    lost = {f"gpu-{number}": await lose_gpu(stage, f"gpu-{number}") for number in range(1, 5)}
    await stage.rest(15 * MINUTE)
    for node, labels in lost.items():
        await stage.rest(5 * MINUTE)
        await bring_back(stage, node, labels)
    await stage.rest(MINUTE)
    assert driver_pods(stage) == before
    assert not any(remembered(stage, node) for node in lost)


@on_stage(gpu_nodes=4)
async def test_operands_leave_a_node_whose_gpu_was_taken_out_after_the_grace_also_over_a_restart(stage: Stage) -> None:
    await stage.installed()
    await lose_gpu(stage, "gpu-2")
    await stage.until(lambda: remembered(stage, "gpu-2"), within=MINUTE)
    since = remembered(stage, "gpu-2")
    (note,) = (await explanation_of(stage, "gpu-2")).notes
    seen = f"{since[:19]}Z"
    goes = format_time(read_time(seen) + 10 * MINUTE)
    assert note.startswith(f"node feature discovery has seen no NVIDIA GPU here since {format_time(read_time(seen))}: ")
    assert f": the node's GPU stack, driver included, goes after {goes}, unless " in note
    assert not (await explanation_of(stage, "gpu-1")).notes
    await stage.rest(5 * MINUTE)
    await stage.restart_operator()
    await stage.rest(4 * MINUTE)
    assert stage.pods(names.DRIVER_APP, "gpu-2")
    await stage.until(lambda: not stage.pods(names.DRIVER_APP, "gpu-2"), within=2 * MINUTE)
    assert stage.labels("gpu-2")[names.GPU_PRESENT] == "false"
    assert not remembered(stage, "gpu-2")
    assert len(stage.pods(names.DRIVER_APP)) == 3


@on_stage(gpu_nodes=4)
async def test_operands_stay_under_a_gpu_pod_beyond_the_grace_and_leave_when_it_has_ended(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-2")
    await lose_gpu(stage, "gpu-2")
    await stage.rest(30 * MINUTE)
    assert stage.pods(names.DRIVER_APP, "gpu-2")
    (note,) = (await explanation_of(stage, "gpu-2")).notes
    assert ": the node's GPU stack, driver included, goes once no pod uses its GPUs and no upgrade of it is under way" in note
    stage.sandbox.store.delete("deployments.apps", "ml", "train")
    await stage.until(lambda: not stage.pods(names.DRIVER_APP, "gpu-2"), within=5 * MINUTE)
