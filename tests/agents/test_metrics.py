"""The node status exporter where a look does not end, where it has to listen, and what it counts."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuward.agents.host import HostError, Ran
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.agents.validator import metrics
from gpuward.agents.validator.facts import ValidatorSettings
from tests.agents.test_driver_manager_evict import Server

PATIENCE = 30.0
FAST = {"FILES_EVERY": 0.1, "DRIVER_EVERY": 0.1, "PLUGIN_EVERY": 0.1, "PCI_EVERY": 0.1, "CHECK_EVERY": 0.1, "OVERDUE": 0.5}


class Wedged(Machine):
    """Be a machine whose nvidia-smi answers until the GPU is wedged, and then never."""

    stuck = threading.Event()
    free = threading.Event()

    def run(self, command: Sequence[str], *, root: str = "", env: Mapping[str, str] | None = None, timeout: float = 30.0) -> Ran:
        if self.stuck.is_set():
            self.free.wait()
        return Ran(0, "")


class Node(Server):
    """Answer with a node; or say nothing for as long as it is told."""

    def __init__(self) -> None:
        super().__init__([])
        self.hold = threading.Event()
        self.hold.set()

    def get(self, path: str) -> dict[str, Any]:
        self.hold.wait()
        return self.node


def machine(folder: Path) -> Wedged:
    """Return a machine with a driver of the host's."""
    smi = folder / "root/host/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text("x")
    smi.chmod(0o755)
    (folder / "root/run/nvidia/validations").mkdir(parents=True)
    Wedged.stuck.clear()
    Wedged.free.clear()
    return Wedged(folder / "root", folder / "sys", folder / "proc")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no look wait for long."""
    for name, value in FAST.items():
        monkeypatch.setattr(metrics, name, value)


def exporter(host: Machine, node: Node, port: int, said: io.StringIO) -> metrics.NodeMetrics:
    """Return an exporter."""
    return metrics.NodeMetrics(ValidatorSettings("metrics", node="gpu-1", port=port), host, node, Teller(said))


@contextlib.contextmanager
def serving(host: Machine, node: Node, port: int) -> Iterator[io.StringIO]:
    """Serve meanwhile; yield what the exporter says."""
    said = io.StringIO()
    made = exporter(host, node, port, said)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield said
    finally:
        made.ended.set()
        thread.join()


def seen(port: int, name: str, address: str = "127.0.0.1") -> str:
    """Return the value of a gauge; empty where it is not told."""
    try:
        text = urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=5).read().decode()
    except OSError:
        return ""
    return next((line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name}{{")), "")


def until(holds: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.05)


@pytest.mark.usefixtures("fast")
def test_a_look_that_does_not_end_counts_as_failed_and_holds_up_no_other(tmp_path: Path) -> None:
    host, node, port = machine(tmp_path), Node(), 18473
    with serving(host, node, port) as said:
        until(lambda: seen(port, "gpu_operator_node_driver_validation") == "1.0")
        host.stuck.set()
        node.hold.clear()
        until(lambda: seen(port, "gpu_operator_node_driver_validation") == "0.0")
        until(lambda: seen(port, "gpu_operator_node_device_plugin_devices_total") == "-1.0")
        assert "driver: no answer for 0.5 s" in said.getvalue()
        (tmp_path / "root/run/nvidia/validations/driver-ready").touch()
        until(lambda: seen(port, "gpu_operator_node_driver_ready") == "1.0")
        host.stuck.clear()
        host.free.set()
        node.hold.set()
        until(lambda: seen(port, "gpu_operator_node_driver_validation") == "1.0")
        until(lambda: seen(port, "gpu_operator_node_device_plugin_devices_total") == "0.0")


class Odd(Wedged):
    """Be a machine on which a defect shows."""

    def entries(self, path: str) -> Sequence[str]:
        raise ZeroDivisionError(path)


@pytest.mark.usefixtures("fast")
def test_where_nobody_looks_any_more_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last value of that look would stay there for ever; the kubelet starts the container again."""
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    host = machine(tmp_path)
    with pytest.raises(HostError, match="nobody looks at pci any more"):
        exporter(Odd(host.root, host.sys, host.proc), Node(), 18474, io.StringIO()).serve()


@pytest.mark.usefixtures("fast")
def test_what_was_never_well_says_so(tmp_path: Path) -> None:
    """As NVIDIA's exporter does: an alert of how long ago a node was well last hears nothing of a gauge that is not there."""
    host = machine(tmp_path)
    (tmp_path / "root/host/usr/bin/nvidia-smi").unlink()
    with serving(host, Node(), 18481):
        until(lambda: seen(18481, "gpu_operator_node_device_plugin_devices_total") == "0.0")
        for look in ("driver_validation", "device_plugin_validation"):
            assert seen(18481, f"gpu_operator_node_{look}_last_success_ts_seconds") == "0.0"


