"""The driver manager under pods that were given GPUs and have no device open at the moment, and under virtual machines."""

from __future__ import annotations

import dataclasses
import io
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuward import names
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.operands import is_operand
from gpuward.agents.drivermanager.run import DriverManager, DriverManagerError
from gpuward.agents.drivermanager.settings import read_settings
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.errors import Conflict, Forbidden, TooManyRequests
from gpuward.wire.pods import pod_view
from tests.agents.test_driver_manager_evict import TRAIN, Server
from tests.operands.build import objects, states

AS_VFIO_MANAGER = Settings("gpu-1", eviction=False, auto_drain=False, digest="new")
BY_OPERATOR = Settings("gpu-1", digest="new")
DEVICE = "0000:3b:00.0"
CRASHED = {"phase": "Running", "containerStatuses": [
    {"name": "main", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
VM = {**TRAIN, "metadata": {**TRAIN["metadata"], "name": "virt-launcher-vm"}, "spec": {"nodeName": "gpu-1", "containers": [
    {"name": "compute", "resources": {"limits": {"nvidia.com/GH100_H100_SXM5_80GB": "1"}}}]}}


class Place:
    """Hold a machine in a folder, and the API server of its cluster; time passes by 7.5 s with each look at the clock."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.folder = folder
        for name in ("root/run/nvidia", "sys/module", "proc", *(f"sys/module/{each}" for each in modules)):
            (folder / name).mkdir(parents=True)
        for each in modules:
            (folder / "sys/module" / each / "refcnt").write_text("0\n")
        tool = folder / "rmmod"
        tool.write_text(f"#!/bin/sh\nrm -r {folder}/sys/module/$2\n")
        tool.chmod(0o755)
        self.machine = Machine(folder / "root", folder / "sys", folder / "proc", module_tool=str(tool))
        self.server, self.said = Server([]), io.StringIO()

    def give_to_vfio(self, address: str = DEVICE, kind: str = "0x030200") -> None:
        """Bind a device of NVIDIA's, a GPU unless its class is another one, to vfio-pci; its group is 12."""
        device, driver = self.folder / f"sys/bus/pci/devices/{address}", self.folder / "sys/bus/pci/drivers/vfio-pci"
        device.mkdir(parents=True)
        driver.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
        (device / "driver_override").write_text("vfio-pci\n")
        (driver / "unbind").write_text("")
        (device / "driver").symlink_to("../../drivers/vfio-pci")
        (device / "iommu_group").symlink_to("../../../../kernel/iommu_groups/12")

    def opens(self, path: str) -> None:
        """Let a process have a file of vfio's open."""
        user = self.folder / "proc/4711"
        (user / "fd").mkdir(parents=True)
        (user / "comm").write_text("qemu-kvm\n")
        (user / "fd/20").symlink_to(path)

    @property
    def unbound(self) -> str:
        return (self.folder / "sys/bus/pci/drivers/vfio-pci/unbind").read_text()

    def run(self, settings: Settings) -> str:
        """Run the driver manager to its end; return why it gave up, or nothing."""
        clock = count(0.0, 7.5)
        try:
            DriverManager(settings, self.machine, self.server, Teller(self.said),
                          monotonic=lambda: next(clock), sleep=lambda seconds: None).uninstall()
        except DriverManagerError as error:
            return str(error)
        return ""


def by_operator(place: Place) -> None:
    place.server.node["metadata"].setdefault("annotations", {})[names.UPGRADE_ENABLED] = "true"


@pytest.mark.parametrize("operator", [False, True])
def test_a_running_gpu_pod_keeps_its_driver_though_it_has_no_device_open(tmp_path: Path, operator: bool) -> None:
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] = "true"
    if operator:
        by_operator(place)
    why = place.run(BY_OPERATOR if operator else AS_VFIO_MANAGER)
    assert why == "the GPUs are in use by pod default/train: stop them, or let the operator empty the node"
    assert set(place.machine.modules()) == {"nvidia", "nvidia_uvm"}
    assert place.server.pods == [TRAIN]
    assert place.server.cordons == []
    assert place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] == "true", "nobody was disturbed"


@pytest.mark.parametrize("status", [CRASHED, {"phase": "Pending"}, {"phase": "Succeeded"}])
def test_a_pod_in_which_nothing_runs_may_wait_for_the_very_driver_that_is_to_come(
        tmp_path: Path, status: dict[str, Any]) -> None:
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    place.server.pods = [{**TRAIN, "status": status}]
    assert place.run(BY_OPERATOR) == ""
    assert not place.machine.modules()


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
GPU = {"limits": {"nvidia.com/gpu": "1"}}


@pytest.mark.parametrize(("resources", "keeps"), [(GPU, True), ({"claims": [{"name": "gpu"}]}, True), ({}, False)])
@pytest.mark.parametrize("status", [
    {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]},
    CRASHED], ids=["an init container", "a sidecar"])
