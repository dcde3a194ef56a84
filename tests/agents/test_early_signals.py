"""Agents that are told to end while they start: the kubelet may do that at any moment."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gpuward import errors
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.signals import ENDING
from gpuward.agents.telling import Teller
from gpuward.agents.waiting import end_by_signals
from tests.agents.test_driver_manager_evict import Server
from tests.agents.test_driver_manager_pods import Place
from tests.agents.test_validator import OUTPUT, PATIENCE, Machine

STARTED_AND_TOLD = """
import os, signal, sys
from gpuward.agents.main import main

class Told:
    def find_spec(self, name, *args):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Told())
sys.argv = [{program!r}, *sys.argv[1:]]
main()
"""
"""Starts a program by its name and tells it to end when it imports a module."""
MODULES = ("gpuward.agents.validator.command", "gpuward.agents.machine", "gpuward.agents.flags")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine whose validator has said that all is well."""
    made = Machine(tmp_path)
    for name in ("driver-ready", "toolkit-ready"):
        made.file(f"root/{OUTPUT}/{name}", "")
    return made


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return how a process ended, and what it said."""
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said


@pytest.mark.parametrize("module", MODULES)
def test_the_pod_that_stays_takes_its_word_back_though_it_has_just_started(machine: Machine, module: str) -> None:
    code, said = ended(machine.begin("idle", code=STARTED_AND_TOLD.format(module=module, program="nvidia-validator")))
    assert (code, machine.left()) == (0, {}), said


@pytest.mark.parametrize("module", MODULES)
def test_so_does_a_validation(machine: Machine, module: str) -> None:
    code, said = ended(machine.begin(code=STARTED_AND_TOLD.format(module=module, program="nvidia-validator"),
                                     COMPONENT="toolkit", WITH_WAIT="true"))
    assert (code, machine.left()) == (128 + signal.SIGTERM, {}), said


def test_a_driver_manager_says_why_it_ends(machine: Machine) -> None:
    code, said = ended(machine.begin("uninstall_driver", code=STARTED_AND_TOLD.format(
        module="gpuward.agents.drivermanager.command", program="driver-manager")))
    assert (code, machine.last_words()) == (128 + signal.SIGTERM, "told to end by SIGTERM"), said


class Failing(Server):
    """Be an API server that fails once the cordon is there, and is well again after that."""

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        if self.cordons == [True]:
            raise errors.ServerError("etcdserver: leader changed")
        return super().list(path, labels=labels, fields=fields)


def test_told_to_end_in_the_moment_in_which_it_fails_it_gives_the_node_back(tmp_path: Path) -> None:
    """A signal that comes with the error is looked at when the next function begins: the one that is to ignore it."""
    def trace(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name == "no_more_signals":
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)

    place, before = Place(tmp_path, "nvidia"), {number: signal.getsignal(number) for number in ENDING}
    place.server = Failing([])
    manager = DriverManager(Settings("gpu-1"), place.machine, place.server, Teller(io.StringIO()))
    end_by_signals()
    try:
        sys.settrace(trace)
        with pytest.raises(errors.ServerError, match="leader changed"):
            manager.uninstall()
    finally:
        sys.settrace(None)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert place.server.cordons == [True, False]
