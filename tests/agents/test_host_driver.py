"""Where programs are looked for that a driver has brought: on the host, and in a container that was given GPUs."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuward.agents.drivermanager.gather import host_driver
from gpuward.agents.host import Ran
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.run import Validation
from gpuward.agents.waiting import Patience
from tests.agents.test_driver_manager_evict import Server

FOLDERS = ("usr/bin", "usr/local/bin", "usr/local/sbin")


@pytest.fixture(params=FOLDERS)
def smi(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put nvidia-smi into a folder of the host's and of the container's; yield its path."""
    def run(machine: Machine, command: Sequence[str], **settings: Any) -> Ran:
        assert command[0] == f"/{request.param}/nvidia-smi"
        return Ran(0, "570.1")

    for root in (tmp_path, tmp_path / "host"):
        (root / request.param).mkdir(parents=True)
        tool = root / request.param / "nvidia-smi"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setattr(Machine, "run", run)
    return f"/{request.param}/nvidia-smi"


def test_a_driver_of_the_hosts_is_found_where_its_programs_are(tmp_path: Path, smi: str) -> None:
    """One that is not found would be unloaded like a container's, from under whatever uses it."""
    assert host_driver(Machine(tmp_path)) == "570.1"


def test_the_toolkit_may_put_programs_where_the_host_has_them(tmp_path: Path, smi: str) -> None:
    teller = Teller(io.StringIO())
    settings = ValidatorSettings("toolkit")
    Validation(settings, Machine(tmp_path), lambda: Server([]), teller, Patience(teller, sleep=lambda seconds: None)).run()
    assert (tmp_path / "run/nvidia/validations/toolkit-ready").exists()


def test_a_script_whose_program_cannot_be_killed_counts_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hosts' nvidia-smi is a script. Here SIGKILL reaches that alone, as it does where a wedged GPU holds the program."""
    kill_all, machine = os.killpg, Machine()
    ended: list[int] = []

    def kill_first(group: int, number: int) -> None:
        ended.append(group)
        os.kill(group, number)

    script = ["/bin/sh", "-c", "sleep 60 & echo $!; wait"]
    monkeypatch.setattr(os, "killpg", kill_first)
    first = machine.run(script, timeout=1.0)
    again = machine.run(script, timeout=1.0)
    assert again.output == f"process {first.output}, which was started for the same before, cannot be killed"
    assert len(ended) == 1, "with each look one more would hang"
    monkeypatch.undo()
    kill_all(ended[0], signal.SIGKILL)
    until = time.monotonic() + 10.0
    while not (late := machine.run(script, timeout=1.0)).output.isdecimal():
        assert time.monotonic() < until, f"the GPU lets go, and it is tried again: {late}"