def test_a_container_that_runs_before_the_others_keeps_the_driver_if_it_has_a_gpu(
        tmp_path: Path, status: dict[str, Any], resources: dict[str, Any], keeps: bool) -> None:
    """One without any may wait for the very driver that is to come."""
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    spec = {**TRAIN["spec"], "initContainers": [{"name": "first", "resources": resources}]}
    first = {"initContainerStatuses": [{"name": "first", "state": RUNS}]}
    place.server.pods = [{**TRAIN, "spec": spec, "status": {**status, **first}}]
    assert place.run(BY_OPERATOR).startswith("the GPUs are in use by pod default/train") is keeps
    assert bool(place.machine.modules()) is keeps


@pytest.mark.parametrize(("asked", "keeps"), [("1", True), ("0", False)])
def test_a_sidecar_that_alone_has_a_gpu_keeps_the_driver(tmp_path: Path, asked: str, keeps: bool) -> None:
    """Such as the server of a model, idle at the moment, beside a container that asks it."""
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    sidecar = {"name": "server", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": asked}}}
    place.server.pods = [{**TRAIN, "spec": {"nodeName": "gpu-1", "containers": [{"name": "main"}], "initContainers": [sidecar]},
                          "status": {"phase": "Running", "initContainerStatuses": [{"name": "server", "state": RUNS}],
                                     "containerStatuses": [{"name": "main", "state": RUNS}]}}]
    assert place.run(BY_OPERATOR).startswith("the GPUs are in use by pod default/train") is keeps
    assert bool(place.machine.modules()) is keeps


@pytest.mark.parametrize(("resources", "keeps"), [(GPU, True), ({"claims": [{"name": "gpu"}]}, True), ({}, False)])
def test_a_container_with_a_gpu_keeps_the_driver_though_another_one_has_never_run(
        tmp_path: Path, resources: dict[str, Any], keeps: bool) -> None:
    """The kubelet says Pending then, as long as the other one's image cannot be pulled."""
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    place.server.pods = [{**TRAIN, "spec": {"nodeName": "gpu-1", "containers": [
        {"name": "main", "resources": resources}, {"name": "other", "resources": GPU}]}, "status": {
        "phase": "Pending", "containerStatuses": [
            {"name": "main", "state": RUNS}, {"name": "other", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}]
    assert place.run(BY_OPERATOR).startswith("the GPUs are in use by pod default/train") is keeps
    assert bool(place.machine.modules()) is keeps


def test_a_sidecar_that_alone_has_a_gpu_is_evicted_as_any_user(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    sidecar = {"name": "server", "restartPolicy": "Always", "resources": GPU}
    place.server.pods = [{**TRAIN, "spec": {"nodeName": "gpu-1", "containers": [{"name": "main"}], "initContainers": [sidecar]},
                          "status": {"phase": "Running", "initContainerStatuses": [{"name": "server", "state": RUNS}]}}]
    assert place.run(Settings("gpu-1", auto_drain=False)) == ""
    assert "evicted pod default/train" in place.said.getvalue()


def test_a_process_of_a_static_pod_is_named_with_it(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    number = "0123456789abcdef" * 2
    meta = {"name": "monitor-gpu-1", "namespace": "kube-system", "uid": "u9", "annotations": {
        "kubernetes.io/config.mirror": number, "kubernetes.io/config.hash": number}}
    place.server.pods = [{**TRAIN, "metadata": meta}]
    place.opens("/dev/nvidia0")
    (tmp_path / "proc/4711/cgroup").write_text(f"0::/kubepods.slice/kubepods-burstable-pod{number}.slice/cri-1.scope\n")
    why = place.run(BY_OPERATOR)
    assert why.startswith("the GPUs are in use by process 4711 (qemu-kvm) of pod kube-system/monitor-gpu-1: stop them")


@pytest.mark.parametrize("said", ["", "0c0f6c0e-4d0c-4f0a-8f0e-0c0f6c0e4d0c"])
def test_no_pod_passes_for_another_one_by_what_it_says_of_itself(tmp_path: Path, said: str) -> None:
    """Everybody may write the annotation by which the kubelet knows static pods: it is a hash there, and the mirror's alone."""
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    meta = {**TRAIN["metadata"], "name": "odd", "annotations": {"kubernetes.io/config.hash": said}}
    place.server.pods = [{**TRAIN, "metadata": meta}]
    place.opens("/dev/nvidia0")
    if said:
        (tmp_path / "proc/4711/cgroup").write_text(f"0::/kubepods.slice/kubepods-burstable-pod{said}.slice/cri-1.scope\n")
    where = f"pod {said}" if said else "the host"
    assert place.run(BY_OPERATOR).startswith(f"the GPUs are in use by process 4711 (qemu-kvm) of {where}, ")


class Faster(Server):
    """Be a cluster in which somebody is always faster."""

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        raise Conflict("the object has been modified")


def test_a_node_that_others_change_without_end_is_given_up(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    place.server = Faster([])
    place.server.pods = []
    why = place.run(BY_OPERATOR)
    assert why == "nothing that was seen still held when it was acted on, for 60 s: the object has been modified"


class Deaf(Server):
    """Be a cluster that no longer lets its pods be listed, from the third time on, and is busy when the node is given back."""

    def __init__(self) -> None:
        super().__init__([])
        self.lists, self.busy = 0, 1

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.lists += 1
        if self.lists > 2:
            raise Forbidden("pods may not be listed")
        return super().list(path, labels=labels, fields=fields)

    def get(self, path: str) -> dict[str, Any]:
        if self.lists > 2 and self.busy:
            self.busy -= 1
            raise TooManyRequests("slow down")
        return super().get(path)


def test_a_node_is_given_back_by_what_is_known_of_the_node_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    place.server = Deaf()
    place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] = "true"
    plugin = in_daemonset("gpu-operator", {"app": "nvidia-device-plugin-daemonset"})
    place.server.pods = [{**plugin, "spec": {"nodeName": "gpu-1", "containers": []}}]
    with pytest.raises(Forbidden):
        place.run(Settings("gpu-1", digest="new"))
    assert place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] == "true"
    assert not place.server.node["spec"].get("unschedulable")
    assert "pausing operands" in place.said.getvalue()


@pytest.mark.parametrize(("label", "goes"), [("client", True), ("driver", False), ("dcgm-exporter", False)])
def test_a_daemonsets_pod_is_in_the_way_unless_a_label_that_is_paused_makes_it_go(
        tmp_path: Path, label: str, goes: bool) -> None:
    """`driver` is paused by nobody, and one that is `false` already changes nothing."""
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    by_operator(place)
    deploy = names.DEPLOY_PREFIX
    place.server.node["metadata"]["labels"] |= {f"{deploy}client": "true", f"{deploy}driver": "true",
                                                f"{deploy}dcgm-exporter": "false"}
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "monitor", "uid": "u0", "controller": True}]
    place.server.pods = [{**TRAIN, "metadata": {**TRAIN["metadata"], "ownerReferences": owner},
                          "spec": {**TRAIN["spec"], "nodeSelector": {deploy + label: "true"}}}]
    why = place.run(BY_OPERATOR)
    assert why.startswith("the operands default/train did not end" if goes else "the GPUs are in use by pod default/train")


def in_daemonset(namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u0", "controller": True}]
    return {**TRAIN, "metadata": {**TRAIN["metadata"], "namespace": namespace, "labels": labels, "ownerReferences": owner}}


@pytest.mark.parametrize("namespace", ["default", "gpu-operator"])
def test_a_daemonset_of_peoples_own_keeps_its_driver_wherever_it_is(tmp_path: Path, namespace: str) -> None:
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    place.server.pods = [in_daemonset(namespace, {"app": "my-inference"})]
    assert place.run(BY_OPERATOR).startswith(f"the GPUs are in use by pod {namespace}/train")
    assert set(place.machine.modules()) == {"nvidia"}


def test_no_operand_is_in_the_drivers_way(tmp_path: Path) -> None:
    """Whatever gpuward renders, as it is labelled there."""
    vgpu = {"enabled": True, "repository": "r", "image": "m", "version": "1"}
    found: dict[str, dict[str, str]] = {}
    for mode in (None, "kubevirt", "kata"):
        virtual = {"sandboxWorkloads": {"enabled": True, "mode": mode}, "vgpuManager": vgpu} if mode else {}
        made = objects(states({"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True},
                               "ccManager": {"enabled": True}, **virtual}).values())
        found |= {obj["metadata"]["name"]: obj["spec"]["template"]["metadata"]["labels"]
                  for obj in made.values() if obj["kind"] == "DaemonSet"}
    assert len(found) >= 17
    found |= {"an NVIDIADriver's": {"app": "nvidia-gpu-driver-ubuntu24.04-1", names.COMPONENT_LABEL: names.DRIVER_COMPONENT},
              "its host's": {"app": "nvidia-vgpu-host-driver-1", names.COMPONENT_LABEL: names.VGPU_HOST_COMPONENT}}
    for name, labels in found.items():
        pod = pod_view(json.dumps(in_daemonset("gpu-operator", labels)).encode())
        assert is_operand(pod, "gpu-operator"), name
        assert not is_operand(pod, "default"), name


def test_a_machine_keeps_its_gpu(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.give_to_vfio()
    place.server.pods = [VM]
    assert place.run(AS_VFIO_MANAGER) == (
        f"{DEVICE} may be in use by virtual machines: pod default/virt-launcher-vm")
    assert place.unbound == ""
    place.server.pods = []
    place.run(AS_VFIO_MANAGER)
    assert place.unbound == DEVICE


@pytest.mark.parametrize(("label", "ready", "kept"), [
    (names.DEPLOY_DRIVER, True, False), (names.DEPLOY_DRIVER, False, True), (names.DEPLOY_VGPU_MANAGER, True, True)])
def test_a_network_device_keeps_no_gpu_on_a_node_for_containers(tmp_path: Path, label: str, ready: bool, kept: bool) -> None:
    """It may have a name as a GPU of virtual machines has. A machine that is yet to start has nothing open either."""
    place = Place(tmp_path)
    place.give_to_vfio()
    place.server.node["metadata"]["labels"][label] = "true"
    place.server.pods = [{**VM, "spec": {"nodeName": "gpu-1", "containers": [
        {"name": "main", "resources": {"limits": {"nvidia.com/cx7_vf": "1"}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": ready}]}}]
    assert ("may be in use by virtual machines" in place.run(BY_OPERATOR)) is kept
    assert (place.unbound == "") is kept


@pytest.mark.parametrize("path", ["/dev/vfio/12", "/dev/vfio/13", "/dev/vfio/vfio"])
def test_a_process_that_has_the_devices_group_open_keeps_it(tmp_path: Path, path: str) -> None:
    place = Place(tmp_path)
    place.give_to_vfio()
    place.opens(path)
    place.server.pods = []
    why = place.run(AS_VFIO_MANAGER)
    used = path == "/dev/vfio/12"
    assert ("may be in use by virtual machines: process 4711 (qemu-kvm) of the host" in why) is used
    assert (place.unbound == "") is used


SOUND, SWITCH = "0000:3b:00.1", "0000:05:00.0"


@pytest.mark.parametrize("runs", [True, False], ids=["its machine runs", "its machine is down"])
def test_an_nvswitch_stays_with_the_machine_that_runs_the_fabric(tmp_path: Path, runs: bool) -> None:
    place = Place(tmp_path)
    place.give_to_vfio(SWITCH, "0x068000")
    place.server.pods = []
    if runs:
        place.opens("/dev/vfio/12")
    assert place.run(BY_OPERATOR) == ""
    assert place.unbound == ""


def test_an_nvswitch_is_taken_where_that_is_wished(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.give_to_vfio(SWITCH, "0x068000")
    place.server.pods = []
    place.run(read_settings(["uninstall_driver"], {"NODE_NAME": "gpu-1", "BIND_NVSWITCHES": "true"}).settings)
    assert place.unbound == SWITCH


@pytest.mark.parametrize("other", [SOUND, "0000:3c:00.1"])
def test_with_a_gpu_its_further_functions_go(tmp_path: Path, other: str) -> None:
    place = Place(tmp_path)
    place.give_to_vfio()
    place.give_to_vfio(other, "0x040300")
    place.server.pods = []
    why = place.run(AS_VFIO_MANAGER)  # nothing is unbound by what is written to this folder
    assert (SOUND in why) is (other == SOUND)
    assert place.unbound == (SOUND if other == SOUND else DEVICE)


def test_a_device_that_cannot_be_taken_keeps_no_other(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.give_to_vfio()
    place.give_to_vfio("0000:3c:00.0")
    (tmp_path / f"sys/bus/pci/devices/{DEVICE}/driver_override").unlink()
    (tmp_path / f"sys/bus/pci/devices/{DEVICE}/driver_override").mkdir()
    place.server.pods = []
    place.run(AS_VFIO_MANAGER)
    assert place.unbound == "0000:3c:00.0"
    assert f"{DEVICE} stays with its driver for virtual machines: cannot write" in place.said.getvalue()


def test_a_vfio_manager_that_comes_anew_leaves_machines_their_gpus_and_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.give_to_vfio()
    place.server.pods = [VM]
    place.server.node["metadata"]["labels"][names.DEPLOY_VFIO_MANAGER] = "true"
    assert place.run(AS_VFIO_MANAGER) == ""
    assert place.unbound == ""


def test_a_machine_keeps_the_driver_of_its_host(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia_vgpu_vfio", "nvidia")
    place.server.pods = [VM]
    assert "the GPUs are in use by pod default/virt-launcher-vm" in place.run(AS_VFIO_MANAGER)
    assert set(place.machine.modules()) == {"nvidia", "nvidia_vgpu_vfio"}


NETWORK = ("nvidia.com/hostdev", "nvidia.com/rdma_shared_device_a")


@pytest.mark.parametrize("resource", NETWORK)
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_pod_with_a_network_device_and_no_gpu_holds_no_driver_for_containers(tmp_path: Path, resource: str, phase: str) -> None:
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    by_operator(place)
    place.server.node["metadata"]["labels"] |= {names.DEPLOY_DRIVER: "true", names.DEPLOY_PLUGIN: "true"}
    place.server.pods = [{**VM, "status": {"phase": phase}, "spec": {"nodeName": "gpu-1", "containers": [
        {"name": "main", "resources": {"limits": {resource: "1"}}}]}}]
    assert place.run(BY_OPERATOR) == ""
    assert not place.machine.modules()


@pytest.mark.parametrize("label", [names.DEPLOY_VFIO_MANAGER, names.DEPLOY_VGPU_MANAGER])
def test_on_a_node_that_is_for_machines_they_keep_the_driver(tmp_path: Path, label: str) -> None:
    place = Place(tmp_path, "nvidia")
    place.server.node["metadata"]["labels"][label] = "true"
    place.server.pods = [VM]
    assert "the GPUs are in use by pod default/virt-launcher-vm" in place.run(AS_VFIO_MANAGER)
    assert set(place.machine.modules()) == {"nvidia"}


@pytest.mark.parametrize(("first", "unloads"), [("nvidia_uvm", False), ("nvidia", True)])
def test_a_driver_that_was_half_unloaded_does_not_stay_where_the_change_is_taken_back(
        tmp_path: Path, first: str, unloads: bool) -> None:
    """Its container would load no module of a driver that seems to be the wanted one, and no program could use CUDA."""
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    by_operator(place)
    place.server.pods = []
    digest, tool = tmp_path / "root/run/nvidia/nvidia-driver.state", tmp_path / "rmmod"
    digest.write_text("old\n")
    unloading = tool.read_text()
    tool.write_text(f"#!/bin/sh\n[ $2 = {first} ] && exit 11\nrm -r {tmp_path}/sys/module/$2\n")
    assert place.run(BY_OPERATOR).startswith(f"the module {first} is in use")
    assert ("nvidia_uvm" not in place.machine.modules()) is unloads
    tool.write_text(unloading)
    assert place.run(dataclasses.replace(BY_OPERATOR, digest="old")) == ""
    assert bool(place.machine.modules()) is not unloads, place.said.getvalue()
