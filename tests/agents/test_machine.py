"""The machine as agents see it, on folders that stand for one: what is there, what is changed, and what is refused in words."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gpuward.agents import processes
from gpuward.agents.host import HostError, ModuleInUseError
from gpuward.agents.machine import LONGEST_FILE, Machine
from gpuward.agents.waiting import ToldToEndError
from tests.agents.silent_files import silent

UID = "0c0f6c0e-4d0c-4f0a-8f0e-0c0f6c0e4d0c"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine that is three folders."""
    for name in ("root", "sys", "proc/self"):
        (tmp_path / name).mkdir(parents=True)
    return Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")


def test_a_file_is_written_whole_and_its_folder_made(machine: Machine) -> None:
    machine.write("/run/nvidia/validations/driver-ready", "IS_HOST_DRIVER=true\n")
    written = machine.root / "run/nvidia/validations/driver-ready"
    assert written.read_text() == "IS_HOST_DRIVER=true\n"
    assert written.stat().st_mode & 0o777 == 0o644
    assert machine.entries("/run/nvidia/validations") == ["driver-ready"], "nothing is left beside it"
    assert machine.read("/run/nvidia/validations/driver-ready") == "IS_HOST_DRIVER=true"
    assert machine.remove("/run/nvidia/validations/driver-ready") is True
    assert machine.remove("/run/nvidia/validations/driver-ready") is False
    assert machine.remove("/nowhere/at/all") is False


def test_what_cannot_be_written_is_said_with_its_path(machine: Machine) -> None:
    (machine.root / "run").write_text("a file")
    with pytest.raises(HostError, match=r"^cannot write /run/nvidia/x: (Not a directory|File exists)$"):
        machine.write("/run/nvidia/x", "")


def test_what_is_no_file_holds_nobody_up_who_reads_it(machine: Machine) -> None:
    """Whoever may write to a folder of the host can put a pipe there, or a link to a file without end."""
    os.mkfifo(machine.root / "pipe")
    (machine.root / "endless").symlink_to("/dev/zero")
    (machine.root / "folder").mkdir()
    assert machine.read("/pipe") == ""
    assert len(machine.read("/endless") or "") == LONGEST_FILE
    assert machine.read("/folder") is None
    assert machine.read("/nowhere") is None


def test_a_link_takes_the_place_of_another(machine: Machine) -> None:
    machine.symlink("/dev/char/195:0", "/dev/nvidia0")
    machine.symlink("/dev/char/195:0", "/dev/nvidia1")
    assert machine.link("/dev/char/195:0") == "/dev/nvidia1"
    assert machine.link("/dev/char") is None


