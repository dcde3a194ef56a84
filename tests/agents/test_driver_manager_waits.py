"""What the driver manager tells while it waits, and when it fails."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuward import errors, names
from gpuward.agents.drivermanager.events import NodeEvents
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager, DriverManagerError
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from tests.agents.test_api import refused, scripted
from tests.agents.test_driver_manager_evict import TRAIN, Server

HOUR = 3600.0


class Cluster(Server):
    """Be a cluster that keeps events, and evicts, or refuses to in words that change."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__([])
        self.refuses, self.events, self.refusals = refuses, list[dict[str, Any]](), 0

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/events"):
            self.events.append(body)
        elif self.refuses:
            self.refusals += 1
            raise errors.Forbidden(f"{self.refuses}{self.refusals}")
        elif path.endswith("/eviction"):
            self.evicted(path.split("/")[-2])
        return body

    def evicted(self, name: str) -> None:
        """Let a pod go."""
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]


class Place:
    """Hold a machine with a driver, on which time passes while the driver manager waits."""

    def __init__(self, folder: Path, server: Cluster) -> None:
        self.folder, self.server, self.now, self.said = folder, server, 0.0, io.StringIO()
        for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
            (folder / name).mkdir(parents=True)
        (folder / "sys/module/nvidia/refcnt").write_text("0\n")
        (folder / "last").touch()
        tool = folder / "rmmod"
        tool.write_text(f"#!/bin/sh\nrm -r {folder}/sys/module/$2\n")
        tool.chmod(0o755)
        self.machine = Machine(folder / "root", folder / "sys", folder / "proc", module_tool=str(tool))
        self.look, self.worked, self.pauses = 0.0, 0.0, list[float]()

    def uses_gpu(self, pid: int, command: str, uid: str = "") -> None:
        """Let a process have a GPU open."""
        user = self.folder / f"proc/{pid}"
        (user / "fd").mkdir(parents=True)
        (user / "comm").write_text(f"{command}\n")
        (user / "fd/3").symlink_to("/dev/nvidia0")
        if uid:
            (user / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/x\n")

    def run(self, settings: Settings) -> str:
        """Run the driver manager to its end; return why it gave up, or nothing."""
        try:
            DriverManager(settings, self.machine, self.server, Teller(self.said, self.folder / "last"),
                          monotonic=lambda: self.now, sleep=self.wait, worked=self.work).uninstall()
        except DriverManagerError as error:
            return str(error)
        return ""

    def work(self) -> float:
        """Return for how long it has had a processor: `look` more with each call."""
        self.worked += self.look
        return self.worked

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.pauses.append(seconds)


def test_a_refusal_that_changes_with_each_attempt_does_not_flood_the_nodes_events(tmp_path: Path) -> None:
    place = Place(tmp_path, Cluster("admission webhook denied the request: try again at "))
    why = place.run(Settings("gpu-1", auto_drain=False))
    assert why == (f"default/train (admission webhook denied the request: try again at {place.server.refusals}) "
                   "use GPUs and did not go in time")
    assert place.now == HOUR
    reasons = [event["reason"] for event in place.server.events]
    assert 5 <= reasons.count("DriverManagerWaiting") <= 12
    assert place.server.events[-1]["message"] == why


def test_a_process_that_comes_anew_with_each_look_does_not_flood_the_nodes_events(tmp_path: Path) -> None:
    place = Place(tmp_path, Cluster())
    place.server.pods = []
    place.server.node["metadata"].setdefault("annotations", {})[names.UPGRADE_ENABLED] = "true"

    class Monitor(Place):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            (self.folder / f"proc/{1000 + int(self.now - seconds)}").rename(self.folder / f"proc/{1000 + int(self.now)}")

    place.__class__ = Monitor
    place.uses_gpu(1000, "nvidia-smi")
    assert "process 1300 (nvidia-smi) of the host" in place.run(Settings("gpu-1"))
    assert len(place.server.events) <= 6


def test_whatever_webhooks_say_the_last_words_tell_what_became_of_the_node(tmp_path: Path) -> None:
    place = Place(tmp_path, Cluster("denied: " + "é" * 20000))
    place.server.pods = [{**TRAIN, "metadata": {**TRAIN["metadata"], "name": f"train-{number}", "uid": f"{number}"}}
                         for number in range(7)]
    why = place.run(Settings("gpu-1", auto_drain=False, timeout=60.0))
    for number in range(5):
        assert f"default/train-{number} (denied: é" in why
    assert why.endswith("and 2 more use GPUs and did not go in time")
    last = (tmp_path / "last").read_bytes()
    assert last.decode().endswith("use GPUs and did not go in time: giving the node back")
    assert len(last) <= 4096
    for event in place.server.events:
        assert len(event["message"].encode()) <= 1024
        assert event["message"].endswith(("to go", "did not go in time"))


@pytest.mark.parametrize("ends", [100.0, HOUR], ids=["it ends late", "it does not end"])
def test_whoever_goes_with_a_label_is_waited_for_while_it_has_a_gpu_open(tmp_path: Path, ends: float) -> None:
    """Nobody waits for it else: the modules are tried for 30 s only."""
    label, uid = names.DEPLOY_PREFIX + "nvsm", "11111111-2222-3333-4444-555555555555"
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-nvsm", "uid": "u0", "controller": True}]

    class Late(Place):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            if self.now > ends and self.server.pods:
                assert self.server.node["metadata"]["labels"][label] == "paused-for-driver-upgrade"
                self.server.pods = []
                shutil.rmtree(self.folder / "proc/77")

    place = Late(tmp_path, Cluster())
    (tmp_path / "rmmod").write_text(f"#!/bin/sh\n[ -e {tmp_path}/proc/77 ] && exit 11\nrm -r {tmp_path}/sys/module/$2\n")
    place.server.node["metadata"]["labels"][label] = "true"
    place.server.pods = [{
        **TRAIN, "metadata": {"namespace": "gpu-operator", "name": "nvsm", "uid": uid, "ownerReferences": owner},
        "spec": {"nodeName": "gpu-1", "nodeSelector": {label: "true"}, "containers": [{"name": "main"}]}}]
    place.uses_gpu(77, "nvsm", uid)
    why = place.run(Settings("gpu-1", digest="new"))
    assert why == ("" if ends < HOUR else "the operands gpu-operator/nvsm did not end in time"), place.said.getvalue()
    assert bool(place.machine.modules()) is (ends == HOUR)
    assert place.server.node["metadata"]["labels"][label] == "true"


def test_an_event_that_cannot_be_written_does_not_hold_the_node_up(tmp_path: Path) -> None:
    """A webhook for events that fails answers with 500, as a server does that may be well in a moment."""
    with scripted(tmp_path, *[refused(500, "InternalError")] * 99) as (api, server):
        api.patience, begun, said = 60.0, api.monotonic(), io.StringIO()
        NodeEvents("gpu-1", api, Teller(said)).failed("why")
        assert api.monotonic() - begun <= 5.0
    assert len(server.asked) > 1
    assert "no event could be written: no: InternalError" in said.getvalue()


@pytest.mark.parametrize(("look", "pause"), [(0.05, 2.0), (0.35, 7.0), (3.0, 10.0)])
def test_a_node_with_many_processes_is_looked_at_less_often(tmp_path: Path, look: float, pause: float) -> None:
    """Each look goes through all of them; with 5000 it takes a third of a second, and a wait may last an hour."""
    place = Place(tmp_path, Cluster("denied"))
    place.look = look
    place.run(Settings("gpu-1", auto_drain=False, timeout=60.0))
    assert place.pauses[0] == pytest.approx(pause)


@pytest.mark.parametrize("leaves", [80.0, HOUR], ids=["it leaves", "it stays"])
def test_modules_have_their_whole_time_once_nobody_has_a_gpu_open(tmp_path: Path, leaves: float) -> None:
    """While somebody has, they are not tried: they counted as in use, by whom nobody could say."""
    class Visited(Place):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            if 6 <= self.now < leaves and not self.came:
                self.came = True
                self.uses_gpu(77, "cuda-gdb")
                (tmp_path / "busy").unlink()
            elif self.now >= leaves:
                shutil.rmtree(self.folder / "proc/77", ignore_errors=True)

        came = False

    place = Visited(tmp_path, Cluster())
    place.server.pods = []
    (tmp_path / "busy").touch()
    (tmp_path / "rmmod").write_text(f"#!/bin/sh\ntest -e {tmp_path}/busy && exit 11\nrm -r {tmp_path}/sys/module/$2\n")
    why = place.run(Settings("gpu-1", auto_drain=False))
    loaded = (tmp_path / "sys/module/nvidia").exists()
    if leaves == HOUR:
        assert loaded
        assert why.startswith("the GPUs are in use by process 77 (cuda-gdb) of the host")
        assert place.now < 320
    else:
        assert not loaded, place.said.getvalue()
        assert why == ""
