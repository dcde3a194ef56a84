"""The validator as a process, on folders that stand for a machine and a cluster: what it leaves for those who wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gpuward.agents.validator import command
from kubesandbox import builders
from tests.contract.servers import SandboxThread

NODE, NAMESPACE = "node-1", "gpu-operator"
PATIENCE = 60.0
OUTPUT = "run/nvidia/validations"
VALIDATOR = """
import sys
from gpuward.agents.validator.command import nvidia_validator
sys.exit(nvidia_validator(sys.argv[1:]))
"""


class Machine:
    """Hold the folders of a machine, and a cluster where one is asked for."""

    def __init__(self, folder: Path, kubeconfig: str = "") -> None:
        self.folder, self.kubeconfig = folder, kubeconfig
        for name in ("root/host-dev-char", "sys/module", "proc"):
            (folder / name).mkdir(parents=True)

    def program(self, path: str, code: int = 0, words: str = "") -> None:
        """Put a program there that says something and ends with a code."""
        place = self.folder / "root" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\necho '{words}'\nexit {code}\n")
        place.chmod(0o755)

    def file(self, path: str, text: str = "x") -> None:
        """Put a file there."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def left(self) -> dict[str, str]:
        """Return the status files."""
        folder = self.folder / "root" / OUTPUT
        return {each.name: each.read_text() for each in folder.iterdir()} if folder.exists() else {}

    def last_words(self) -> str:
        """Return the termination message."""
        return (self.folder / "last").read_text()

    def begin(self, *arguments: str, code: str = VALIDATOR, **environment: str) -> subprocess.Popen[str]:
        """Start the validator."""
        self.file("last", "")
        self.file("kubeconfig", self.kubeconfig)
        variables = {
            "PATH": os.environ["PATH"], "KUBECONFIG": str(self.folder / "kubeconfig"), "NODE_NAME": NODE,
            "OPERATOR_NAMESPACE": NAMESPACE, "AGENT_ROOT": str(self.folder / "root"), "AGENT_SYS": str(self.folder / "sys"),
            "AGENT_PROC": str(self.folder / "proc"), "AGENT_TERMINATION_LOG": str(self.folder / "last"), **environment}
        return subprocess.Popen([sys.executable, "-c", code, *arguments], env=variables, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run it to its end; return its exit code and its last words, or what it said."""
        process = self.begin(*arguments, **environment)
        said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, self.last_words() or said


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine with nothing on it."""
    return Machine(tmp_path)


def until(holds: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)


def test_the_toolkit_is_seen_by_what_it_puts_into_containers(machine: Machine) -> None:
    machine.file(f"root/{OUTPUT}/toolkit-ready", "")
    machine.program("usr/bin/nvidia-smi", 9, "no devices")
    code, words = machine.run(COMPONENT="toolkit")
    assert (code, machine.left()) == (1, {}), "what an earlier validation left is gone"
    assert words == "nvidia-smi ended with 9 (no devices), for 15 s"
    machine.program("usr/bin/nvidia-smi")
    code, words = machine.run(COMPONENT="toolkit")
    assert (code, machine.left()) == (0, {"toolkit-ready": ""}), words


def test_who_waits_sees_it_as_soon_as_it_is_there(machine: Machine) -> None:
    process = machine.begin(COMPONENT="gdrcopy", WITH_WAIT="true")
    assert process.stdout is not None
    assert "waiting: the kernel module gdrdrv is not loaded" in process.stdout.readline()
    machine.file("sys/module/gdrdrv/refcnt", "0")
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    assert machine.left() == {"gdrcopy-ready": ""}


def test_operands_wait_for_a_file_and_end_at_once_when_told_to(machine: Machine) -> None:
    waiting = machine.begin("await", "toolkit-ready")
    assert waiting.stdout is not None
    assert "toolkit-ready is not there" in waiting.stdout.readline()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(PATIENCE) == 128 + signal.SIGTERM
    waiting.stdout.close()
    machine.file(f"root/{OUTPUT}/toolkit-ready", "")
    assert machine.run("await", "toolkit-ready")[0] == 0


def test_operands_wait_for_either_of_two_files(machine: Machine) -> None:
    machine.file(f"root/{OUTPUT}/host-vgpu-manager-ready", "")
    assert machine.run("await", "vgpu-manager-ready", "host-vgpu-manager-ready")[0] == 0


def test_operands_of_virtual_machines_wait_where_the_node_is_for_these(machine: Machine) -> None:
    waiting = machine.begin("await-for", "vm-passthrough", "vfio-pci-ready")
    assert waiting.stdout is not None
    assert "workload-type is not there" in waiting.stdout.readline()
    machine.file(f"root/{OUTPUT}/workload-type", "vm-passthrough\n")
    assert "vfio-pci-ready is not there" in waiting.stdout.readline()
    machine.file(f"root/{OUTPUT}/vfio-pci-ready", "")
    assert waiting.wait(PATIENCE) == 0
    waiting.stdout.close()
    assert machine.run("await-for", "vm-vgpu", "vgpu-devices-ready")[0] == 0, "the node is for something else"


@pytest.mark.parametrize("words", [("await",), ("await-for", "vm-vgpu"), ("idle", "now"), ("sleep",)])
def test_commands_with_other_words_are_refused(machine: Machine, words: tuple[str, ...]) -> None:
    code, said = machine.run(*words)
    assert code == 1
    assert said == (f"command: {' '.join(words)!r} cannot be used: there are idle, await, await-for, vector-add, see --help")


@pytest.mark.parametrize("flag", ["--version", "-version", "-v"])
def test_it_says_its_version(machine: Machine, flag: str) -> None:
    assert machine.run(flag) == (0, f"nvidia-validator version {version('gpuward')}\n")


def test_the_pod_that_stays_takes_its_word_back_when_it_goes(machine: Machine) -> None:
    for name in ("driver-ready", "toolkit-ready", "workload-type", ".driver-ctr-ready"):
        machine.file(f"root/{OUTPUT}/{name}", "")
    process = machine.begin("idle")
    assert process.stdout is not None
    assert "all validations are successful" in process.stdout.readline()
    memory = int(Path(f"/proc/{process.pid}/status").read_text().split("VmRSS:")[1].split()[0])
    assert memory < 30_000, f"{memory} kB"
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    assert time.monotonic() - begun < 5.0, "a second on a machine that does nothing else"
    assert sorted(machine.left()) == [".driver-ctr-ready", "workload-type"]


@pytest.mark.parametrize(("component", "others"), [("", "vfio-pci-ready"), ("vgpu-devices", "driver-ready")])
def test_the_pod_that_stays_is_not_ready_without_what_was_validated(machine: Machine, component: str, others: str) -> None:
    """A kubelet that starts this container alone again, as one of another version does, makes no validation before it."""
    machine.file(f"root/{OUTPUT}/{others}", "")
    code, said = machine.run("idle", *([f"--component={component}"] if component else []))
    assert (code, sorted(machine.left())) == (1, [others])
    assert said.startswith("/run/nvidia/validations has no status file: this container was started again without")


OF_CONTAINERS = ("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", "gdrcopy-ready", "mofed-ready", "another-ready")
OF_MACHINES = ("vfio-pci-ready", "vgpu-manager-ready", "host-vgpu-manager-ready", "vgpu-devices-ready", "cc-manager-ready",
               "workload-type")
OF_OTHERS = (".cc-manager-ctr-ready", ".driver-ctr-ready", "notes.txt")


@pytest.mark.parametrize(("arguments", "stay"), [
    (["idle"], OF_MACHINES), (["idle", "--component=toolkit"], OF_MACHINES),
    (["idle", "--component=vgpu-devices"], OF_CONTAINERS), (["--component=toolkit", "--with-wait"], OF_MACHINES)], ids=str)
def test_what_the_other_validator_has_said_stays(machine: Machine, arguments: list[str], stay: tuple[str, ...]) -> None:
    """A node that changes its kind has both pods for a while: the one that goes is not the one that comes."""
    for name in (*OF_CONTAINERS, *OF_MACHINES, *OF_OTHERS):
        machine.file(f"root/{OUTPUT}/{name}", "")
    machine.program("usr/bin/nvidia-smi", 9)
    process = machine.begin(*arguments)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)
    process.stdout.close()
    assert sorted(machine.left()) == sorted({*stay, *OF_OTHERS})