def test_two_containers_of_a_node_may_make_the_same_links_at_once(machine: Machine) -> None:
    """Both validate the driver when it is ready, and link all devices that may come."""
    together, failed = threading.Barrier(2), []

    def link_all(mine: Machine) -> None:
        for number in range(500):
            together.wait()
            try:
                mine.symlink(f"/dev/char/195:{number % 250}", f"/dev/nvidia{number}")
            except HostError as error:
                failed.append(str(error))

    both = [threading.Thread(target=link_all, args=(Machine(machine.root, machine.sys, machine.proc),)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert failed == []
    assert len(machine.entries("/dev/char")) == 250, "nothing is left beside them"
    assert {machine.link(f"/dev/char/195:{number}") for number in range(250)} == {f"/dev/nvidia{n}" for n in range(250, 500)}


def test_a_device_that_another_container_made_is_well(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.root / "dev").mkdir()
    (machine.root / "dev/nvidiactl").touch()
    monkeypatch.setattr(Path, "exists", lambda self: False)  # it came after the look
    machine.make_device("/dev/nvidiactl", 195, 255)
    with pytest.raises(HostError, match="cannot make the device /nowhere/nvidiactl"):
        machine.make_device("/nowhere/nvidiactl", 195, 255)


def test_modules_are_those_with_a_count(machine: Machine) -> None:
    for name, count in (("nvidia", "3\n"), ("nvidia_uvm", "0\n"), ("odd", "a\n"), ("odder", "9" * 5000)):
        (machine.sys / "module" / name).mkdir(parents=True)
        (machine.sys / "module" / name / "refcnt").write_text(count)
    (machine.sys / "module" / "printk").mkdir()
    assert machine.modules() == {"nvidia": 3, "nvidia_uvm": 0, "odd": 0, "odder": 0}


def test_modules_that_the_kernel_cannot_unload_have_a_state_and_no_count(machine: Machine) -> None:
    """As on a kernel without CONFIG_MODULE_UNLOAD, where a driver would else be taken for none."""
    (machine.sys / "module/nvidia/holders").mkdir(parents=True)
    (machine.sys / "module/nvidia/initstate").write_text("live\n")
    (machine.sys / "module/printk/parameters").mkdir(parents=True)
    assert machine.modules() == {"nvidia": 0}


def tool(folder: Path, code: int) -> str:
    """Write a program that stands for rmmod."""
    path = folder / "tool"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint('said', *sys.argv[1:])\nsys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


def test_a_module_in_use_is_told_from_what_cannot_be_unloaded(machine: Machine, tmp_path: Path) -> None:
    Machine(machine.root, module_tool=tool(tmp_path, 0)).unload("nvidia")
    with pytest.raises(ModuleInUseError, match="nvidia"):
        Machine(machine.root, module_tool=tool(tmp_path, 11)).unload("nvidia")
    with pytest.raises(HostError, match="cannot be unloaded: said unload nvidia"):
        Machine(machine.root, module_tool=tool(tmp_path, 1)).unload("nvidia")
    with pytest.raises(HostError, match="/nowhere cannot be run: No such file"):
        Machine(machine.root, module_tool="/nowhere").unload("nvidia")


def test_mounts_come_deepest_first_as_the_machine_names_them(machine: Machine) -> None:
    below = machine.root / "run/nvidia/driver"
    lines = [f"1 0 0:1 / {point} rw - tmpfs tmpfs rw" for point in (
        "/", machine.root / "run/nvidia", below, below / "sys", f"{below}/a\\040b", f"{below}s")]
    (machine.proc / "self" / "mountinfo").write_text("\n".join([*lines, "broken"]))
    root = "/run/nvidia/driver"
    assert machine.mounts_below(root) == [f"{root}/a b", f"{root}/sys", root]


def process(machine: Machine, pid: int, *, opens: str = "", maps: str = "", cgroup: str = "") -> None:
    """Put a process there."""
    folder = machine.proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"program-{pid}\n")
    (folder / "cgroup").write_text(cgroup)
    (folder / "maps").write_text(f"7f00-7f01 rw-s 00000000 00:05 391 {maps}\n" if maps else "")
    (folder / "fd" / "0").symlink_to("/dev/null")
    if opens:
        (folder / "fd" / "12").symlink_to(opens)


def test_who_uses_devices_is_named_with_its_pod(machine: Machine) -> None:
    process(machine, 7)
    process(machine, 90, maps="/dev/nvidia-uvm")
    assert [(user.pid, user.device) for user in machine.device_users()] == [(90, "/dev/nvidia-uvm")]
    process(machine, 80, opens="/dev/nvidiactl (deleted)")
    process(machine, 100, opens="/dev/nvidia0", cgroup=f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri.scope")
    process(machine, 110, opens="/dev/nvidia1", cgroup=f"0::/kubepods/burstable/pod{UID}/abc")
    process(machine, 120, opens="/dev/nvme0")
    (machine.proc / "130").mkdir()
    assert [(user.pid, user.command, user.device, user.pod_uid) for user in machine.device_users()] == [
        (80, "program-80", "/dev/nvidiactl", ""),
        (100, "program-100", "/dev/nvidia0", UID), (110, "program-110", "/dev/nvidia1", UID)]


@pytest.mark.parametrize("path", [
    "/host/dev/nvidia0", "/dev/gdrdrv", "/dev/nvidia-fs0", "/dev/nvidia-caps-imex-channels/channel0", "/dev/nvidia-vgpu1",
    "/dev/nvidia-caps/nvidia-cap4", "/run/nvidia/driver/dev/nvidiactl"])
def test_every_device_of_nvidias_is_one_by_its_name(machine: Machine, path: str) -> None:
    process(machine, 80, opens=path)
    process(machine, 90, opens="/home/dev/nvidia.txt")
    assert [(user.pid, user.device) for user in machine.device_users()] == [(80, path)]


def test_a_device_that_can_be_looked_at_is_known_by_its_number(machine: Machine) -> None:
    (machine.proc / "devices").write_text("Character devices:\n  1 nvidia-caps-imex-channels\n\nBlock devices:\n  8 sd\n")
    assert os.major(os.stat("/dev/null").st_rdev) == 1
    process(machine, 80)
    assert [(user.pid, user.device) for user in machine.device_users()] == [(80, "/dev/null")]
    (machine.proc / "devices").write_text("Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n  1 nvidia\n")
    assert not machine.device_users()


def test_a_device_that_is_no_special_file_is_known_by_its_name_unless_numbers_tell(machine: Machine, tmp_path: Path) -> None:
    """Stand-ins for devices are files; with a driver that the kernel lists, a tenant's file of such a name holds nothing."""
    file = tmp_path / "dev" / "nvidia0"
    file.parent.mkdir()
    file.touch()
    process(machine, 80, opens=str(file))
    assert [user.pid for user in machine.device_users()] == [80]
    (machine.proc / "devices").write_text("Character devices:\n195 nvidia\n\nBlock devices:\n")
    assert not machine.device_users()


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="only root may mount")
def test_a_file_of_a_file_system_that_does_not_answer_holds_nobody_up(machine: Machine, tmp_path: Path) -> None:
    """Any pod that may mount one could keep the driver as it is by a file with the name of a device."""
    process(machine, 70, opens="/dev/nvidia0")
    (machine.proc / "80").mkdir()
    (machine.proc / "80/fd").symlink_to("/proc/self/fd")
    (machine.proc / "devices").write_text("Character devices:\n195 nvidia\n")
    folder = tmp_path / "there/dev"
    with silent(folder, finds=True):
        number = os.open(folder / "nvidia0", os.O_RDONLY)
        try:
            since = time.monotonic()
            assert [user.pid for user in machine.device_users()] == [70]
            assert time.monotonic() - since < 5.0
        finally:
            os.close(number)


def test_a_process_whose_first_thread_has_ended_uses_what_the_others_have_open(machine: Machine, tmp_path: Path) -> None:
    """As one that ends its main function by pthread_exit does: the kernel shows no file of the process itself any more."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    leave = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    code = (f"import ctypes, threading, time; file = open({str(tmp_path / 'dev/nvidia0')!r})\n"
            "threading.Thread(target=time.sleep, args=(60,)).start()\n"
            f"print(flush=True); ctypes.CDLL(None).syscall({leave}, 0)")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            (machine.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
            while os.listdir(f"/proc/{process.pid}/fd"):
                time.sleep(0.02)
            assert [user.pid for user in machine.device_users()] == [process.pid]
        finally:
            process.kill()


def test_a_graphics_device_is_nvidias_where_its_driver_is(machine: Machine) -> None:
    for number, driver in ((128, "ast"), (129, "nvidia")):
        device = machine.sys / f"class/drm/renderD{number}/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        process(machine, number, opens=f"/dev/dri/renderD{number}")
    assert [user.pid for user in machine.device_users()] == [129]


def test_who_has_a_device_mapped_is_not_hidden_by_who_goes_anyway(machine: Machine) -> None:
    process(machine, 80, opens="/dev/nvidiactl", cgroup=f"0::/kubepods/burstable/pod{UID}/abc")
    process(machine, 90, maps="/dev/nvidia0 (deleted)")
    assert [user.pid for user in machine.device_users()] == [80]
    assert [(user.pid, user.device) for user in machine.device_users(beside={UID})] == [
        (80, "/dev/nvidiactl"), (90, "/dev/nvidia0")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at what others have mapped")
@pytest.mark.parametrize(("kind", "opens", "listed"), [
    ("device", False, "1 nvidia"), ("file", False, ""), ("file", True, "240 vfio"), ("device", True, "1 vfio")])
def test_a_file_that_only_has_a_devices_name_holds_nothing_whose_number_the_kernel_tells(
        machine: Machine, tmp_path: Path, kind: str, opens: bool, listed: str) -> None:
    """Any pod could keep the driver as it is by mapping a file that it has named so, or GPUs with vfio by opening one."""
    place = tmp_path / ("dev/vfio/12" if opens else "dev/nvidia0")
    place.parent.mkdir(parents=True)
    if kind == "device":
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # that of /dev/zero
    else:
        place.write_bytes(bytes(4096))
    (machine.proc / "devices").write_text(f"Character devices:\n195 nvidia\n{listed}\n\nBlock devices:\n")
    code = f"import mmap, os, time\nfile = os.open({str(place)!r}, os.O_RDWR)\n" + ("" if opens else (
        "mapped = mmap.mmap(file, 4096, mmap.MAP_PRIVATE)\nos.close(file)\n")) + "print(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            (machine.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
            users = machine.vfio_users() if opens else machine.device_users()
            assert [user.pid for user in users] == [process.pid] * (kind == "device")
        finally:
            process.kill()


def test_a_process_whose_memory_cannot_be_read_holds_nobody_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel holds whoever reads the maps of a process that a GPU holds, as here a pipe does that nobody writes to."""
    monkeypatch.setattr(processes, "MAPS_SECONDS", 1.0)
    for pid in (70, 80, 90):
        process(machine, pid, maps="/dev/nvidia0")
    (machine.proc / "80/maps").unlink()
    os.mkfifo(machine.proc / "80/maps")
    assert [user.pid for user in machine.device_users()] == [70, 90]
    begun = time.monotonic()
    assert [user.pid for user in machine.device_users()] == [70, 90]
    assert time.monotonic() - begun < 0.9, "it is left out from then on"


def test_a_machine_that_starts_no_more_processes_says_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    process(machine, 80)
    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(HostError, match=r"^the memory of processes cannot be looked at: Resource temporarily unavailable$"):
        machine.device_users()


def test_a_process_with_very_many_files_takes_little_memory(machine: Machine) -> None:
    """A server may have a million; an agent that waits looks at them again and again."""
    process(machine, 80)
    for number in range(1, 20_000):
        (machine.proc / f"80/fd/{number}").symlink_to("socket:[1]")
    tracemalloc.start()
    try:
        assert list(machine.vfio_users()) == []
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_static_pod_is_known_by_the_hash_of_its_file(machine: Machine) -> None:
    number = UID.replace("-", "")
    group = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{number}.slice/cri-containerd-ab.scope"
    process(machine, 80, opens="/dev/nvidia0", cgroup=group)
    assert [user.pod_uid for user in machine.device_users()] == [number]


def test_programs_end_in_time_and_are_looked_for_below_their_root(machine: Machine) -> None:
    assert Machine().run([sys.executable, "-c", "print('here')"]) == Machine().run(["/bin/echo", "here"])
    late = Machine().run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], timeout=1.0)
    assert (late.code, late.output) == (None, "begun")
    for path in ("usr/bin", "opt/real"):
        (machine.root / path).mkdir(parents=True)
    real = machine.root / "opt/real/nvidia-smi"
    real.write_text("#!/bin/true\n")
    real.chmod(0o755)
    (machine.root / "usr/bin/nvidia-smi").symlink_to("/opt/real/nvidia-smi")
    (machine.root / "bin").symlink_to("usr/bin")
    (machine.root / "loop").symlink_to("/loop")
    assert machine.locate(PurePosixPath("/bin/nvidia-smi")) == "/opt/real/nvidia-smi"
    assert machine.locate(PurePosixPath("/loop")) is None
    assert machine.locate(PurePosixPath("/usr/bin/other")) is None
    (machine.root / "usr/bin/empty").touch(mode=0o755)
    assert machine.locate(PurePosixPath("/usr/bin/empty")) is None


