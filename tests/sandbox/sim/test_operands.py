from __future__ import annotations

import pytest

from gpuward.sandbox.sim.faults import Fault, FaultKind
from gpuward.sandbox.sim.machine import CUDA_READY, DRIVER_READY, PLUGIN_READY, TOOLKIT_READY
from gpuward.sandbox.sim.objects import is_ready, labels_of, name_of
from tests.sandbox.sim.build import Cluster, all_ready, daemonset, driver, labelled_gpu_node, play, rolling, stack, step

VALIDATOR = "nvidia-operator-validator"
DRIVER = "nvidia-driver-daemonset"


def test_operands_come_up_in_the_order_in_which_they_need_each_other() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1", model="A100"))
        files: list[str] = []
        cluster.add(*stack())
        machine = cluster.sim.machine("gpu-1")
        write = machine.write

        def note(name: str) -> None:
            files.append(name)
            write(name)

        machine.write = note  # type: ignore[method-assign]  # to see the order in which the files appear
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()), within=120)
        first = list(dict.fromkeys(files))
        assert first == [".driver-ctr-ready", DRIVER_READY, TOOLKIT_READY, CUDA_READY, PLUGIN_READY]
        assert cluster.gpus("gpu-1") == "8"
        labels = labels_of(cluster.node("gpu-1"))
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
        assert labels["nvidia.com/gpu.count"] == "8"
        assert labels["nvidia.com/mig.capable"] == "true"
        assert labels["nvidia.com/cuda.driver-version.full"] == "550.90.07"

    play(story)


def test_the_validator_waits_for_the_driver() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.sim.machine("gpu-1").configure(True)
        cluster.add(*(found for found in stack() if found["metadata"]["name"] == VALIDATOR))
        await cluster.rest(120)
        validation = cluster.pod(VALIDATOR)["status"]["initContainerStatuses"][0]
        assert validation["name"] == "driver-validation"
        assert "running" in validation["state"]
        cluster.add(driver())
        await cluster.until(lambda: "terminated" in cluster.pod(VALIDATOR)["status"]["initContainerStatuses"][0]["state"],
                            within=30)
        assert is_ready(cluster.pod(DRIVER))

    play(story)


def test_a_pod_of_nvidias_runtime_class_starts_only_when_the_toolkit_has_made_it_known() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(*(found for found in stack() if found["metadata"]["name"] != "nvidia-container-toolkit-daemonset"))
        await cluster.rest(60)
        assert is_ready(cluster.pod(DRIVER))
        plugin = cluster.pod("nvidia-device-plugin-daemonset")
        assert plugin["status"]["phase"] == "Pending"
        assert plugin["status"]["initContainerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}

    play(story)


def test_a_check_without_waiting_fails_and_is_started_again() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(driver(), daemonset("check", operand="driver", init=[step("toolkit")], strategy=rolling()))
        await cluster.until(lambda: all_ready(cluster.pods(DRIVER)))
        await cluster.until(lambda: cluster.restarts("check", init=True) >= 2)
        cluster.sim.machine("gpu-1").configure(True)
        await cluster.until(lambda: is_ready(cluster.pod("check")), within=60)

    play(story)


def test_plugin_validation_gives_up_when_the_node_offers_no_gpus() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(daemonset("check", operand="driver", init=[step("plugin")]))
        await cluster.rest(100)
        assert "running" in cluster.pod("check")["status"]["initContainerStatuses"][0]["state"]
        await cluster.until(lambda: cluster.pod("check")["status"]["initContainerStatuses"][0]["restartCount"] == 1, within=70)

    play(story)


def test_the_validator_takes_its_files_with_it() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(*stack())
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()))
        before = cluster.pod(VALIDATOR)
        cluster.delete(before)
        await cluster.rest(1)
        assert cluster.sim.machine("gpu-1").files == {".driver-ctr-ready"}
        await cluster.until(lambda: all_ready(cluster.pods(VALIDATOR)) and name_of(cluster.pod(VALIDATOR)) != name_of(before))
        assert cluster.sim.machine("gpu-1").files == {
            ".driver-ctr-ready", DRIVER_READY, TOOLKIT_READY, CUDA_READY, PLUGIN_READY}

    play(story)


def test_a_validator_can_be_kept_from_ever_getting_ready() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.sim.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, pod="nvidia-operator-validator-*"))
        cluster.add(*stack())
        await cluster.rest(300)
        assert not is_ready(cluster.pod(VALIDATOR))
        cluster.sim.faults.clear()
        await cluster.until(lambda: is_ready(cluster.pod(VALIDATOR)), within=60)

    play(story)


@pytest.mark.parametrize("seconds", [5, 200])
def test_without_its_plugin_a_node_keeps_its_capacity_and_offers_nothing(seconds: float) -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(*stack())
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()))
        cluster.store.modify("nodes", None, "gpu-1", lambda node: node["metadata"]["labels"].update(
            {"nvidia.com/gpu.deploy.device-plugin": "false"}))
        await cluster.rest(seconds)
        status = cluster.node("gpu-1")["status"]
        assert status["allocatable"]["nvidia.com/gpu"] == "0"
        assert status["capacity"]["nvidia.com/gpu"] == "8"

    play(story)
