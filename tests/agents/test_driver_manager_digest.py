"""The driver manager that ends while a module is unloaded: a driver of which nothing was unloaded stays one that may stay."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from gpuward.agents.drivermanager.digest import SET_ASIDE
from tests.agents.test_driver_manager import Node, node
from tests.agents.test_driver_manager_pods import BY_OPERATOR, Place, by_operator

__all__ = ["node"]

ENDS_ITS_CALLER = f"""#!{sys.executable}
import os, shutil, sys
if "@goes":
    shutil.rmtree("@sys/module/" + sys.argv[2])
os.kill(os.getppid(), @number)
sys.exit(11)
"""


@pytest.mark.parametrize("goes", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_whose_modules_are_all_there_keeps_its_digest(node: Node, number: signal.Signals, goes: bool) -> None:
    """Else it would be installed anew where the change is taken back, with all that has to leave the node for that."""
    node.load()
    tool, digest = node.folder / "rmmod", node.folder / "root/run/nvidia/nvidia-driver.state"
    unloads = tool.read_text()
    ends = ENDS_ITS_CALLER.replace("@goes", "yes" if goes else "").replace("@sys", str(node.folder / "sys"))
    tool.write_text(ends.replace("@number", str(int(number))))
    assert node.run(DRIVER_CONFIG_DIGEST="new")[0] in (-number, 128 + number)
    assert not digest.exists(), "the kernel may go on with it"
    tool.write_text(unloads)
    code, said = node.run(DRIVER_CONFIG_DIGEST="old")
    assert (code, node.modules()) == (0, [] if goes else ["nvidia", "nvidia_uvm"]), said
    assert goes or digest.read_text() == "old\n"
    assert not (node.folder / f"root{SET_ASIDE}").exists()


def test_a_driver_of_which_the_kernel_still_unloads_a_module_has_no_digest(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    by_operator(place)
    place.server.pods = []
    (tmp_path / f"root{SET_ASIDE}").write_text("nvidia_uvm nvidia\nnew\n")
    (tmp_path / "sys/module/nvidia_uvm/initstate").write_text("going\n")
    assert place.run(BY_OPERATOR) == ""
    assert not place.machine.modules()


def test_the_digest_of_another_driver_that_came_since_stays(tmp_path: Path) -> None:
    place = Place(tmp_path, "nvidia")
    by_operator(place)
    place.server.pods = []
    (tmp_path / f"root{SET_ASIDE}").write_text("nvidia\nold\n")
    digest = tmp_path / "root/run/nvidia/nvidia-driver.state"
    digest.write_text("new\n")
    assert place.run(BY_OPERATOR) == ""
    assert (set(place.machine.modules()), digest.read_text()) == ({"nvidia"}, "new\n")


def test_a_digest_that_another_driver_manager_puts_back_meanwhile_goes_with_the_module(tmp_path: Path) -> None:
    """The pod of before may have been deleted by force, and still be on the node."""
    place = Place(tmp_path, "nvidia_uvm", "nvidia")
    by_operator(place)
    place.server.pods = []
    digest = tmp_path / "root/run/nvidia/nvidia-driver.state"
    (tmp_path / "rmmod").write_text(
        f"#!/bin/sh\n[ $2 = nvidia ] && exit 11\necho old > {digest}\nrm -r {tmp_path}/sys/module/$2\n")
    assert place.run(BY_OPERATOR).startswith("the module nvidia is in use")
    assert not digest.exists()