@pytest.mark.usefixtures("fast")
def test_a_gpu_that_is_ill_is_one_that_the_plugin_has(tmp_path: Path) -> None:
    """As NVIDIA's exporter counts: allocatable is without it."""
    node = Node()
    node.node["status"]["capacity"] |= {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "2", "nvidia.com/hostdev": "4"}
    node.node["status"]["allocatable"] |= {"nvidia.com/gpu": "7"}
    with serving(machine(tmp_path), node, 18475):
        until(lambda: seen(18475, "gpu_operator_node_device_plugin_devices_total") == "10.0")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_it_is_reached_on_both_families(tmp_path: Path, address: str) -> None:
    if address == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(machine(tmp_path), Node(), 18476):
        until(lambda: seen(18476, "gpu_operator_node_driver_ready", address) == "0.0")


def clients_served() -> int:
    """Return how many threads there are for one client each, as socketserver names them."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.mark.usefixtures("fast")
def test_who_connects_and_says_nothing_keeps_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Such as whoever looks for open ports, or a Prometheus whose machine died; each would keep a thread and a file."""
    monkeypatch.setattr(metrics, "CLIENT_SECONDS", 0.3)
    with serving(machine(tmp_path), Node(), 18477), contextlib.ExitStack() as clients:
        until(lambda: seen(18477, "gpu_operator_node_driver_ready") == "0.0")
        silent = [clients.enter_context(socket.create_connection(("127.0.0.1", 18477), timeout=PATIENCE)) for _ in range(3)]
        for client, words in zip(silent, (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: "), strict=True):
            client.sendall(words)
        gone = socket.create_connection(("127.0.0.1", 18477))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.sendall(b"GET /metrics HTTP/1.1\r\n")
        gone.close()
        assert [client.recv(1) for client in silent] == [b"", b"", b""]
        until(lambda: clients_served() == 0)
        assert seen(18477, "gpu_operator_node_driver_ready") == "0.0"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("fast")
def test_many_that_send_a_byte_now_and_then_take_little_and_hold_up_nobody(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever reaches the port could take a thread with each connection, and none of them was ever silent for long."""
    monkeypatch.setattr(metrics, "CLIENT_SECONDS", 600.0)
    with serving(machine(tmp_path), Node(), 18478), contextlib.ExitStack() as clients:
        until(lambda: seen(18478, "gpu_operator_node_driver_ready") == "0.0")
        for _ in range(200):
            clients.enter_context(socket.create_connection(("127.0.0.1", 18478), timeout=PATIENCE)).sendall(b"GET /metr")
        until(lambda: 0 < clients_served() <= metrics.MOST_CLIENTS)
        assert seen(18478, "gpu_operator_node_driver_ready") == "0.0"
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError) as error:
            exporter(machine(tmp_path), Node(), port, io.StringIO()).serve()
    assert str(error.value) == f"METRICS_PORT: cannot listen on port {port}: Address already in use"


@pytest.mark.parametrize(("port", "managed", "left", "loaded", "well"), [
    (18491, True, None, False, "0.0"), (18492, True, "GDS_ENABLED: true\n", False, "0.0"),
    (18493, True, "GDS_ENABLED: true\n", True, "1.0"), (18494, True, "GDS_ENABLED: false\n", False, "1.0"),
    (18495, False, None, False, "1.0"), (18496, False, "GDS_ENABLED: true\n", False, "1.0")])
@pytest.mark.usefixtures("fast")
def test_the_driver_is_well_where_the_validator_calls_it_so(
        tmp_path: Path, port: int, managed: bool, left: str | None, loaded: bool, well: str) -> None:
    """Its container may be on its way, or a module that it was to bring may not be loaded, though nvidia-smi is well."""
    host, node = machine(tmp_path), Node()
    (tmp_path / "root/host/usr/bin/nvidia-smi").unlink()
    for name in ("bin/nvidia-smi", "lib64/libnvidia-ml.so.1"):
        file = tmp_path / "root/run/nvidia/driver" / name
        file.parent.mkdir(parents=True)
        file.write_text("x")
        file.chmod(0o755)
    if left is not None:
        (tmp_path / "root/run/nvidia/validations/.driver-ctr-ready").write_text(left)
    if loaded:
        (tmp_path / "sys/module/nvidia_fs").mkdir(parents=True)
        (tmp_path / "sys/module/nvidia_fs/refcnt").write_text("0\n")
    owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
    node.pods = [{"metadata": {"ownerReferences": [owner]}}] if managed else []
    with serving(host, node, port):
        until(lambda: seen(port, "gpu_operator_node_driver_validation"))
        assert seen(port, "gpu_operator_node_driver_validation") == well


@pytest.mark.usefixtures("fast")
def test_a_request_for_heads_alone_is_answered(tmp_path: Path) -> None:
    with serving(machine(tmp_path), Node(), 18480):
        until(lambda: seen(18480, "gpu_operator_node_driver_ready") == "0.0")
        request = urllib.request.Request("http://127.0.0.1:18480/metrics", method="HEAD")
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert (answer.status, answer.read()) == (200, b"")