@pytest.mark.parametrize(("arguments", "code", "first"), [
    (["idle"], 1, ""), (["--component=toolkit", "--with-wait"], 128 + signal.SIGTERM, "told to end by SIGTERM; ")], ids=str)
def test_a_file_that_cannot_be_removed_keeps_no_other_and_is_named(
        machine: Machine, arguments: list[str], code: int, first: str) -> None:
    machine.file(f"root/{OUTPUT}/driver-ready", "")
    machine.file(f"root/{OUTPUT}/cuda-ready/a", "")
    machine.file(f"root/{OUTPUT}/another-ready/a", "")
    machine.program("usr/bin/nvidia-smi", 9)
    process = machine.begin(*arguments)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == code
    process.stdout.close()
    assert sorted(each.name for each in (machine.folder / "root" / OUTPUT).iterdir()) == ["another-ready", "cuda-ready"]
    assert machine.last_words() == first + "; ".join(
        f"cannot remove /{OUTPUT}/{name}: Directory not empty" for name in ("another-ready", "cuda-ready"))


@pytest.mark.parametrize(("component", "stay"), [("toolkit", []), ("driver", ["toolkit-ready"])])
def test_a_pod_that_goes_before_all_is_validated_takes_back_what_it_has_said(
        machine: Machine, component: str, stay: list[str]) -> None:
    """The driver is validated by pods of other operands, too, which have nothing to take back for the validator's."""
    for name in ("toolkit-ready", "driver-ready", "workload-type"):
        machine.file(f"root/{OUTPUT}/{name}", "")
    machine.program("usr/bin/nvidia-smi", 9)
    machine.file("root/run/nvidia/driver/none")
    machine.program("host/usr/bin/nvidia-smi")
    os.mkfifo(machine.folder / "fifo")
    process = machine.begin(COMPONENT=component, WITH_WAIT="true", KUBECONFIG=str(machine.folder / "fifo"))
    if component == "toolkit":
        assert process.stdout is not None
        assert "waiting: nvidia-smi ended with 9" in process.stdout.readline()
    else:
        until(lambda: "driver-ready" not in machine.left())
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert [name for name in machine.left() if name.startswith("toolkit")] == stay


