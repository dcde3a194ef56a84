"""What the driver's validation says of a driver of the host's that is broken, and what it asks of the API server meanwhile."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuward.agents.host import Ran
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.run import Validation
from gpuward.agents.waiting import Patience
from tests.agents.test_driver_manager_evict import Server

OURS = {"metadata": {"ownerReferences": [{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}]}}


class Broken(Machine):
    """Be a machine whose host's nvidia-smi fails, and whose driver's root has one that does not."""

    def run(self, command: Sequence[str], *, root: str = "", env: Mapping[str, str] | None = None, timeout: float = 30.0) -> Ran:
        return Ran(18, "Failed to initialize NVML: Driver/library version mismatch") if root else Ran(0, "")


class DaemonSets(Server):
    """Answer with the driver's DaemonSets, and count how often."""

    asked = 0

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.asked += 1
        return self.pods


class EnoughError(Exception):
    """Say that the time to look at is over."""


def validate(folder: Path, server: Server, seconds: float, happens: Mapping[float, Any]) -> str:
    """Validate the driver for so long; return what was said."""
    smi = folder / "root/host/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text("x")
    smi.chmod(0o755)
    now, said = [0.0], io.StringIO()

    def sleep(pause: float) -> None:
        now[0] += pause
        happens.get(now[0], int)()
        if now[0] > seconds:
            raise EnoughError

    settings = ValidatorSettings("driver", namespace="g", wait=True, every=1.0, dev_char=False)
    teller = Teller(said)
    with contextlib.suppress(EnoughError):
        Validation(settings, Broken(folder / "root", folder / "sys", folder / "proc"), lambda: server, teller,
                   Patience(teller, lambda: now[0], sleep)).run()
    return said.getvalue()


def test_a_broken_driver_of_the_host_is_told_and_costs_the_server_little(tmp_path: Path) -> None:
    server = DaemonSets([], pods=[])
    said = validate(tmp_path, server, 600.0, {})
    assert "the host's nvidia-smi ended with 18 (Failed to initialize NVML: Driver/library version mismatch)" in said
    assert server.asked < 30, "ten minutes, and a look each second"


@pytest.mark.parametrize(("target", "well"), [("/etc/passwd", False), ("/opt/smi", True), ("../../../../opt/smi", True)])
def test_a_link_of_the_hosts_leads_to_a_file_of_the_hosts(tmp_path: Path, target: str, well: bool) -> None:
    """A host in WSL is known by a file; a link to one that only the validator's own container has is none."""
    (tmp_path / "root/host/opt").mkdir(parents=True)
    (tmp_path / "root/host/opt/smi").write_text("x")
    smi = tmp_path / "root/host/usr/lib/wsl/lib/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.symlink_to(target)
    assert ("driver is well" in validate(tmp_path, DaemonSets([], pods=[]), 3.0, {})) is well


@pytest.mark.parametrize("late", [2.0, 100.0])
def test_nothing_is_called_well_by_what_was_so_a_while_ago(tmp_path: Path, late: float) -> None:
    """The operator brings a driver after all, and its nvidia-smi answers before all of it is there."""
    server = DaemonSets([], pods=[])
    root = tmp_path / "root/run/nvidia/driver"

    def comes() -> None:
        server.pods = [OURS]
        for path in ("usr/bin/nvidia-smi", "usr/lib64/libnvidia-ml.so.1"):
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text("x")
            (root / path).chmod(0o755)

    said = validate(tmp_path, server, late + 60.0, {late: comes})
    assert "driver is well" not in said
    assert "the driver container is not ready" in said
