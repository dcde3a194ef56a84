"""People edit the labels by which a node is for containers or virtual machines: no driver goes from under who uses the GPUs."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.sandbox.hosts import VM_RESOURCE
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_node_workload import PASSTHROUGH, VFIO_MANAGER, is_host, run_machine, runs, torn

MANAGER = {"enabled": True, "repository": "nvcr.io/nvidia", "image": "vgpu-manager", "version": OLD}
PRESENT = pytest.mark.parametrize("value", [None, "false"])


async def serve_machines(stage: Stage, workload: str = PASSTHROUGH) -> None:
    """Let the only node serve virtual machines, and run one with a GPU there."""
    await stage.installed()
    await stage.patch_policy("vgpuManager", MANAGER)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": workload})
    await stage.until(lambda: bool(int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0))))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))


@pytest.mark.parametrize("label", [
    "dcgm=true", "dcgm-exporter=false", "operator-validator=true", "node-status-exporter=false", "driver=true",
    "driver=pre-installed",
])
def test_a_label_of_an_operand_for_containers_takes_no_gpu_from_a_machine(label: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await serve_machines(stage)
        key, _, value = label.partition("=")
        await stage.label("gpu-1", names.DEPLOY_PREFIX + key, value)
        await stage.rest(600)
        assert torn(stage) == []
        assert is_host(stage, "gpu-1")
        assert stage.labels("gpu-1").get(names.DEPLOY_PREFIX + key) is None

    play()


@pytest.mark.parametrize("label", ["vfio-manager=true", "kata-manager=true", "vgpu-manager=true", "sandbox-validator=true"])
def test_a_label_of_an_operand_for_machines_takes_no_driver_from_a_pod(label: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("sandboxWorkloads", {"enabled": True})
        stage.run_pod("train", "gpu-1")
        await stage.until(lambda: runs(stage, "train"))
        key, _, value = label.partition("=")
        await stage.label("gpu-1", names.DEPLOY_PREFIX + key, value)
        await stage.rest(600)
        assert (torn(stage), stage.driver("gpu-1")) == ([], OLD)
        assert stage.labels("gpu-1").get(names.DEPLOY_DRIVER) == "true"

    play()


@PRESENT
def test_training_keeps_its_driver_where_its_node_is_said_to_have_no_gpu(value: str | None) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        stage.run_pod("train", "gpu-1")
        await stage.until(lambda: runs(stage, "train"))
        await stage.patch_policy("sandboxWorkloads", {"enabled": True})
        await stage.label("gpu-1", names.WORKLOAD_CONFIG, PASSTHROUGH)
        await stage.until(lambda: stage.hold("gpu-1") == "WorkloadKept")
        await stage.label("gpu-1", names.GPU_PRESENT, value)
        await stage.rest(600)
        assert (torn(stage), stage.driver("gpu-1")) == ([], OLD)

    play()


@PRESENT
def test_a_machine_keeps_its_gpu_where_its_node_is_said_to_have_none(value: str | None) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await serve_machines(stage)
        await stage.label("gpu-1", names.WORKLOAD_CONFIG, "container")
        await stage.rest(60)
        await stage.label("gpu-1", names.GPU_PRESENT, value)
        await stage.rest(600)
        assert torn(stage) == []
        assert is_host(stage, "gpu-1")

    play()


@pytest.mark.parametrize("first", ["operands", "sandboxWorkloads"])
@pytest.mark.parametrize("workload", [PASSTHROUGH, "vm-vgpu"])
def test_machines_keep_their_gpus_where_neither_they_nor_operands_are_wanted(workload: str, first: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        async def want_no_operands() -> None:
            await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")

        async def want_no_machines() -> None:
            await stage.patch_policy("sandboxWorkloads", {"enabled": False})

        await serve_machines(stage, workload)
        acts = [want_no_operands, want_no_machines]
        for act in acts if first == "operands" else reversed(acts):
            await act()
            await stage.rest(300)
            assert torn(stage) == []
        host = VFIO_MANAGER if workload == PASSTHROUGH else names.DEPLOY_VGPU_MANAGER
        assert stage.labels("gpu-1").get(host) == "true"

    play()
