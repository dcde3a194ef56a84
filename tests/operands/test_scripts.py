"""The scripts, run by a real shell on a directory that stands for the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuward.operands import scripts

DRIVER_FACTS = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n"


class Host:
    """Stand for a node: status files, loaded modules, and programs that say how they were started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.validations = root / "validations"
        self.validations.mkdir()
        self.modules = root / "modules"
        self.modules.write_text("nvidia 1 0 - Live 0x0\n")
        self.refcnt = root / "refcnt"
        self.programs = root / "bin"
        self.programs.mkdir()
        self.program("sleep", "exit 0")

    def program(self, name: str, body: str) -> None:
        """Put a program onto the PATH."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script, its absolute paths moved under the root."""
        moved = (
            script.replace("/run/nvidia/validations", str(self.validations))
            .replace("/proc/modules", str(self.modules))
            .replace("/sys/module/nvidia/refcnt", str(self.refcnt))
        )
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", **variables}
        return subprocess.run(["/bin/sh", "-c", moved], env=environment, capture_output=True, text=True, timeout=20, check=False)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(("script", "program"), [
    (scripts.TOOLKIT_ENTRYPOINT, "nvidia-toolkit"),
    (scripts.DEVICE_PLUGIN_ENTRYPOINT, "nvidia-device-plugin"),
    (scripts.MIG_MANAGER_ENTRYPOINT, "nvidia-mig-manager"),
])
def test_entrypoints_wait_for_the_driver_and_hand_on_what_is_known_about_it(host: Host, script: str, program: str) -> None:
    facts = host.validations / "driver-ready"
    # The first sleep stands for the time in which the validator finishes.
    host.program("sleep", f"printf '{DRIVER_FACTS}' > {facts}")
    host.program(program, 'echo "started with $NVIDIA_DRIVER_ROOT"')
    result = host.run(script)
    assert result.returncode == 0
    assert "the driver is not validated" in result.stdout
    assert "started with /run/nvidia/driver" in result.stdout


@pytest.mark.parametrize(("modules", "given", "expected"), [
    ("nvidia 1\n", {}, "gdrcopy= gds= mofed="),
    ("gdrdrv 1\n", {}, "gdrcopy=true gds= mofed="),
    ("nvidia_fs 1\n", {}, "gdrcopy= gds=true mofed=true"),
    ("gdrdrv 1\nnvidia_fs 1\n", {"GDRCOPY_ENABLED": "false", "GDS_ENABLED": "false"}, "gdrcopy=false gds=false mofed=true"),
    ("nvidia_fs_other 1\nxgdrdrv 1\n", {}, "gdrcopy= gds= mofed="),
])
def test_device_plugin_offers_what_is_loaded(host: Host, modules: str, given: dict[str, str], expected: str) -> None:
    (host.validations / "driver-ready").write_text(DRIVER_FACTS)
    host.modules.write_text(modules)
    host.program("nvidia-device-plugin", 'echo "gdrcopy=$GDRCOPY_ENABLED gds=$GDS_ENABLED mofed=$MOFED_ENABLED"')
    assert host.run(scripts.DEVICE_PLUGIN_ENTRYPOINT, **given).stdout.splitlines()[-1] == expected


def test_mig_manager_stops_services_of_a_host_that_has_the_driver(host: Host) -> None:
    (host.validations / "driver-ready").write_text(DRIVER_FACTS)
    host.program("nvidia-mig-manager", 'echo "shutdown=$WITH_SHUTDOWN_HOST_GPU_CLIENTS"')
    assert host.run(scripts.MIG_MANAGER_ENTRYPOINT).stdout.splitlines()[-1] == "shutdown=true"


def test_startup_probe_reports_a_working_driver(host: Host) -> None:
    host.refcnt.write_text("1")
    host.program("nvidia-smi", "exit 0")
    (host.validations / ".driver-daemons-status").write_text("Ready\n")
    assert host.run(scripts.DRIVER_STARTUP_PROBE, GDS_ENABLED="true").returncode == 0
    assert (host.validations / ".driver-ctr-ready").read_text() == (
        "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"
    )
    assert [path.name for path in host.validations.iterdir() if path.name.endswith(".new")] == []


@pytest.mark.parametrize(("loaded", "status", "smi", "words"), [
    (False, "Ready", 0, "kernel module is not loaded"),
    (True, "NotReady", 0, "daemons are not ready: NotReady"),
    (True, "Ready", 9, "nvidia-smi does not work"),
    (True, None, 9, "nvidia-smi does not work"),
])
def test_startup_probe_fails_with_a_reason(host: Host, loaded: bool, status: str | None, smi: int, words: str) -> None:
    if loaded:
        host.refcnt.write_text("1")
    if status is not None:
        (host.validations / ".driver-daemons-status").write_text(status)
    host.program("nvidia-smi", f"exit {smi}")
    result = host.run(scripts.DRIVER_STARTUP_PROBE)
    assert result.returncode == 1
    assert words in result.stdout
    assert not (host.validations / ".driver-ctr-ready").exists()
