from __future__ import annotations

import pytest

from gpuward.names import UPGRADE_ENABLED
from gpuward.sandbox.driver import driver_version
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import cpu_node, gpu_node
from gpuward.sandbox.machine import DRIVER_CONTAINER_READY
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import Object, is_ready, labels_of, name_of
from kubesandbox.sim.programs import RUN_SECONDS
from tests.sandbox.build import OPERATOR, Cluster, all_ready, driver, gpu_pod, labelled_gpu_node, play, stack

DRIVER = "nvidia-driver-daemonset"
VALIDATOR = "nvidia-operator-validator"
PLUGIN_LABEL = "nvidia.com/gpu.deploy.device-plugin"


async def cluster_with_stack(*nodes: Object) -> Cluster:
    cluster = Cluster(*(nodes or (labelled_gpu_node("gpu-1"),)))
    cluster.add(*stack("550.90.07"))
    await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()), within=120)
    return cluster


def wish_for(cluster: Cluster, version: str, digest: str = "") -> None:
    template = driver(version, digest)["spec"]["template"]
    cluster.change("DaemonSet", OPERATOR, DRIVER, lambda obj: obj["spec"].update(template=template))


def manager(cluster: Cluster) -> Object:
    status: Object = cluster.pod(DRIVER)["status"]["initContainerStatuses"][0]
    return status


@pytest.mark.parametrize(("image", "version"), [
    ("nvcr.io/nvidia/driver:550.90.07-ubuntu22.04", "550.90.07"),
    ("registry:5000/driver:535-5.15.0-101-generic-ubuntu22.04", "535"),
    ("registry:5000/driver@sha256:0123", "unknown"),
    ("driver:570.1.2", "570.1.2"),
])
def test_the_version_is_in_the_image_tag(image: str, version: str) -> None:
    assert driver_version(image) == version


def test_a_driver_that_was_built_for_another_kernel_does_not_load() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(driver("580-5.15.0-999-generic"))
        await cluster.rest(60)
        assert not is_ready(cluster.pod(DRIVER))
        assert cluster.machine("gpu-1").driver == ""
        (container,) = cluster.pod(DRIVER)["status"]["containerStatuses"]
        told = container["lastState"]["terminated"]["message"]
        assert "for kernel 5.15.0-999-generic, and 5.15.0-101-generic runs here" in told

    play(story)


def test_the_driver_takes_its_time_and_then_is_loaded() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(driver("550.90.07"))
        await cluster.rest(10)
        pod = cluster.pod(DRIVER)
        assert pod["status"]["phase"] == "Running"
        assert not is_ready(pod)
        assert cluster.machine("gpu-1").driver == ""
        await cluster.until(lambda: is_ready(cluster.pod(DRIVER)), within=6)
        assert cluster.machine("gpu-1").driver == "550.90.07"
        assert DRIVER_CONTAINER_READY in cluster.machine("gpu-1").files

    play(story)


def test_a_new_driver_replaces_the_old_one_and_the_operands_make_room_meanwhile() -> None:
    async def story() -> None:
        cluster = await cluster_with_stack()
        old_plugin = name_of(cluster.pod("nvidia-device-plugin-daemonset"))
        values = []
        cluster.store.subscribe(lambda event: values.append(labels_of(event.obj)[PLUGIN_LABEL]), "nodes")
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: cluster.gpus("gpu-1") == "0", within=30)
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()), within=120)
        assert cluster.machine("gpu-1").driver == "560.35.03"
        assert cluster.gpus("gpu-1") == "8"
        assert name_of(cluster.pod("nvidia-device-plugin-daemonset")) != old_plugin
        assert "paused-for-driver-upgrade" in values
        assert values[-1] == "true"
        await cluster.until(lambda: labels_of(cluster.node("gpu-1"))[
            "nvidia.com/cuda.driver-version.full"] == "560.35.03", within=10)

    play(story)


def test_a_gpu_pod_blocks_the_reload_and_the_init_container_crash_loops_until_it_is_gone() -> None:
    async def story() -> None:
        cluster = await cluster_with_stack()
        cluster.add(gpu_pod("train"))
        await cluster.until(lambda: is_ready(cluster.store.get("pods", "ml", "train")))
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: cluster.restarts(DRIVER, init=True) >= 2, within=120)
        await cluster.until(lambda: "waiting" in manager(cluster)["state"])
        assert manager(cluster)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert "driver is in use by ml/train" in manager(cluster)["lastState"]["terminated"]["message"]
        assert cluster.machine("gpu-1").driver == "550.90.07"
        cluster.delete(cluster.store.get("pods", "ml", "train"))
        await cluster.until(lambda: cluster.machine("gpu-1").driver == "560.35.03", within=600)
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()), within=120)

    play(story)


def test_a_finished_gpu_pod_blocks_nothing() -> None:
    async def story() -> None:
        cluster = await cluster_with_stack()
        pod = gpu_pod("train", annotations={RUN_SECONDS: "5"})
        pod["spec"]["restartPolicy"] = "Never"
        cluster.add(pod)
        await cluster.until(lambda: cluster.store.get("pods", "ml", "train")["status"]["phase"] == "Succeeded")
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: cluster.machine("gpu-1").driver == "560.35.03", within=60)

    play(story)


