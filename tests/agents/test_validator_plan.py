"""What the validator makes of what it finds, component by component."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.agents.host import Ran
from gpuward.agents.validator import plan
from gpuward.agents.validator.facts import DeviceFacts, DriverFacts, PciGpu, ValidatorSettings
from gpuward.agents.validator.settings import read_settings
from gpuward.agents.validator.workload import progress
from gpuward.errors import InputError

SETTINGS = ValidatorSettings("driver")
WELL = Ran(0, "NVIDIA-SMI 595")
THERE: dict[str, Any] = {"smi": WELL, "library": "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1"}
IN_CONTAINER = ("IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n"
                "NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n")
OWN_DEVICES = IN_CONTAINER.replace("DEV_ROOT=/\n", "DEV_ROOT=/run/nvidia/driver\n").replace("PATH=/host", "PATH=/driver-root")
ON_HOST = ("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n")


@pytest.mark.parametrize(("facts", "missing", "files"), [
    (DriverFacts(wsl=True), "", {"driver-ready": ON_HOST}),
    (DriverFacts(host_smi=WELL), "", {"driver-ready": ON_HOST}),
    (DriverFacts(managed=True), "the driver container is not ready", {}),
    (DriverFacts(managed=True, container_ready=""), "there is no libnvidia-ml.so.1 below /run/nvidia/driver", {}),
    (DriverFacts(library="x"), "there is no nvidia-smi below /run/nvidia/driver", {}),
    (DriverFacts(library="x", smi=Ran(9, "NVIDIA-SMI has\n failed")), "nvidia-smi ended with 9 (NVIDIA-SMI has failed): see", {}),
    (DriverFacts(library="x", smi=Ran(None, "")), "nvidia-smi did not end in time: see", {}),
    (DriverFacts(host_smi=Ran(18, "Driver/library version mismatch")),
     "the host's nvidia-smi ended with 18 (Driver/library version mismatch): see `dmesg` on this node", {}),
    (DriverFacts(host_smi=Ran(18, "Driver/library version mismatch"), managed=True),
     "the driver container is not ready: see `kubectl logs` of the driver pod on this node, or `gpuward explain` of the "
     "node where it has none; if the host has a driver of its own: "
     "its nvidia-smi ended with 18 (Driver/library version mismatch), see `dmesg`", {}),
    (DriverFacts(host_smi=Ran(1, ""), **THERE), "", {"driver-ready": IN_CONTAINER}),
    (DriverFacts(device_root=True, **THERE), "", {"driver-ready": OWN_DEVICES}),
    (DriverFacts(managed=True, container_ready="GDS_ENABLED: true\nGDRCOPY_ENABLED: false", **THERE),
     "GDS_ENABLED is true, and the module nvidia_fs is not loaded", {}),
    (DriverFacts(managed=True, container_ready="GDS_ENABLED: true", modules=frozenset({"nvidia_fs"}), **THERE), "",
     {"nvidia-fs-ready": "", "driver-ready": IN_CONTAINER}),
])
def test_a_driver(facts: DriverFacts, missing: str, files: dict[str, str]) -> None:
    verdict = plan.driver(facts, SETTINGS)
    assert verdict.missing.startswith(missing)
    assert bool(verdict.missing) is bool(missing)
    assert verdict.files == files


def test_what_else_there_is_to_judge() -> None:
    assert "did not put nvidia-smi" in plan.toolkit(None).missing
    assert plan.toolkit(WELL).files == {"toolkit-ready": ""}
    assert plan.module("gdrcopy", frozenset({"gdrdrv"})).files == {"gdrcopy-ready": ""}
    assert plan.module("nvidia-peermem", frozenset()).missing.startswith("the kernel module nvidia_peermem is not loaded")
    rdma = ValidatorSettings("mofed", rdma=True)
    assert plan.mofed(rdma, present=False, ready=False) == plan.Verdict()
    assert plan.mofed(rdma, present=True, ready=True).files == {"mofed-ready": ""}
    assert "network operator" in plan.mofed(rdma, present=True, ready=False).missing
    assert plan.vfio([PciGpu("0000:01:00.0", "vfio-pci"), PciGpu("0000:02:00.0", "nvgrace_gpu_vfio_pci")]).files
    assert plan.vfio([PciGpu("01:00.0", "nvidia")]).missing.startswith("GPU 01:00.0 is bound to nvidia and not to vfio-pci")
    half, full, none = (PciGpu("a", functions=number, all_functions=16) for number in (8, 16, 0))
    assert plan.vgpu_manager(WELL, [half], 0, host=False).missing.startswith("8 of 16 virtual")
    assert plan.vgpu_manager(WELL, [full], 0, host=False).files == {"vgpu-manager-ready": ""}
    assert plan.vgpu_manager(WELL, [none], 2, host=True).files == {"host-vgpu-manager-ready": ""}
    assert plan.vgpu_manager(WELL, [PciGpu("a")], 0, host=True).missing.startswith("there are neither")
    assert plan.cc_manager(capable=True, ready=False).missing
    assert plan.cc_manager(capable=False, ready=False).files == {"cc-manager-ready": ""}
    assert plan.workload_type(ValidatorSettings("vfio-pci"), "nonsense") == "vm-passthrough"
    assert plan.workload_type(ValidatorSettings("vfio-pci", default_workload="container"), None) == "container"
    assert plan.gpu_resource({"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "2", "cpu": "4"}) == "nvidia.com/mig-1g.10gb"
    assert plan.gpu_resource({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "4"}) == "nvidia.com/gpu.shared"


def test_devices_get_links_for_all_that_may_come() -> None:
    facts = DeviceFacts(2, {"nvidia-frontend": 195, "nvidia-uvm": 509, "nvidia-caps": 234},
                        {"config": 1, "monitor": 2, "gpu0/gi1": 12, "gpu1/gi2/ci0": 31, "gpu7/gi0": 99})
    assert plan.device_links(facts, "/") == {
        "195:254": "/dev/nvidia-modeset", "195:255": "/dev/nvidiactl", "195:0": "/dev/nvidia0", "195:1": "/dev/nvidia1",
        "509:0": "/dev/nvidia-uvm", "509:1": "/dev/nvidia-uvm-tools", "234:1": "/dev/nvidia-caps/nvidia-cap1",
        "234:2": "/dev/nvidia-caps/nvidia-cap2", "234:12": "/dev/nvidia-caps/nvidia-cap12",
        "234:31": "/dev/nvidia-caps/nvidia-cap31"}
    assert plan.device_links(facts, "/run/nvidia/driver")["195:0"] == "/run/nvidia/driver/dev/nvidia0"
    one = DeviceFacts(1, {"nvidia": 195})
    assert plan.control_devices(one) == {"/dev/nvidia-modeset": (195, 254), "/dev/nvidiactl": (195, 255)}
    assert plan.device_links(DeviceFacts(0, {"nvidia": 195}), "/") == {}


@pytest.mark.parametrize(("status", "words"), [
    ({}, "is Pending, no container of it runs yet: see `kubectl describe pod` of it"),
    ({"phase": "Running"}, "is Running"),
    ({"phase": "Pending", "initContainerStatuses": [{"name": "cuda-validation", "state": {"running": {}}}],
      "containerStatuses": [{"name": "x", "state": {"waiting": {"reason": "PodInitializing"}}}]},
     "has not ended in cuda-validation: see `kubectl logs` of it, and `dmesg` on this node"),
    ({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}],
      "initContainerStatuses": [{"name": "cuda-validation", "state": {"waiting": {"reason": "PodInitializing"}}}]},
     "is Pending, no container of it runs yet: see `kubectl describe pod` of it"),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"},
     "is Failed: UnexpectedAdmissionError no devices"),
    ({"initContainerStatuses": [{"name": "cuda-validation", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {
        "terminated": {"exitCode": 1, "message": "libcuda sees\nno GPU"}}}]},
     "failed in cuda-validation with exit code 1: libcuda sees no GPU"),
    ({"initContainerStatuses": [{"name": "x", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]},
     "does not start: ImagePullBackOff (not found)"),
])
def test_a_pod_is_told_with_the_last_words_of_its_container(status: dict[str, object], words: str) -> None:
    assert progress({"status": status}) == words


def test_variables_and_flags_are_nvidias() -> None:
    called = read_settings(["-w"], {
        "COMPONENT": "plugin", "NODE_NAME": "gpu-1", "OPERATOR_NAMESPACE": "ns", "WITH_WORKLOAD": "false", "VALIDATOR_IMAGE": "i",
        "SLEEP_INTERVAL_SECONDS": "5"})
    assert called.settings == ValidatorSettings(
        "plugin", "gpu-1", "ns", wait=True, workload=False, default_workload="", workload_pod={"VALIDATOR_IMAGE": "i"})
    assert read_settings(["await", "toolkit-ready"], {}).words == ("await", "toolkit-ready")


@pytest.mark.parametrize("arguments", [
    ["-component=cuda", "-node-name", "n", "-ns", "operators", "-with-wait"],
    ["--component", "cuda", "-n=n", "--ns=operators", "-w=true"], ["-c", "cuda", "-n", "n", "-namespace=operators", "-w"]])
def test_one_dash_is_as_good_as_two(arguments: list[str]) -> None:
    """So Go reads flags, and so may whoever has written a command for NVIDIA's."""
    settings = read_settings(arguments, {}).settings
    assert (settings.component, settings.node, settings.namespace, settings.wait) == ("cuda", "n", "operators", True)


