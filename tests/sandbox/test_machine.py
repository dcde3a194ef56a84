from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuward.names import NFD_KERNEL
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.machine import DriverChange, GpuMachine, Passage
from gpuward.sandbox.programs import OPENS_GPUS
from kubesandbox.builders import namespace
from kubesandbox.errors import NotFound
from kubesandbox.sim.objects import Object, is_ready, labels_of, name_of, phase_of, uid_of
from kubesandbox.timeloop import run_virtual
from tests.sandbox.build import OPERATOR, driver, gpu_pod, labelled_gpu_node, stack

NODE = "gpu-1"
DRIVER = "nvidia-driver-daemonset"


class Bench:
    """Hold a sandbox with one GPU node and its stack, ready."""

    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self.store = self.sandbox.store

    async def start(self) -> None:
        await self.sandbox.start()
        self.sandbox.add_node(labelled_gpu_node(NODE))
        for obj in (namespace(OPERATOR), namespace("ml"), *stack("550.90.07")):
            self.sandbox.apply(obj)
        await self.sandbox.until(lambda: self.ready() == 6, 120)

    def ready(self) -> int:
        return sum(is_ready(pod) for pod in self.store.list("pods", OPERATOR))

    async def train(self, **annotations: str) -> None:
        self.sandbox.apply(gpu_pod("train", annotations=annotations))
        await self.sandbox.until(lambda: is_ready(self.store.get("pods", "ml", "train")))

    def machine(self) -> GpuMachine:
        return self.sandbox.machine(NODE)

    def delete_driver_pod(self) -> str:
        name = next(name_of(pod) for pod in self.store.list("pods", OPERATOR) if labels_of(pod).get("app") == DRIVER)
        self.store.delete("pods", OPERATOR, name)
        return f"{OPERATOR}/{name}"

    def wish_for(self, version: str) -> None:
        self.sandbox.apply(driver(version))

    def since(self, start: int) -> list[tuple[DriverChange, str, tuple[str, ...]]]:
        return [(one.change, one.driver, one.workloads) for one in self.sandbox.passages[start:]]


def play(story: Any) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.start()
        await story(bench)
        await bench.sandbox.stop()

    run_virtual(main)


def test_a_machine_tells_what_is_loaded_since_when_and_for_whom() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        machine = bench.machine()
        loaded, served = bench.sandbox.passages
        assert (loaded.change, loaded.machine) == (DriverChange.LOADED, NODE)
        assert (loaded.driver, loaded.at) == ("550.90.07", machine.loaded_at)
        assert (served.change, served.pod) == (DriverChange.SERVED, machine.server)
        assert list(machine.workloads.values()) == ["ml/train"]
        assert "ml/train" in machine.users.values()

    play(story)


def test_an_empty_machine_changes_its_driver_and_nothing_is_torn() -> None:
    async def story(bench: Bench) -> None:
        bench.wish_for("560.35.03")
        old, start = bench.delete_driver_pod(), len(bench.sandbox.passages)
        await bench.sandbox.until(lambda: bench.machine().driver == "560.35.03" and bench.machine().server not in ("", old))
        assert bench.since(start) == [
            (DriverChange.LEFT, "550.90.07", ()), (DriverChange.UNLOADED, "550.90.07", ()),
            (DriverChange.LOADED, "560.35.03", ()), (DriverChange.SERVED, "560.35.03", ())]
        assert not any(one.tore for one in bench.sandbox.passages)

    play(story)


def test_a_driver_pod_that_goes_under_a_gpu_pod_leaves_the_modules_and_a_trail() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        bench.wish_for("560.35.03")
        start = len(bench.sandbox.passages)
        pod = bench.delete_driver_pod()
        await asyncio.sleep(120)
        assert bench.since(start) == [(DriverChange.LEFT, "550.90.07", ("ml/train",))]
        (torn,) = [one for one in bench.sandbox.passages if one.tore]
        assert torn.pod == pod
        assert (bench.machine().driver, bench.machine().server) == ("550.90.07", "")

    play(story)


def test_a_pod_that_has_no_gpu_open_cannot_keep_its_driver() -> None:
    async def story(bench: Bench) -> None:
        await bench.train(**{OPENS_GPUS: "false"})
        bench.wish_for("560.35.03")
        bench.delete_driver_pod()
        await bench.sandbox.until(lambda: bench.machine().driver == "560.35.03", 120)
        assert [(one.change, one.workloads) for one in bench.sandbox.passages if one.tore] == [
            (DriverChange.LEFT, ("ml/train",)), (DriverChange.UNLOADED, ("ml/train",))]

    play(story)