def test_a_defect_is_left_in_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise KeyError("metadata")

    last = tmp_path / "last"
    last.touch()
    monkeypatch.setattr(command, "_run", fails)
    monkeypatch.setattr(command, "hold_signals", lambda: None)
    code = command.nvidia_validator(["-c", "toolkit"], {"AGENT_TERMINATION_LOG": str(last)})
    assert (code, last.read_text()) == (1, "defect of gpuward's: KeyError: 'metadata'")


def test_without_libcuda_the_last_words_say_whom_to_ask(machine: Machine) -> None:
    code, words = machine.run("vector-add")
    if code == 0:
        assert "added two vectors" in words
    else:
        assert code == 1
        assert "libcuda.so.1 cannot be loaded" in words or "cuInit failed" in words


class Cluster:
    """Hold a cluster with a node, and the objects that the validator reads there."""

    def __init__(self) -> None:
        self.server = SandboxThread()
        self.kubeconfig = self.server.start()
        self.server.do(self._furnish)

    def _furnish(self) -> None:
        sandbox = self.server.sandbox
        sandbox.apply(builders.namespace(NAMESPACE))
        sandbox.add_node(builders.linux_node(NODE))
        sandbox.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
            "name": "nvidia-operator-validator", "namespace": NAMESPACE}})
        sandbox.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "a"})
        for name in ("nvidia-operator-validator", "nvidia-driver-daemonset"):
            template = builders.template(name, "nvcr.io/nvidia/driver:595", {})
            template["spec"] |= {
                "nodeSelector": {"none": "true"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
            owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "a", "uid": "u", "controller": True}
            sandbox.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/component": "nvidia-driver"},
                "ownerReferences": [owner]}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}})

    def own_drivers(self, *, controller: bool) -> None:
        """Make the owner of all DaemonSets their controller, or one that is none."""
        def own() -> None:
            store = self.server.sandbox.store
            for each in store.list("daemonsets.apps", NAMESPACE):
                store.modify("daemonsets.apps", NAMESPACE, each["metadata"]["name"],
                             lambda obj: obj["metadata"]["ownerReferences"][0].update(controller=controller))

        self.server.do(own)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods."""
        return list(self.server.do(lambda: self.server.sandbox.store.list("pods", None)))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield a cluster."""
    made = Cluster()
    yield made
    made.server.stop()