@pytest.mark.parametrize(("arguments", "environ", "said"), [
    ([], {}, "COMPONENT: '' cannot be used: there are driver, toolkit"),
    (["-c", "gpu"], {}, "--component: 'gpu' cannot be used: there are driver"),
    ([], {"COMPONENT": "cuda", "NODE_NAME": "n"}, "OPERATOR_NAMESPACE: '' cannot be used"),
    ([], {"COMPONENT": "plugin"}, "NODE_NAME: '' cannot be used"),
    ([], {"COMPONENT": "metrics", "NODE_NAME": "n"}, "METRICS_PORT: '0' cannot be used: name a port"),
    ([], {"COMPONENT": "driver", "WITH_WAIT": "yes"}, "WITH_WAIT: 'yes' cannot be used: write true or false"),
    ([], {"COMPONENT": "driver", "SLEEP_INTERVAL_SECONDS": "x"},
     "SLEEP_INTERVAL_SECONDS: 'x' cannot be used: write a whole number"),
    ([], {"COMPONENT": "driver", "SKIP_VALIDATION": "true"},
     "SKIP_VALIDATION: 'true' cannot be used: it is for toolkit, cuda, plugin"),
    (["await"], {}, "command: 'await' cannot be used"),
    ([], {"COMPONENT": "metrics", "NODE_NAME": "n", "METRICS_PORT": f"{0:011}99999"},
     "METRICS_PORT: '0000000000099999' cannot be used: write a whole number from 0 to 65535"),
    ([], {"COMPONENT": "metrics", "NODE_NAME": "n", "METRICS_PORT": "0" * 5000 + "x"}, f"METRICS_PORT: '{'0' * 100}...' c"),
    ([], {"COMPONENT": "cc-manager", "NODE_NAME": "a\udcff"}, "NODE_NAME: 'a\\udcff' cannot be used: write it as UTF-8"),
    ([], {"COMPONENT": "cuda", "NODE_NAME": "n", "OPERATOR_NAMESPACE": "g", "VALIDATOR_IMAGE": "\udcff"},
     "VALIDATOR_IMAGE: '\\udcff' cannot be used: write it as UTF-8"),
])
def test_what_cannot_be_used_is_named(arguments: list[str], environ: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as error:
        read_settings(arguments, environ)
    assert str(error.value).startswith(said)


def test_a_port_may_have_any_number_of_zeros_before_it() -> None:
    said = {"COMPONENT": "metrics", "NODE_NAME": "n", "METRICS_PORT": f"{8080:05000}"}
    assert read_settings([], said).settings.port == 8080


@pytest.mark.parametrize(("quantity", "count"), [("8", 8), ("1k", 1000), ("2Ki", 2048), ("0", 0), ("x", 0), ("i", 0), ("-1", 0)])
def test_whole_quantities_are_kubernetes(quantity: str, count: int) -> None:
    assert plan.count(quantity) == count
    assert plan.gpu_resource({"nvidia.com/gpu": quantity}) == ("nvidia.com/gpu" if count else "")


def test_a_node_for_virtual_machines_without_a_gpu_is_not_well() -> None:
    assert plan.vfio([]).missing.startswith("there is no GPU of NVIDIA's on the PCI bus")
    assert plan.vfio([PciGpu("0000:01:00.0", "vfio-pci")]).files == {"vfio-pci-ready": ""}