def test_the_same_digest_loads_nothing_whatever_the_image_says() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        other = driver("560.35.03", digest="550.90.07")
        bench.sandbox.apply(other)
        bench.delete_driver_pod()
        await bench.sandbox.until(lambda: bench.sandbox.passages[-1].change is DriverChange.SERVED, 120)
        assert bench.machine().driver == "550.90.07"

    play(story)


def test_no_driver_is_loaded_over_another_one() -> None:
    seen: list[Passage] = []
    machine = GpuMachine(labelled_gpu_node(NODE), lambda: None, lambda: 7.0, seen.append)
    assert machine.load("550.1", "a") == ""
    assert machine.load("560.1", "b") == "the modules of driver 550.1 are loaded"
    assert (machine.driver, machine.loaded_at, len(seen)) == ("550.1", 7.0, 1)


def test_a_machine_outlives_its_node_and_makes_it_again_as_another_one() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        before = bench.store.get("nodes", None, NODE)
        pods = {uid_of(pod) for pod in bench.store.list("pods")}
        bench.store.delete("nodes", None, NODE)
        await asyncio.sleep(10)
        again = bench.sandbox.register_node(NODE)
        assert uid_of(again) != uid_of(before)
        assert set(labels_of(again)) == {"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
                                         "beta.kubernetes.io/arch", "beta.kubernetes.io/os"}
        assert "nvidia.com/gpu" not in again["status"]["capacity"]
        assert uid_of(bench.store.get("pods", "ml", "train")) in pods
        assert bench.machine().driver == "550.90.07"
        await bench.sandbox.until(lambda: labels_of(bench.store.get("nodes", None, NODE)).get(NFD_KERNEL), 61)

    play(story)


def test_the_device_plugin_registers_with_a_kubelet_that_has_made_its_node_again() -> None:
    async def story(bench: Bench) -> None:
        # The plugin's pod stays only while the node has the label that the DaemonSet selects by.
        bench.sandbox.apply(next(found for found in stack() if found["metadata"]["name"] == "nvidia-device-plugin-daemonset"))
        bench.store.delete("nodes", None, NODE)
        made = bench.sandbox.register_node(NODE)
        bench.store.modify("nodes", None, NODE, lambda obj: obj["metadata"].update(labels=labels_of(labelled_gpu_node(NODE))))
        await bench.sandbox.until(lambda: bench.store.get("nodes", None, NODE)["status"]["allocatable"].get(
            "nvidia.com/gpu") == "8", 10)
        assert uid_of(bench.store.get("nodes", None, NODE)) == uid_of(made)

    play(story)


def test_a_machine_whose_node_stays_away_is_emptied_by_the_pod_garbage_collector() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        phases = []
        bench.store.subscribe(lambda event: phases.append((event.type, phase_of(event.obj))), "pods")
        bench.store.delete("nodes", None, NODE)
        await asyncio.sleep(30)
        assert list(bench.machine().workloads.values()) == ["ml/train"]
        await asyncio.sleep(60)
        assert bench.store.list("pods") == []
        assert {phase for kind, phase in phases if kind == "DELETED"} == {"Failed"}
        assert bench.machine().workloads == {}
        # All its pods are killed at once, and the driver finds its GPUs open when it is told to go: the modules stay.
        assert (bench.machine().driver, bench.machine().server) == ("550.90.07", "")
        assert bench.sandbox.passages[-1].change is DriverChange.LEFT

    play(story)


def test_a_machine_that_is_taken_away_takes_its_driver_along() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        bench.sandbox.remove_node(NODE)
        last = bench.sandbox.passages[-1]
        assert (last.change, last.driver, last.workloads, last.tore) == (DriverChange.LOST, "550.90.07", ("ml/train",), True)
        with pytest.raises(NotFound):
            bench.machine()
        with pytest.raises(NotFound):
            bench.sandbox.register_node(NODE)

    play(story)


def test_a_reboot_empties_the_machine_and_a_new_kernel_shows() -> None:
    async def story(bench: Bench) -> None:
        await bench.train()
        bench.sandbox.reboot(NODE, kernel="5.15.0-200-generic")
        assert bench.machine().driver == ""
        assert bench.sandbox.passages[-1].change is DriverChange.LOST
        await bench.sandbox.until(lambda: phase_of(bench.store.get("pods", "ml", "train")) == "Failed", 10)
        assert "UnexpectedAdmissionError" in str(bench.store.get("pods", "ml", "train")["status"])
        await bench.sandbox.until(lambda: bench.machine().driver == "550.90.07", 60)
        node: Object = bench.store.get("nodes", None, NODE)
        assert node["status"]["nodeInfo"]["kernelVersion"] == "5.15.0-200-generic"
        await bench.sandbox.until(lambda: labels_of(bench.store.get("nodes", None, NODE))[NFD_KERNEL] == "5.15.0-200-generic", 61)
        await bench.sandbox.until(lambda: bench.ready() == 6, 120)

    play(story)