def held(*words: str) -> list[str]:
    """Return a program that says some words and then does not end for a while."""
    return [sys.executable, "-c", f"import time; print({' '.join(words)!r}, flush=True); time.sleep(60)"]


def test_a_program_that_cannot_be_killed_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is wedged keeps nvidia-smi in state D. Here SIGKILL is swallowed, which comes to the same."""
    begun: list[subprocess.Popen[bytes]] = []
    begin, kill = subprocess.Popen.__init__, os.killpg

    def noted(self: subprocess.Popen[bytes], *args: Any, **keywords: Any) -> None:
        begun.append(self)
        begin(self, *args, **keywords)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    monkeypatch.setattr(subprocess.Popen, "send_signal", lambda *args: None)
    monkeypatch.setattr(os, "killpg", lambda *args: None)
    machine, since = Machine(), time.monotonic()
    late = machine.run(held("begun"), timeout=1.0)
    assert (late.code, late.output) == (None, "begun")
    assert time.monotonic() - since < 15.0
    again = machine.run(held("begun"), timeout=1.0)
    assert (again.code, len(begun)) == (None, 1), "no second one hangs beside it"
    assert again.output == f"process {begun[0].pid}, which was started for the same before, cannot be killed"
    kill(begun[0].pid, signal.SIGKILL)
    begun[0].wait()
    assert machine.run(held("begun"), timeout=1.0).output == "begun", "the GPU lets go, and it is tried again"
    assert len(begun) == 2
    kill(begun[1].pid, signal.SIGKILL)
    begun[1].wait()


def test_who_is_told_to_end_does_not_wait_for_a_program_that_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, end = Machine(), signal.getsignal(signal.SIGALRM)

    def told(*_: object) -> None:
        raise ToldToEndError(signal.SIGALRM)

    monkeypatch.setattr(os, "killpg", lambda *args: None)
    signal.signal(signal.SIGALRM, told)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        since = time.monotonic()
        with pytest.raises(ToldToEndError):
            machine.run(held("begun"), timeout=30.0)
        assert time.monotonic() - since < 1.2
    finally:
        signal.signal(signal.SIGALRM, end)
        for child in machine._programs._hung.values():
            child.kill()
            child.wait()


def test_a_program_has_ended_though_what_it_left_holds_its_output_open() -> None:
    since = time.monotonic()
    left = Machine().run(["/bin/sh", "-c", "sleep 20 & echo $!; exit 3"], timeout=15.0)
    assert left.code == 3
    assert time.monotonic() - since < 10.0
    os.kill(int(left.output), signal.SIGKILL)


def test_what_a_program_leaves_behind_is_killed_with_it(tmp_path: Path) -> None:
    late = Machine().run(["/bin/sh", "-c", f"(sleep 3; touch {tmp_path}/late) & wait"], timeout=0.5)
    assert late.code is None
    time.sleep(4.0)
    assert not (tmp_path / "late").exists()


def test_of_endless_output_the_end_is_kept() -> None:
    ran = Machine().run(["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; exit 2"], timeout=30.0)
    assert (ran.code, len(ran.output), ran.output[-5:]) == (2, 65535, "\nlast")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change roots")
def test_a_program_runs_below_its_root(machine: Machine) -> None:
    busybox = "/bin/busybox"
    if not Path(busybox).exists():
        pytest.skip("busybox is not installed: it runs without libraries")
    (machine.root / "there/bin").mkdir(parents=True)
    subprocess.run(["cp", busybox, machine.root / "there/bin/ls"], check=True)
    assert machine.run(["/bin/ls", "/"], root="/there").output == "bin"
