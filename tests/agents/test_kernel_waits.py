"""The driver manager under a kernel that does not do what it was asked for: a wedged GPU keeps it from ending, for ever."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePosixPath

import pytest

from gpuward import names
from gpuward.agents import machine
from gpuward.agents.host import HostError
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.look import gpus
from gpuward.agents.validator.run import Validation
from gpuward.agents.validator.workload import ValidationError
from gpuward.agents.waiting import Patience
from tests.agents.silent_files import silent
from tests.agents.test_driver_manager import PATIENCE, PLUGIN, Node
from tests.agents.test_driver_manager_evict import Server
from tests.agents.test_driver_manager_pods import AS_VFIO_MANAGER, BY_OPERATOR, DEVICE, Place, by_operator
from tests.agents.test_validator_vgpu import Quiet

HANGS = f"#!{sys.executable}\nimport time\ntime.sleep(3600)\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the kernel for a moment only; the driver manager's clock goes on by 7.5 s with each look."""
    monkeypatch.setattr(machine, "KERNEL_SECONDS", 0.3)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a process that answers, however busy this machine is."""
    monkeypatch.setattr(machine, "KERNEL_SECONDS", PATIENCE)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Yield a machine whose kernel's processes end with the test."""
    made = Place(tmp_path, "nvidia")
    by_operator(made)
    made.server.pods = []
    made.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] = "true"
    yield made
    for child in made.machine._programs._begun.values():
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_a_module_that_the_kernel_does_not_unload_is_named_and_given_up(place: Place) -> None:
    (place.folder / "rmmod").write_text(HANGS)
    why = place.run(BY_OPERATOR)
    assert why.startswith("the kernel has not unloaded the module nvidia yet (process ")
    assert why.endswith("see `dmesg` on the node, end what uses the GPU, or else restart the node")
    said = [line.partition(" ")[2] for line in place.said.getvalue().splitlines()]
    assert said.index("unloading the module nvidia") < said.index(next(line for line in said if "waiting: the kernel" in line))
    assert len(place.machine._programs._begun) == 1, "no second one is started beside it"
    assert place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] == "true", "the node is given back"


def test_a_module_that_another_process_unloads_without_end_is_not_called_one_in_use(place: Place) -> None:
    """It is what an attempt leaves behind that was given up: the kernel goes on with it."""
    (place.folder / "rmmod").write_text("#!/bin/sh\nexit 11\n")
    (place.folder / "sys/module/nvidia/initstate").write_text("going\n")
    assert place.run(BY_OPERATOR).startswith("the kernel has not unloaded the module nvidia yet, as another process asked it to")


@pytest.mark.usefixtures("patient")
def test_a_kernel_that_cannot_unload_modules_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DELETE", f"import sys\nsys.exit({errno.ENOSYS})\n")
    with pytest.raises(HostError, match=r"^the module nvidia cannot be unloaded: .* without CONFIG_MODULE_UNLOAD"):
        Machine(place.machine.root).unload("nvidia")


def test_a_slow_kernel_is_waited_for(place: Place) -> None:
    tool = place.folder / "rmmod"
    tool.write_text(tool.read_text().replace("rm -r", "sleep 0.5; rm -r"))
    assert place.run(BY_OPERATOR) == ""
    assert not place.machine.modules()


def test_a_device_that_the_kernel_does_not_take_from_its_driver_is_named_and_given_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.server.pods = []
    place.give_to_vfio()
    unbind = tmp_path / "sys/bus/pci/drivers/vfio-pci/unbind"
    unbind.unlink()
    os.mkfifo(unbind)  # to open it for writing waits for a reader, as the kernel waits for those who use a device
    why = place.run(AS_VFIO_MANAGER)
    assert why.startswith(f"the kernel has not taken '{DEVICE}' in /sys/bus/pci/devices/{DEVICE}/driver/unbind yet (process ")
    assert f"taking {DEVICE} from its driver for virtual machines" in place.said.getvalue()
    with open(unbind, encoding="utf-8") as taken:
        assert taken.read() == DEVICE, "the kernel goes on with it"
    for child in place.machine._programs._begun.values():
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def mounted(place: Place) -> None:
    """Let the driver's root be mounted."""
    (place.folder / "proc/self").mkdir()
    root = place.folder / "root/run/nvidia/driver"
    (place.folder / "proc/self/mountinfo").write_text(f"36 35 98:0 / {root} rw - overlay none rw\n")


def test_a_mount_that_the_kernel_does_not_detach_is_named_and_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "UNMOUNT", "import time\ntime.sleep(3600)\n")
    mounted(place)
    why = place.run(BY_OPERATOR)
    assert why.startswith("the kernel has not detached the mount /run/nvidia/driver yet (process ")
    assert why.endswith(": a file system does not answer; see `dmesg` on the node, or else restart the node")
    assert len(place.machine._programs._begun) == 1, "no second one is started beside it"
    assert place.server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] == "true", "the node is given back"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("number", "words"), [
    (errno.EPERM, "cannot unmount /run/nvidia/driver: Operation not permitted"), (errno.EINVAL, ""), (errno.ENOENT, "")])
def test_a_mount_that_may_not_be_detached_is_an_error_and_one_that_is_gone_is_none(
        place: Place, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    monkeypatch.setattr(machine, "UNMOUNT", f"import sys\nsys.exit({number})\n")
    with pytest.raises(HostError, match=words) if words else nullcontext():
        place.machine.unmount("/run/nvidia/driver")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("code", "words"), [
    ("import os\nos.kill(os.getpid(), 9)\n", "was ended by signal 9"),
    ("raise MemoryError('no room')\n", "MemoryError: no room")])
