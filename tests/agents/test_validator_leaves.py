"""What the validator leaves behind where it cannot go on."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.agents.test_validator import NODE, OUTPUT, PATIENCE, Cluster, Machine, cluster, until

__all__ = ["cluster"]


def test_links_that_cannot_be_made_are_told_with_a_way_out(cluster: Cluster, tmp_path: Path) -> None:
    cluster.own_drivers(controller=True)
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.program("run/nvidia/driver/usr/bin/nvidia-smi")
    machine.file("root/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1")
    machine.file(f"root/{OUTPUT}/.driver-ctr-ready", "GDRCOPY_ENABLED: false\n")
    machine.file("proc/devices", "Character devices:\n195 nvidia-frontend\n")
    machine.file("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    machine.file("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
    (tmp_path / "root/host/dev").mkdir(parents=True)
    (tmp_path / "root/host-dev-char").rmdir()
    machine.file("root/host-dev-char")
    code, words = machine.run(COMPONENT="driver")
    assert code == 1
    assert words.startswith("cannot make the link /host-dev-char/195:")
    assert "issue 430" in words
    assert "DISABLE_DEV_CHAR_SYMLINK_CREATION=true" in words
    assert "driver-ready" not in machine.left()
    assert machine.run(COMPONENT="driver", DISABLE_DEV_CHAR_SYMLINK_CREATION="true")[0] == 0


def test_told_to_end_it_leaves_no_pod_behind(cluster: Cluster, tmp_path: Path) -> None:
    machine = Machine(tmp_path, cluster.kubeconfig)
    process = machine.begin(COMPONENT="cuda", VALIDATOR_IMAGE="example.com/gpuward:1")
    until(lambda: cluster.pods() or process.poll() is not None)
    process.terminate()
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, said
    until(lambda: not cluster.pods())


def test_what_is_no_file_says_nothing_and_makes_room_for_one(cluster: Cluster, tmp_path: Path) -> None:
    """A runtime that mounts a file that is not there makes a folder in its place."""
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.file("sys/module/nvidia_fs/refcnt", "0\n")
    (tmp_path / f"root/{OUTPUT}/nvidia-fs-ready").mkdir(parents=True)
    waits = machine.begin("await", "nvidia-fs-ready")
    assert waits.stdout is not None
    assert "waiting: " in waits.stdout.readline()
    assert machine.run(COMPONENT="nvidia-fs")[0] == 0
    waits.communicate(timeout=PATIENCE)
    assert waits.returncode == 0
    assert machine.left()["nvidia-fs-ready"] == ""


def test_files_of_modules_go_that_a_driver_no_longer_brings(cluster: Cluster, tmp_path: Path) -> None:
    cluster.own_drivers(controller=True)
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.program("run/nvidia/driver/usr/bin/nvidia-smi")
    machine.file("root/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1")
    machine.file("sys/module/gdrdrv/refcnt", "0\n")
    for gds in ("true", "false"):
        machine.file(f"root/{OUTPUT}/.driver-ctr-ready", f"GDRCOPY_ENABLED: true\nGDS_ENABLED: {gds}\n")
        machine.file("sys/module/nvidia_fs/refcnt", "0\n")
        code, words = machine.run(COMPONENT="driver", DISABLE_DEV_CHAR_SYMLINK_CREATION="true")
        assert code == 0, words
        assert ("nvidia-fs-ready" in machine.left()) is (gds == "true")
        assert "gdrcopy-ready" in machine.left()


def test_what_hosts_are_for_is_taken_back_by_a_pod_that_goes_before_all_is_validated(cluster: Cluster, tmp_path: Path) -> None:
    """The node may be for another kind of virtual machines when the next pod comes, and others read the file before that."""
    machine = Machine(tmp_path, cluster.kubeconfig)
    for name in ("vgpu-manager-ready", "toolkit-ready"):
        machine.file(f"root/{OUTPUT}/{name}", "")
    process = machine.begin(COMPONENT="vfio-pci", WITH_WAIT="true", NODE_NAME=NODE)
    assert process.stdout is not None
    assert "waiting: there is no GPU" in process.stdout.readline()
    assert machine.left()["workload-type"] == "vm-passthrough\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert sorted(machine.left()) == ["toolkit-ready"]
