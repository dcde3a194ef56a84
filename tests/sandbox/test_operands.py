from __future__ import annotations

import pytest

from gpuward.sandbox.machine import CUDA_READY, DRIVER_READY, PLUGIN_READY, TOOLKIT_READY
from kubesandbox.sim.objects import is_ready, labels_of
from tests.sandbox.build import Cluster, all_ready, labelled_gpu_node, play, stack

VALIDATOR = "nvidia-operator-validator"
DRIVER = "nvidia-driver-daemonset"


def test_operands_come_up_in_the_order_in_which_they_need_each_other() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1", model="A100"))
        files: list[str] = []
        cluster.add(*stack())
        machine = cluster.machine("gpu-1")
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
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-80GB-PCIe"
        assert labels["nvidia.com/gpu.count"] == "8"
        assert labels["nvidia.com/mig.capable"] == "true"
        assert labels["nvidia.com/cuda.driver-version.full"] == "550.90.07"

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


@pytest.mark.parametrize(("seconds", "capacity"), [(5, "8"), (200, "8"), (310, "0")])
def test_without_its_plugin_a_node_keeps_its_capacity_for_minutes_and_offers_nothing(seconds: float, capacity: str) -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(*stack())
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()))
        cluster.store.modify("nodes", None, "gpu-1", lambda node: node["metadata"]["labels"].update(
            {"nvidia.com/gpu.deploy.device-plugin": "false"}))
        await cluster.rest(seconds)
        status = cluster.node("gpu-1")["status"]
        assert status["allocatable"]["nvidia.com/gpu"] == "0"
        assert status["capacity"]["nvidia.com/gpu"] == capacity

    play(story)
