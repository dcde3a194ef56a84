"""Agents that are told to end while they start: the kubelet may do that at any moment."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gpuward import errors
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.signals import ENDING
from gpuward.agents.telling import Teller
from gpuward.agents.waiting import ToldToEndError, end_by_signals
from gpuward.names import DRIVER_MANAGER_CORDON, DRIVER_MANAGER_PAUSE
from tests.agents.test_driver_manager import PLUGIN, Node, node
from tests.agents.test_driver_manager_evict import Server
from tests.agents.test_driver_manager_pods import Place
from tests.agents.test_validator import OUTPUT, PATIENCE, Machine

__all__ = ["node"]

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
    machine.file(f"root/{OUTPUT}/toolkit-ready", "")
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


def test_a_driver_manager_gives_back_what_one_that_was_killed_has_left(node: Node) -> None:
    """Its pod may be deleted just then, and none may come after it."""
    node.load()
    (node.folder / "sys/busy").touch()
    process = node.begin()
    node.until(node.calls)
    process.kill()
    process.communicate()
    code, said = ended(node.begin(code=STARTED_AND_TOLD.format(module="gpuward.agents.flags", program="driver-manager")))
    assert code == 128 + signal.SIGTERM, said
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    assert node.now()["spec"].get("unschedulable") is None
    assert node.last_words() == "told to end by SIGTERM; the node was given back"
    assert node.modules() == ["nvidia", "nvidia_uvm"]


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


class Late(Server):
    """Be an API server that does a first write only `after` so many further requests: who sent it was told to end before that."""

    def __init__(self, after: int) -> None:
        super().__init__([])
        self.after, self.sent, self.version = after, list[Any](), 0

    def count(self) -> None:
        """Do the write once its time has come, unless the node has changed."""
        self.after -= bool(self.sent)
        if self.sent and self.after <= 0:
            self.written(self.sent.pop())

    def written(self, body: Any) -> bool:
        """Do a write to the node as it was read, and tell whether that is still so."""
        if body["metadata"]["resourceVersion"] != self.node["metadata"].get("resourceVersion"):
            return False
        meta = self.node["metadata"]
        meta["annotations"] = {**meta.get("annotations", {}), **body["metadata"]["annotations"]}
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if value is not None}
        self.node["spec"] |= body.get("spec", {})
        self.version += 1
        meta["resourceVersion"] = f"{self.version}"
        return True

    def get(self, path: str) -> dict[str, Any]:
        self.node["metadata"].setdefault("resourceVersion", "0")
        found = deepcopy(self.node)
        self.count()
        return found

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        if not self.version and not self.sent and "spec" in body:
            self.sent.append(body)
            raise ToldToEndError(signal.SIGTERM)
        self.count()
        if not self.written(body):
            raise errors.Conflict("the object has been modified")
        return self.node


@pytest.mark.parametrize("after", [1, 2, 3, 4, 9])
def test_a_cordon_that_comes_through_after_it_was_told_to_end_is_lifted_or_never_comes(tmp_path: Path, after: int) -> None:
    """Else a node is read that is not cordoned yet, nothing is given back, and the cordon comes after that."""
    place = Place(tmp_path, "nvidia")
    server = place.server = Late(after)
    with pytest.raises(ToldToEndError):
        DriverManager(Settings("gpu-1"), place.machine, server, Teller(io.StringIO()), sleep=lambda seconds: None).uninstall()
    for body in server.sent:
        server.written(body)
    assert not server.node["spec"].get("unschedulable")
    assert not {DRIVER_MANAGER_CORDON, DRIVER_MANAGER_PAUSE} & {*server.node["metadata"]["annotations"]}
