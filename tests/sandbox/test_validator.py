from __future__ import annotations

from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.gpus import gpus_wanted
from gpuward.sandbox.machine import CUDA_READY, DRIVER_READY, PLUGIN_READY, TOOLKIT_READY
from gpuward.sandbox.validator import CUDA_WORKLOAD, PLUGIN_WORKLOAD
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready, name_of
from tests.sandbox.build import Cluster, all_ready, driver, gpu_pod, labelled_gpu_node, operand_set, play, rolling, stack, step

VALIDATOR = "nvidia-operator-validator"
DRIVER = "nvidia-driver-daemonset"


def test_the_validator_waits_for_the_driver() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.machine("gpu-1").configure(True)
        cluster.add(*(found for found in stack() if found["metadata"]["name"] in (VALIDATOR, "nvidia")))
        await cluster.rest(120)
        validation = cluster.pod(VALIDATOR)["status"]["initContainerStatuses"][0]
        assert validation["name"] == "driver-validation"
        assert "running" in validation["state"]
        cluster.add(driver())
        await cluster.until(lambda: "terminated" in cluster.pod(VALIDATOR)["status"]["initContainerStatuses"][0]["state"],
                            within=30)
        assert is_ready(cluster.pod(DRIVER))

    play(story)


def test_a_check_without_waiting_fails_and_is_started_again() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(driver(), operand_set("check", "driver", init=[step("toolkit")], strategy=rolling()))
        await cluster.until(lambda: all_ready(cluster.pods(DRIVER)))
        await cluster.until(lambda: cluster.restarts("check", init=True) >= 2)
        cluster.machine("gpu-1").configure(True)
        await cluster.until(lambda: is_ready(cluster.pod("check")), within=60)

    play(story)


def test_plugin_validation_gives_up_when_the_node_offers_no_gpus() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.add(operand_set("check", "driver", init=[step("plugin")]))
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
        assert cluster.machine("gpu-1").files == {".driver-ctr-ready"}
        await cluster.until(lambda: all_ready(cluster.pods(VALIDATOR)) and name_of(cluster.pod(VALIDATOR)) != name_of(before))
        assert cluster.machine("gpu-1").files == {
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


def test_the_cuda_check_tries_itself_out_in_a_pod_that_nothing_schedules() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1"))
        cluster.cordon("gpu-1")
        objects = stack()
        validator = next(found for found in objects if found["metadata"]["name"] == VALIDATOR)
        validator["spec"]["template"]["spec"]["initContainers"][2:] = [
            step("cuda", workload=True), step("plugin", workload=True)]
        owner = cluster.store.get("namespaces", None, "default")
        validator["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": owner["metadata"]["uid"], "controller": True}]
        cluster.add(*objects)
        await cluster.until(lambda: all_ready(cluster.pods(VALIDATOR)), within=120)
        for app, gpus in ((CUDA_WORKLOAD, 0), (PLUGIN_WORKLOAD, 1)):
            pod = cluster.pod(app)
            assert pod["status"]["phase"] == "Succeeded"
            assert pod["metadata"]["ownerReferences"][0]["kind"] == "Namespace"
            assert gpus_wanted(pod["spec"]) == gpus
        before = name_of(cluster.pod(CUDA_WORKLOAD))
        cluster.delete(cluster.pod(VALIDATOR))
        await cluster.rest(3)
        await cluster.until(lambda: all_ready(cluster.pods(VALIDATOR)), within=60)
        assert name_of(cluster.pod(CUDA_WORKLOAD)) != before

    play(story)


def test_a_workload_pod_that_gets_no_gpu_fails_the_check() -> None:
    async def story() -> None:
        cluster = Cluster(labelled_gpu_node("gpu-1", gpus=1))
        cluster.add(*stack())
        await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()))
        cluster.add(gpu_pod("train"))
        await cluster.until(lambda: all_ready([cluster.store.get("pods", "ml", "train")]))
        cluster.add(operand_set("check", "driver", init=[step("plugin", workload=True)]))
        await cluster.until(lambda: cluster.restarts("check", init=True) == 1, within=330)
        assert cluster.pod(PLUGIN_WORKLOAD)["status"]["reason"] == "UnexpectedAdmissionError"
        assert "did not succeed" in cluster.containers("check", init=True)[0]["lastState"]["terminated"]["message"]

    play(story)
