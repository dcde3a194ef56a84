"""The driver manager as a process, on folders that stand for a machine and a cluster with controllers: what it leaves behind,
however it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuward import names
from kubesandbox import builders
from kubesandbox.messages import Request
from kubesandbox.store import Event
from kubesandbox.writing import APPLY_PATCH
from tests.contract.servers import SandboxThread

NODE, NAMESPACE = "node-1", "gpu-operator"
PLUGIN = names.DEPLOY_PREFIX + "device-plugin"
CLIENT = names.DEPLOY_PREFIX + "client"
PAUSED = "paused-for-driver-upgrade"
PATIENCE = 60.0
START = "import sys; from gpuward.agents.drivermanager.command import driver_manager\nsys.exit(driver_manager(sys.argv[1:]))"
RMMOD = f"""#!{sys.executable}
import pathlib, shutil, sys
modules, name = pathlib.Path("@"), sys.argv[2]
with (modules / "calls").open("a") as calls:
    calls.write(name + "\\n")
if (modules / "busy").exists():
    sys.exit(11)
shutil.rmtree(modules / "module" / name)
"""


class Node:
    """Hold a node of the cluster and the folders of its machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = SandboxThread()
        self.kubeconfig = self.server.start()
        for name in ("root/run/nvidia", "sys/module", "proc"):
            (folder / name).mkdir(parents=True)
        tool = folder / "rmmod"
        tool.write_text(RMMOD.replace("@", str(folder / "sys")))
        tool.chmod(0o755)
        self.server.do(self._furnish)
        self.until(lambda: self.pods("plugin"))

    def _furnish(self) -> None:
        sandbox = self.server.sandbox
        node = builders.linux_node(NODE)
        node["metadata"]["labels"] |= {PLUGIN: "true", names.DEPLOY_PREFIX + "dcgm": "false"}
        for part in ("capacity", "allocatable"):
            node["status"][part]["nvidia.com/gpu"] = "8"
        sandbox.apply(builders.namespace(NAMESPACE))
        sandbox.add_node(node)
        app = "nvidia-device-plugin-daemonset"
        template = builders.template(app, "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", {})
        template["spec"]["nodeSelector"] = {PLUGIN: "true"}
        template["spec"]["containers"][0]["name"] = "plugin"
        self._daemonset(NAMESPACE, app, template)

    def _daemonset(self, namespace: str, app: str, template: dict[str, Any]) -> None:
        self.server.sandbox.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": app, "namespace": namespace}, "spec": {
                "selector": {"matchLabels": {"app": app}}, "template": template}})

    def client(self, label: str = CLIENT, *, gpus: int = 0) -> str:
        """Let a DaemonSet of people's own, which goes with the label for it, use a GPU; return its pod's name."""
        def furnish() -> None:
            sandbox = self.server.sandbox
            sandbox.store.modify("nodes", None, NODE, lambda node: node["metadata"]["labels"].update({label: "true"}))
            template = builders.template("monitor", "registry.example/monitor:1", {})
            template["spec"]["nodeSelector"] = {label: "true"}
            template["spec"]["containers"][0]["name"] = "monitor"
            if gpus:
                template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
            self._daemonset("default", "monitor", template)

        self.server.do(furnish)
        self.until(lambda: self.pods("monitor"))
        return self.pods("monitor")[0]

    def uses_gpu(self, pid: int, pod: str = "") -> Path:
        """Let a process have a device open, one of a pod where it is named; return its folder."""
        user = self.folder / f"proc/{pid}"
        (user / "fd").mkdir(parents=True)
        (user / "comm").write_text("python\n")
        (user / "fd/3").symlink_to("/dev/nvidia0")
        if pod:
            found = self.server.do(lambda: self.server.sandbox.store.list("pods", None))
            uid = next(each["metadata"]["uid"] for each in found if each["metadata"]["name"] == pod)
            (user / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{uid}.slice/cri-1.scope\n")
        return user

    def ends_with(self, user: Path, pod: str) -> None:
        """Let a process end with its pod, before anybody can see that this is gone."""
        def end(event: Event) -> None:
            if event.type == "DELETED" and event.obj["metadata"]["name"] == pod:
                shutil.rmtree(user)

        self.server.do(lambda: self.server.sandbox.store.subscribe(end, "pods"))

    def load(self, digest: str = "old") -> None:
        """Let a driver be loaded, as its container leaves it."""
        for module in ("nvidia", "nvidia_uvm"):
            (self.folder / "sys/module" / module).mkdir()
            (self.folder / "sys/module" / module / "refcnt").write_text("0\n")
        (self.folder / "root/run/nvidia/nvidia-driver.state").write_text(digest + "\n")
        (self.folder / "root/run/nvidia/nvidia-driver.pid").write_text("1\n")

    def now(self) -> dict[str, Any]:
        """Return the node."""
        return self.server.do(lambda: self.server.sandbox.store.get("nodes", None, NODE))

    def patch(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the node as a person would."""
        self.server.do(lambda: self.server.sandbox.store.modify("nodes", None, NODE, change))

    def pods(self, container: str) -> list[str]:
        """Return the names of the pods on the node that have a container of this name."""
        found = self.server.do(lambda: self.server.sandbox.store.list("pods", None))
        return [pod["metadata"]["name"] for pod in found if pod["spec"]["containers"][0]["name"] == container]

    def modules(self) -> list[str]:
        """Return the modules that are loaded."""
        return sorted(os.listdir(self.folder / "sys/module"))

    def calls(self) -> list[str]:
        """Return the modules that were tried, in order."""
        file = self.folder / "sys/calls"
        return file.read_text().split() if file.exists() else []

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "it did not become so"
            time.sleep(0.02)

    def begin(self, *, code: str = START, **environment: str) -> subprocess.Popen[str]:
        """Start the driver manager."""
        (self.folder / "last").touch()
        variables = {
            "PATH": os.environ["PATH"], "KUBECONFIG": self._kubeconfig(), "NODE_NAME": NODE, "OPERATOR_NAMESPACE": NAMESPACE,
            "AGENT_ROOT": str(self.folder / "root"), "AGENT_SYS": str(self.folder / "sys"),
            "AGENT_PROC": str(self.folder / "proc"), "AGENT_MODULE_TOOL": str(self.folder / "rmmod"),
            "AGENT_TERMINATION_LOG": str(self.folder / "last"), **environment}
        if said_to := variables.pop("SAY_TO", ""):
            code = f"import os; os.dup2(os.open({said_to!r}, os.O_WRONLY), 1)\n{code}"
        return subprocess.Popen([sys.executable, "-c", code, "uninstall_driver"], env=variables, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def _kubeconfig(self) -> str:
        file = self.folder / "kubeconfig"
        file.write_text(self.kubeconfig)
        return str(file)

    def run(self, **environment: str) -> tuple[int, str]:
        """Run it to its end; return its exit code and what it said."""
        process = self.begin(**environment)
        said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, said

    def last_words(self) -> str:
        """Return the termination message."""
        return (self.folder / "last").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Yield a node with a device plugin and no driver."""
    made = Node(tmp_path)
    yield made
    made.server.stop()


def upgraded_by_the_operator(node: dict[str, Any]) -> None:
    node["metadata"].setdefault("annotations", {})[names.UPGRADE_ENABLED] = "true"


def test_where_no_driver_is_loaded_nothing_is_disturbed(node: Node) -> None:
    before, plugin = node.now()["metadata"]["labels"], node.pods("plugin")
    (node.folder / "root/run/nvidia/nvidia-driver.pid").write_text("1\n")
    code, said = node.run()
    assert (code, node.now()["metadata"]["labels"], node.pods("plugin")) == (0, before, plugin), said
    assert not (node.folder / "root/run/nvidia/nvidia-driver.pid").exists()
    assert said.splitlines()[-1].endswith("there is room for a driver")


def test_operands_go_while_the_driver_does_and_come_back(node: Node) -> None:
    node.patch(upgraded_by_the_operator)
    node.load()
    before, (plugin,) = node.now()["metadata"]["labels"], node.pods("plugin")
    code, said = node.run(DRIVER_CONFIG_DIGEST="new")
    assert (code, node.modules(), node.calls()) == (0, [], ["nvidia_uvm", "nvidia"]), said
    assert node.now()["metadata"]["labels"] == before
    assert "unschedulable" not in node.now()["spec"], "the operator cordons, nobody else"
    node.until(lambda: (pods := node.pods("plugin")) and plugin not in pods)


def test_a_driver_that_goes_is_ready_no_more(node: Node) -> None:
    """Its container, which would take the word back, has crashed."""
    node.load()
    said = node.folder / "root/run/nvidia/validations/.driver-ctr-ready"
    said.parent.mkdir()
    said.write_text("GDS_ENABLED: true\n")
    assert node.run(DRIVER_CONFIG_DIGEST="old")[0] == 0
    assert said.exists(), "this one stays"
    assert node.run(DRIVER_CONFIG_DIGEST="new")[0] == 0
    assert not said.exists()


def test_a_driver_of_the_wanted_configuration_stays(node: Node) -> None:
    node.load("same")
    code, said = node.run(DRIVER_CONFIG_DIGEST="same")
    assert (code, node.modules(), node.calls()) == (0, ["nvidia", "nvidia_uvm"], []), said
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    assert node.now()["spec"].get("unschedulable") is None
    assert node.run(DRIVER_CONFIG_DIGEST="same", FORCE_REINSTALL="true")[0] == 0
    assert node.modules() == []


def test_without_an_operator_it_cordons_and_uncordons(node: Node) -> None:
    node.load()
    code, said = node.run()
    assert (code, node.modules()) == (0, []), said
    assert f"cordoning {NODE}" in said
    assert node.now()["spec"].get("unschedulable") is None
    assert names.DRIVER_MANAGER_CORDON not in (node.now()["metadata"].get("annotations") or {})


def test_somebody_elses_cordon_stays(node: Node) -> None:
    node.load()
    node.patch(lambda obj: obj["spec"].update(unschedulable=True))
    code, said = node.run()
    assert (code, node.modules(), node.now()["spec"].get("unschedulable")) == (0, [], True), said


def noted(obj: dict[str, Any]) -> None:
    """Leave the note of a cordon, as a driver manager that is killed does."""
    obj["metadata"].setdefault("annotations", {})[names.DRIVER_MANAGER_CORDON] = "true"


def test_the_note_of_a_cordon_that_somebody_lifted_goes(node: Node) -> None:
    node.patch(noted)
    code, said = node.run()
    assert code == 0, said
    assert names.DRIVER_MANAGER_CORDON not in node.now()["metadata"]["annotations"]
    node.patch(lambda obj: obj["spec"].update(unschedulable=True))
    assert node.run()[0] == 0
    assert node.now()["spec"]["unschedulable"], "the next cordon is somebody else's"


@pytest.mark.parametrize(("manager", "stays"), [("kubectl-cordon", True), (names.FIELD_MANAGER, False)])
def test_a_cordon_that_came_after_its_own_was_lifted_stays(node: Node, manager: str, stays: bool) -> None:
    """Nobody looked at the node in between; managedFields say whose it is."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"unschedulable": True}}
    request = Request("PATCH", f"/api/v1/nodes/{NODE}", {"fieldManager": manager}, json.dumps(body).encode(), APPLY_PATCH)
    node.patch(noted)
    node.server.do(lambda: node.server.sandbox.api.handle(request))
    code, said = node.run()
    assert code == 0, said
    assert bool(node.now()["spec"].get("unschedulable")) is stays, said
    assert names.DRIVER_MANAGER_CORDON not in node.now()["metadata"]["annotations"]


def test_where_the_operator_upgrades_the_node_no_cordon_is_lifted(node: Node) -> None:
    node.load()
    node.patch(noted)
    node.patch(upgraded_by_the_operator)
    node.patch(lambda obj: obj["spec"].update(unschedulable=True))
    code, said = node.run(DRIVER_CONFIG_DIGEST="new")
    assert (code, node.modules(), node.now()["spec"].get("unschedulable")) == (0, [], True), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_gives_the_node_back_within_a_second(node: Node, number: signal.Signals) -> None:
    node.load()
    (node.folder / "sys/busy").touch()
    process = node.begin()
    node.until(lambda: node.calls() and node.now()["metadata"]["labels"][PLUGIN] == PAUSED)
    begun = time.monotonic()
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, said
    assert time.monotonic() - begun < 5.0, "a second on a machine that does nothing else"
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    assert node.now()["spec"].get("unschedulable") is None
    assert node.modules() == ["nvidia", "nvidia_uvm"]
    assert node.last_words() == f"told to end by {number.name}; the node was given back"


@pytest.mark.parametrize("later", ["", "example.com/other"])
def test_a_label_of_ones_own_comes_back_though_the_next_one_is_not_told_of_it(node: Node, later: str) -> None:
    """The driver pod that is killed may be replaced by one with another NODE_LABEL_FOR_GPU_POD_EVICTION."""
    node.client("example.com/gpus")
    node.load()
    (node.folder / "sys/busy").touch()
    process = node.begin(NODE_LABEL_FOR_GPU_POD_EVICTION="example.com/gpus")
    node.until(node.calls)
    process.kill()
    process.communicate()
    assert node.now()["metadata"]["labels"]["example.com/gpus"] == PAUSED
    (node.folder / "sys/busy").unlink()
    code, said = node.run(NODE_LABEL_FOR_GPU_POD_EVICTION=later)
    assert code == 0, said
    assert node.now()["metadata"]["labels"]["example.com/gpus"] == "true"


@pytest.mark.parametrize("full", [False, True])
def test_where_nobody_listens_any_more_the_node_is_given_back(node: Node, full: bool) -> None:
    node.load()
    (node.folder / "sys/busy").touch()
    process = node.begin(**({"SAY_TO": "/dev/full"} if full else {}))
    node.until(lambda: node.calls() and node.now()["metadata"]["labels"][PLUGIN] == PAUSED)
    assert process.stdout is not None
    process.stdout.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    assert node.now()["spec"].get("unschedulable") is None
    assert node.last_words() == "told to end by SIGTERM; the node was given back"


def test_killed_and_started_again_it_ends_what_it_began(node: Node) -> None:
    node.load()
    (node.folder / "sys/busy").touch()
    process = node.begin()
    node.until(node.calls)
    process.kill()
    process.communicate()
    assert node.now()["metadata"]["labels"][PLUGIN] == PAUSED
    assert node.now()["metadata"]["annotations"][names.DRIVER_MANAGER_PAUSE] == "true", "the operator knows whose pause it is"
    assert node.now()["spec"]["unschedulable"] is True
    (node.folder / "sys/busy").unlink()
    code, said = node.run()
    assert (code, node.modules()) == (0, []), said
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    assert node.now()["spec"].get("unschedulable") is None, "it knows its own cordon again"
    assert names.DRIVER_MANAGER_PAUSE not in node.now()["metadata"]["annotations"]


def test_who_uses_the_gpus_is_waited_for_before_operands_are_disturbed(node: Node) -> None:
    node.patch(upgraded_by_the_operator)
    node.load()
    user = node.uses_gpu(4711)
    process = node.begin()
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.endswith("waiting: the GPUs are in use by process 4711 (python) of the host\n"), line
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"
    shutil.rmtree(user)
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, node.modules()) == (0, []), said


def test_what_goes_with_a_label_is_not_waited_for_before_that(node: Node) -> None:
    node.patch(upgraded_by_the_operator)
    node.load()
    client = node.client()
    node.ends_with(node.uses_gpu(4711, client), client)
    process = node.begin()
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, node.modules(), client in node.pods("monitor")) == (0, [], False), said
    assert "in use by" not in said
    assert node.now()["metadata"]["labels"][CLIENT] == "true"


@pytest.mark.parametrize("drains", ["true", "false"])
@pytest.mark.parametrize("label", [CLIENT, "example.com/monitored"])
def test_a_daemonset_that_was_given_a_gpu_goes_with_its_label_where_nobody_else_empties_the_node(
        node: Node, label: str, drains: str) -> None:
    """Such a pod may not be evicted, and need not be."""
    monitor = node.client(label, gpus=1)
    node.load()
    code, said = node.run(
        DRIVER_CONFIG_DIGEST="new", ENABLE_AUTO_DRAIN=drains, NODE_LABEL_FOR_GPU_POD_EVICTION="example.com/monitored")
    assert (code, node.modules()) == (0, []), said
    assert node.now()["metadata"]["labels"][label] == "true"
    node.until(lambda: (pods := node.pods("monitor")) and monitor not in pods)


def test_a_host_whose_own_tool_cannot_be_run_has_no_driver_of_its_own(node: Node) -> None:
    """The host's nvidia-smi is asked first; what an attempt before that left is given back all the same."""
    node.load()
    (node.folder / "root/host/usr/bin").mkdir(parents=True)
    tool = node.folder / "root/host/usr/bin/nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 0\n")  # there is no shell below that root: it cannot be started
    tool.chmod(0o755)
    node.patch(lambda obj: obj["metadata"]["labels"].update({PLUGIN: PAUSED}))
    code, said = node.run()
    assert (code, node.modules()) == (0, []), said
    assert node.now()["metadata"]["labels"][PLUGIN] == "true"


@pytest.mark.parametrize(("environment", "code", "words"), [
    ({"NODE_NAME": "nowhere"}, 1, 'nodes "nowhere" not found'),
    ({"KUBECONFIG": "/nonexistent"}, 1, "/nonexistent"),
    ({"DRAIN_TIMEOUT_SECONDS": "ten"}, 1, "DRAIN_TIMEOUT_SECONDS: 'ten' cannot be used"),
])
def test_what_it_cannot_begin_with_is_one_line(node: Node, environment: dict[str, str], code: int, words: str) -> None:
    node.load()
    ended, said = node.run(**environment)
    assert ended == code, said
    assert words in node.last_words()
    assert "Traceback" not in said
    assert node.modules() == ["nvidia", "nvidia_uvm"]
