"""What a kubelet does with pods that have GPUs, or are of a GPU stack."""

from __future__ import annotations

from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.hardware import GpuHardware
from gpuward.sandbox.machine import HOST_DRIVER_ANNOTATION
from kubesandbox.sim.objects import is_ready, name_of
from kubesandbox.sim.simulation import Simulation
from tests.sandbox.build import Cluster, Object, all_ready, driver, gpu_node, gpu_pod, labelled_gpu_node, play


def current(cluster: Cluster, name: str) -> Object:
    return cluster.store.get("pods", "ml", name)


def offering_node(gpus: int = 8) -> Object:
    node = gpu_node("gpu-1", gpus=gpus)
    node["metadata"]["annotations"][HOST_DRIVER_ANNOTATION] = "550.90.07"
    for field in ("capacity", "allocatable"):
        node["status"][field]["nvidia.com/gpu"] = str(gpus)
    return node


def test_a_force_deleted_gpu_pod_still_holds_the_gpus_for_a_moment() -> None:
    async def story() -> None:
        cluster = Cluster(offering_node(), delays=GpuDelays(termination_seconds=10))
        cluster.add(gpu_pod("train"))
        await cluster.until(lambda: is_ready(current(cluster, "train")))
        cluster.delete(current(cluster, "train"), grace_seconds=0)
        assert cluster.store.find("pods", "ml", "train") is None
        assert list(cluster.machine("gpu-1").users.values()) == ["ml/train"]
        await cluster.rest(11)
        assert not cluster.machine("gpu-1").users

    play(story)


def test_no_container_is_given_gpus_while_no_driver_is_loaded() -> None:
    async def story() -> None:
        node = offering_node()
        del node["metadata"]["annotations"][HOST_DRIVER_ANNOTATION]
        cluster = Cluster(node)
        cluster.add(gpu_pod("train"))
        await cluster.rest(60)
        assert (current(cluster, "train")["status"]["phase"], cluster.machine("gpu-1").users) == ("Pending", {})
        cluster.machine("gpu-1").load("550.90.07", "")
        await cluster.until(lambda: is_ready(current(cluster, "train")), within=10)

    play(story)


def test_a_pod_whose_gpus_have_gone_meanwhile_is_refused_by_the_kubelet() -> None:
    async def story() -> None:
        cluster = Cluster(offering_node(2))
        cluster.add(gpu_pod("first", gpus=2))
        await cluster.until(lambda: is_ready(current(cluster, "first")))
        cluster.add(gpu_pod("second", node="gpu-1"))
        await cluster.rest(2)
        status = current(cluster, "second")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
        assert "nvidia.com/gpu. Requested: 1, Available: 0" in status["message"]

    play(story)


def test_a_driver_that_was_running_before_the_sandbox_is_taken_over_as_it_is() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(driver("550.90.07"))
        await cluster.until(lambda: all_ready(cluster.pods()))
        before = name_of(cluster.pods()[0])
        cluster.sim.stop()
        later = Simulation(cluster.store, cluster.sim.world.random, GpuDelays(), GpuHardware())
        later.start()
        cluster.sim = later
        await cluster.rest(5)
        assert cluster.machine("gpu-1").driver == "550.90.07"
        assert [name_of(found) for found in cluster.pods()] == [before]
        assert all_ready(cluster.pods())

    play(story)
