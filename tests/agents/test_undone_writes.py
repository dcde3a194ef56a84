"""The driver manager where what it does is undone at once: by a webhook, another controller, or whoever loads modules."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuward import names
from gpuward.agents.drivermanager import run
from gpuward.agents.host import ModuleInUseError
from gpuward.agents.machine import Machine
from gpuward.errors import Conflict
from tests.agents.test_driver_manager_evict import Server
from tests.agents.test_driver_manager_pods import BY_OPERATOR, DEVICE, Place, by_operator


class Forgetful(Server):
    """Be a cluster in which a patch succeeds, and is undone by a controller that managedFields name."""

    def __init__(self, forgets: str) -> None:
        super().__init__([])
        self.forgets, self.patches = forgets, 0

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        self.patches += 1
        assert self.patches < 1000, "it floods the API server"
        kept = {key: value for key, value in body.items() if key != self.forgets}
        if self.forgets == "labels":
            kept["metadata"] = {**body["metadata"], "labels": {}}
        return super().patch(path, kept, kind)


@pytest.mark.parametrize("manager", ["", "fleet"])
@pytest.mark.parametrize(("forgets", "field", "does"), [
    ("spec", {"f:spec": {"f:unschedulable": {}}}, "takes the cordon off gpu-1 again and again"),
    ("labels", {"f:metadata": {"f:labels": {f"f:{names.DEPLOY_PLUGIN}": {}}}},
     f"sets the label {names.DEPLOY_PLUGIN} back again and again")])
def test_what_somebody_undoes_is_written_some_times_and_then_given_up(
        tmp_path: Path, forgets: str, field: Any, does: str, manager: str) -> None:
    place = Place(tmp_path, "nvidia")
    server = place.server = Forgetful(forgets)
    server.pods = []
    server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] = "true"
    if manager:
        server.node["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": field}]
    if forgets == "labels":
        by_operator(place)
    assert place.run(BY_OPERATOR) == f"{manager or 'somebody'} {does}"
    assert server.patches < 40
    assert place.machine.modules(), "nothing was unloaded under operands that stay"


def test_a_module_that_is_loaded_again_at_once_is_named_and_given_up(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    place.server.pods = []
    calls = tmp_path / "calls"
    (tmp_path / "rmmod").write_text(f"#!/bin/sh\necho $2 >> {calls}\n[ $(wc -l < {calls}) -lt 50 ]\n")
    assert place.run(BY_OPERATOR) == "nvidia was loaded again after it was unloaded"
    assert len(calls.read_text().split()) < 20


class Undoing(Server):
    """Be a cluster in which something is so again with each look at the node."""

    again: Callable[[], None]
    looks = 0

    def get(self, path: str) -> dict[str, Any]:
        self.looks += 1
        assert self.looks < 100, "it does the same for ever"
        self.again()
        return super().get(path)


@pytest.mark.parametrize(("module", "why"), [
    ("nvidia", "nvidia was loaded again after it was unloaded"),
    ("nouveau", "nouveau was loaded again after it was unloaded, and no driver of NVIDIA's can be loaded beside it: "
                "keep it from being loaded (modprobe.blacklist=nouveau) and restart the node")])
def test_a_module_that_is_loaded_again_a_moment_later_is_unloaded_for_a_while_only(
        tmp_path: Path, module: str, why: str) -> None:
    """Such as by a hook that loads it with each container that starts: it was not there when it was looked for just then."""
    place = Place(tmp_path)
    place.server = server = Undoing([])
    by_operator(place)
    server.pods = []
    folder = tmp_path / "sys/module" / module

    def load() -> None:
        folder.mkdir(exist_ok=True)
        (folder / "refcnt").write_text("0\n")

    server.again = load
    assert place.run(BY_OPERATOR) == why
    assert f"waiting: {module} was loaded again after it was unloaded" in place.said.getvalue()


def test_a_module_that_was_slow_to_go_has_its_whole_time_when_it_comes_once_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as while Mellanox' driver is waited for: it failed at once, and nobody was to be seen who used the module."""
    place = Place(tmp_path, "nvidia")
    place.server = server = Undoing([])
    by_operator(place)
    server.pods = []
    folder, calls = tmp_path / "sys/module/nvidia", [""][:0]

    def unload(machine: Machine, module: str) -> None:
        calls.append(module)
        if len(calls) == 1:
            raise ModuleInUseError(f"the module {module} is in use")
        shutil.rmtree(folder)

    def load() -> None:
        if server.looks == 20:
            folder.mkdir()
            (folder / "refcnt").write_text("0\n")

    device = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x15b3\n")
    monkeypatch.setattr(Machine, "unload", unload)
    server.again = load
    assert place.run(replace(BY_OPERATOR, rdma=True)).startswith("Mellanox' driver is not ready"), place.said.getvalue()
    assert len(calls) == 3
    assert not folder.exists()


def test_a_device_that_is_bound_again_a_moment_later_is_taken_for_a_while_only(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.server = server = Undoing([])
    by_operator(place)
    server.pods = []
    place.give_to_vfio()
    driver = tmp_path / f"sys/bus/pci/devices/{DEVICE}/driver"

    def poke(machine: Machine, path: str, text: str) -> None:
        if path.endswith("/unbind"):
            driver.unlink()

    monkeypatch.setattr(Machine, "poke", poke)
    server.again = lambda: None if driver.is_symlink() else driver.symlink_to("../../drivers/vfio-pci")
    assert place.run(BY_OPERATOR) == f"{DEVICE} was given to a driver for virtual machines again after it was taken from it"


def test_a_mount_that_comes_again_a_moment_later_is_detached_for_a_while_only(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.server = server = Undoing([])
    by_operator(place)
    server.pods = []
    mounted = ["/run/nvidia/driver"]
    monkeypatch.setattr(Machine, "mounts_below", lambda machine, path: tuple(mounted))
    monkeypatch.setattr(Machine, "unmount", lambda machine, path: mounted.clear())
    server.again = lambda: None if mounted else mounted.append("/run/nvidia/driver")
    assert place.run(BY_OPERATOR) == "/run/nvidia/driver was mounted again after it was detached"


class Busy(Server):
    """Be a cluster in which somebody else always writes the node first."""

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        if "resourceVersion" in body["metadata"]:
            raise Conflict("the object has been modified")
        return super().patch(path, body, kind)


def test_a_host_with_a_driver_of_its_own_is_left_to_it_though_its_node_changes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "host_driver", lambda host: "550.1")
    place = Place(tmp_path)
    place.server = Busy([])
    assert place.run(BY_OPERATOR).startswith("the host has driver 550.1 of its own")
    assert place.server.node["metadata"]["labels"][f"{names.DEPLOY_PREFIX}driver"] == "pre-installed"