@pytest.mark.parametrize("controller", [True, False], ids=["its NVIDIADriver is there", "and is gone"])
def test_a_driver_of_the_operator_is_well_when_its_container_says_so(
        cluster: Cluster, tmp_path: Path, controller: bool) -> None:
    cluster.own_drivers(controller=controller)
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.program("run/nvidia/driver/usr/bin/nvidia-smi")
    machine.file("root/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1")
    machine.file("proc/devices", "Character devices:\n195 nvidia-frontend\n\nBlock devices:\n  8 sd\n")
    machine.file("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    machine.file("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
    (tmp_path / "root/host/dev").mkdir(parents=True)
    process = machine.begin(COMPONENT="driver", WITH_WAIT="true")
    assert process.stdout is not None
    assert "waiting: the driver container is not ready" in process.stdout.readline()
    machine.file(f"root/{OUTPUT}/.driver-ctr-ready", "GDRCOPY_ENABLED: false\n")
    code = process.wait(PATIENCE)
    assert code == 0, process.stdout.read()
    process.stdout.close()
    assert machine.left()["driver-ready"].startswith("IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n")
    assert os.readlink(tmp_path / "root/host-dev-char/195:0") == "/dev/nvidia0"
    assert os.readlink(tmp_path / "root/host-dev-char/195:255") == "/dev/nvidiactl"


def test_a_driver_of_the_host_is_found_first(cluster: Cluster, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/bin/busybox").exists():
        pytest.skip("only root may change roots, and busybox runs without libraries")
    machine = Machine(tmp_path, cluster.kubeconfig)
    (tmp_path / "root/host/usr/bin").mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", tmp_path / "root/host/usr/bin/true"], check=True)
    os.rename(tmp_path / "root/host/usr/bin/true", tmp_path / "root/host/usr/bin/busybox")
    machine.file("root/host/usr/bin/nvidia-smi", "#!/usr/bin/busybox true\n")
    (tmp_path / "root/host/usr/bin/nvidia-smi").chmod(0o755)
    code, words = machine.run(COMPONENT="driver", DISABLE_DEV_CHAR_SYMLINK_CREATION="true")
    assert code == 0, words
    assert machine.left()["driver-ready"].startswith("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n")


def test_a_pod_proves_that_a_gpu_can_be_used(cluster: Cluster, tmp_path: Path) -> None:
    machine = Machine(tmp_path, cluster.kubeconfig)
    process = machine.begin(COMPONENT="cuda", VALIDATOR_IMAGE="example.com/gpuward:1", VALIDATOR_RUNTIME_CLASS="nvidia",
                            VALIDATOR_IMAGE_PULL_SECRETS="a,b")
    until(lambda: cluster.pods() or process.poll() is not None)
    (pod,) = cluster.pods()
    assert pod["metadata"]["name"].startswith("nvidia-cuda-validator-")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "ClusterPolicy"
    spec = pod["spec"]
    assert (spec["nodeName"], spec["runtimeClassName"]) == (NODE, "nvidia")
    assert [each["name"] for each in spec["imagePullSecrets"]] == ["a", "b"]
    assert spec["initContainers"][0]["args"] == ["vector-add"]
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"

    def ended() -> bool:
        """Let the pod end; its kubelet knows no such program, and would let it run on."""
        cluster.server.do(lambda: cluster.server.sandbox.store.patch_status(
            "pods", NAMESPACE, pod["metadata"]["name"], lambda obj: obj["status"].update(phase="Succeeded")))
        return process.poll() is not None

    until(ended)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert machine.left() == {"cuda-ready": ""}


def test_without_a_device_plugin_the_resource_is_named(cluster: Cluster, tmp_path: Path) -> None:
    machine = Machine(tmp_path, cluster.kubeconfig)
    process = machine.begin(COMPONENT="plugin", WITH_WORKLOAD="false")
    assert process.stdout is not None
    assert f"waiting: node {NODE} has no resource nvidia.com/gpu" in process.stdout.readline()
    def offer(node: dict[str, Any], allocatable: str) -> None:
        node["status"]["capacity"] |= {"nvidia.com/gpu": "8"}
        node["status"]["allocatable"] |= {"nvidia.com/gpu": allocatable}

    def patch(allocatable: str) -> None:
        cluster.server.do(lambda: cluster.server.sandbox.store.patch_status(
            "nodes", None, NODE, lambda node: offer(node, allocatable)))

    patch("0")  # as a kubelet says for minutes of a plugin that has gone
    assert f"waiting: no nvidia.com/gpu of node {NODE} is allocatable" in process.stdout.readline()
    patch("8")
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    assert machine.left() == {"plugin-ready": ""}


def test_metrics_say_what_is_there(cluster: Cluster, tmp_path: Path) -> None:
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.file(f"root/{OUTPUT}/driver-ready")
    process = machine.begin(COMPONENT="metrics", METRICS_PORT="18471")
    assert process.stdout is not None
    process.stdout.readline()
    text = ""

    def served() -> bool:
        nonlocal text
        try:
            text = urllib.request.urlopen("http://127.0.0.1:18471/metrics", timeout=5).read().decode()
        except OSError:
            return False
        return all(f"gpu_operator_{each}_devices_total{{" in text for each in ("nvidia_pci", "node_device_plugin"))

    until(served)
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    process.stdout.close()
    for line in (f'gpu_operator_node_driver_ready{{node="{NODE}"}} 1.0', f'gpu_operator_node_toolkit_ready{{node="{NODE}"}} 0.0',
                 f'gpu_operator_node_device_plugin_devices_total{{node="{NODE}"}} 0.0'):
        assert line in text


def test_a_driver_whose_files_are_right_at_its_root_is_found_there(cluster: Cluster, tmp_path: Path) -> None:
    """NVIDIA's validator looks there first."""
    machine = Machine(tmp_path, cluster.kubeconfig)
    machine.program("run/nvidia/driver/nvidia-smi")
    machine.file("root/run/nvidia/driver/libnvidia-ml.so.1")
    machine.file(f"root/{OUTPUT}/.driver-ctr-ready", "")
    code, words = machine.run(COMPONENT="driver", DISABLE_DEV_CHAR_SYMLINK_CREATION="true")
    assert (code, sorted(machine.left())) == (0, [".driver-ctr-ready", "driver-ready"]), words