def test_a_process_that_could_not_ask_the_kernel_is_not_taken_for_its_answer(
        place: Place, monkeypatch: pytest.MonkeyPatch, code: str, words: str) -> None:
    """It ends with 1 then, which is the number of "Operation not permitted", or with no number of an error at all."""
    monkeypatch.setattr(machine, "UNMOUNT", code)
    with pytest.raises(HostError, match=f"^the kernel could not be asked: .*{words}$"):
        place.machine.unmount("/run/nvidia/driver")


@pytest.mark.usefixtures("patient")
def test_what_is_no_mount_is_detached_already(place: Place) -> None:
    place.machine.unmount("/run/nvidia")
    place.machine.unmount("/run/nvidia/none")


def test_virtual_functions_that_the_kernel_does_not_tell_of_are_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not while a driver takes the device, or gives it up: whoever reads how many there are waits for that."""
    device = tmp_path / "sys/bus/pci/devices" / DEVICE
    device.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("sriov_totalvfs", "16")):
        (device / name).write_text(f"{text}\n")
    os.mkfifo(device / "sriov_numvfs")
    smi = tmp_path / "root/host/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text("x")
    smi.chmod(0o755)
    host, server, said = Quiet(tmp_path / "root", tmp_path / "sys", tmp_path / "proc"), Server([]), io.StringIO()
    server.node["metadata"]["labels"]["nvidia.com/gpu.workload.config"] = "vm-vgpu"

    def told(seconds: float) -> None:
        monkeypatch.setattr(machine, "KERNEL_SECONDS", PATIENCE)
        with open(device / "sriov_numvfs", "w", encoding="utf-8") as file:
            file.write("16\n")

    settings, teller = ValidatorSettings("vgpu-manager", node="gpu-1", wait=True), Teller(said)
    Validation(settings, host, lambda: server, teller, Patience(teller, sleep=told)).run()
    assert "waiting: the kernel has not told how many virtual functions of GPUs are enabled yet (process " in said.getvalue()
    assert (tmp_path / "root/run/nvidia/validations/host-vgpu-manager-ready").exists()
    assert [gpu.address for gpu in gpus(host)] == [DEVICE], "nobody waits for that who does not need it"


NO_MOUNTS = pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="only root may mount")


@NO_MOUNTS
def test_a_file_system_of_the_hosts_that_does_not_answer_is_named(tmp_path: Path, place: Place) -> None:
    """On many a node /opt is of a server; nvidia-smi is looked for there, too."""
    place.machine = replace(place.machine, proc=Path("/proc"))
    with silent(tmp_path / "root/host/opt", finds=False):
        since = time.monotonic()
        what = r"^the kernel has not told whether /host/opt/bin/nvidia-smi is there yet \(process \d+\): "
        with pytest.raises(HostError, match=f"{what}a file system does not answer; see `dmesg` on the node"):
            place.run(BY_OPERATOR)
        assert time.monotonic() - since < 5.0
        said = io.StringIO()
        with pytest.raises(ValidationError, match=f"{what}see `dmesg` on this node, for 15 s"):
            Validation(ValidatorSettings("driver", namespace="g"), place.machine, lambda: place.server, Teller(said),
                       Patience(Teller(said), monotonic=count(0.0, 5.0).__next__, sleep=lambda seconds: None)).run()
        assert len(place.machine._programs._begun) == 1


@pytest.mark.usefixtures("patient")
def test_a_file_system_of_a_server_that_answers_is_looked_at(tmp_path: Path) -> None:
    host = Machine(tmp_path, proc=tmp_path)
    for folder in ("server/bin", "self"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "opt").symlink_to("/server")
    (tmp_path / "self/mountinfo").write_text(f"36 35 98:0 / {tmp_path}/server rw shared:1 - nfs4 server:/opt rw\n")
    assert host.locate(PurePosixPath("/opt/bin/nvidia-smi")) is None
    (tmp_path / "server/bin/nvidia-smi").write_text("x")
    assert host.locate(PurePosixPath("/opt/bin/nvidia-smi")) is None
    assert host.locate_file(PurePosixPath("/opt/bin/nvidia-smi")) == "/server/bin/nvidia-smi"
    (tmp_path / "server/bin/nvidia-smi").chmod(0o755)
    assert host.locate(PurePosixPath("/opt/bin/nvidia-smi")) == "/server/bin/nvidia-smi"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_told_to_while_the_kernel_does_not(tmp_path: Path, number: signal.Signals) -> None:
    node = Node(tmp_path)
    try:
        node.load()
        (tmp_path / "rmmod").write_text(HANGS)
        process = node.begin(DRIVER_CONFIG_DIGEST="new")
        assert process.stdout is not None
        said = ""
        while "unloading the module" not in said:
            said = process.stdout.readline()
            assert said
        time.sleep(0.2)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=PATIENCE)
        digest = tmp_path / "root/run/nvidia/nvidia-driver.state"
        assert not digest.exists(), "the kernel goes on with it: half a driver is none that may stay"
        if number == signal.SIGTERM:
            assert process.returncode == 128 + signal.SIGTERM, rest
            assert node.now()["metadata"]["labels"][PLUGIN] == "true"
            assert not node.now()["spec"].get("unschedulable")
    finally:
        node.server.stop()