def test_without_the_upgrade_controller_the_driver_manager_evicts_gpu_pods_itself() -> None:
    async def story() -> None:
        node = labelled_gpu_node("gpu-1")
        del node["metadata"]["annotations"][UPGRADE_ENABLED]
        cluster = await cluster_with_stack(node)
        cluster.add(gpu_pod("train"))
        await cluster.until(lambda: is_ready(cluster.store.get("pods", "ml", "train")))
        cordons = []
        cluster.store.subscribe(lambda event: cordons.append(bool(event.obj["spec"].get("unschedulable"))), "nodes")
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: cluster.machine("gpu-1").driver == "560.35.03", within=120)
        assert cluster.store.find("pods", "ml", "train") is None
        assert True in cordons
        assert not cluster.node("gpu-1")["spec"].get("unschedulable")

    play(story)


def test_an_equal_driver_is_reused_under_running_gpu_pods() -> None:
    async def story() -> None:
        cluster = await cluster_with_stack()
        cluster.add(gpu_pod("train"))
        await cluster.until(lambda: is_ready(cluster.store.get("pods", "ml", "train")))
        cluster.delete(cluster.pod(DRIVER))
        await cluster.rest(3)
        began = cluster.now
        await cluster.until(lambda: cluster.pods(DRIVER) and all_ready(cluster.pods(DRIVER)), within=60)
        assert 30 < cluster.now - began < 40, "the driver manager waits for the validator pod, which ends with its grace"
        assert cluster.machine("gpu-1").driver == "550.90.07"
        assert is_ready(cluster.store.get("pods", "ml", "train"))

    play(story)


def test_operands_stay_paused_when_the_driver_manager_is_killed_and_the_next_one_brings_them_back() -> None:
    async def story() -> None:
        cluster = await cluster_with_stack()
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: labels_of(cluster.node("gpu-1"))[PLUGIN_LABEL] == "paused-for-driver-upgrade", 30)
        cluster.delete(cluster.pod(DRIVER), grace_seconds=0)
        await cluster.rest(1)
        assert labels_of(cluster.node("gpu-1"))[PLUGIN_LABEL] == "paused-for-driver-upgrade"
        await cluster.until(lambda: labels_of(cluster.node("gpu-1"))[PLUGIN_LABEL] == "true", within=60)

    play(story)


def test_a_label_that_says_false_or_nothing_stays_so_through_a_pause() -> None:
    async def story() -> None:
        node = labelled_gpu_node("gpu-1")
        node["metadata"]["labels"]["nvidia.com/gpu.deploy.dcgm-exporter"] = "false"
        cluster = Cluster(node)
        cluster.add(*stack())
        await cluster.until(lambda: len(cluster.pods()) == 5 and all_ready(cluster.pods()))
        wish_for(cluster, "560.35.03")
        cluster.delete(cluster.pod(DRIVER))
        await cluster.until(lambda: cluster.machine("gpu-1").driver == "560.35.03", within=60)
        labels = labels_of(cluster.node("gpu-1"))
        assert labels["nvidia.com/gpu.deploy.dcgm-exporter"] == "false"
        # NVIDIA's creates the labels that were absent, empty.
        assert labels["nvidia.com/gpu.deploy.nvsm"] == ""

    play(story)


@pytest.mark.parametrize(("kind", "state"), [
    (FaultKind.DRIVER_CRASH, "waiting"), (FaultKind.DRIVER_NEVER_READY, "running")])
def test_a_broken_driver_version_stays_unready_until_the_fault_ends(kind: FaultKind, state: str) -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"), labelled_gpu_node("gpu-2"))
        fault = Fault(kind, node="gpu-1", image="*:550.*")
        cluster.sim.faults.add(fault)
        cluster.add(driver("550.90.07"))
        await cluster.until(lambda: all_ready(cluster.pods(DRIVER, "gpu-2")))
        await cluster.rest(35)
        found = cluster.pod(DRIVER, "gpu-1")["status"]["containerStatuses"][0]
        assert state in found["state"]
        assert not found["ready"]
        assert (found["restartCount"] > 0) == (kind is FaultKind.DRIVER_CRASH)
        cluster.sim.faults.clear(fault)
        await cluster.until(lambda: is_ready(cluster.pod(DRIVER, "gpu-1")), within=60)

    play(story)


def test_a_driver_on_the_host_makes_the_driver_pod_leave() -> None:
    async def story() -> None:
        node = labelled_gpu_node("gpu-1")
        node["metadata"]["annotations"]["sandbox.gpuward.io/host-driver"] = "535.1"
        cluster = Cluster(node)
        cluster.add(driver())
        await cluster.until(lambda: labels_of(cluster.node("gpu-1"))["nvidia.com/gpu.deploy.driver"] == "pre-installed")
        await cluster.until(lambda: not cluster.pods(DRIVER), within=10)
        assert cluster.machine("gpu-1").driver == "535.1"

    play(story)


def test_a_driver_finds_no_device_on_a_node_without_gpus() -> None:
    async def story() -> None:
        node = cpu_node("cpu-1")
        node["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] = "true"
        cluster = Cluster(node, gpu_node("gpu-1"))
        cluster.add(driver())
        await cluster.rest(10)
        status = cluster.pod(DRIVER)["status"]["containerStatuses"][0]
        assert status["lastState"]["terminated"]["message"] == "no NVIDIA GPU device is present"

    play(story)
