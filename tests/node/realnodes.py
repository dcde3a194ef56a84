"""Real nodes to test against: `./dev node`, kubectl, and what this machine shows of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.node import image
from tools.node.cluster import GROUPS, NodeCluster

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 120.0
POLL = 0.2
IMAGE = "probe:1"
PROGRAMS = {"containerd", "containerd-shim", "runc", "ctr", "kubelet", "pause", "probe"}
"""The names of the programs that only nodes run, cut as the kernel cuts them."""
TUNABLES = ("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
            "vm/overcommit_memory", "vm/panic_on_oom", "net/ipv4/ip_forward", "kernel/hostname")


def eventually(what: str, holds: Callable[[], bool], patience: float = PATIENCE, poll: float = POLL) -> None:
    """Wait until something holds."""
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(poll)


@dataclass(frozen=True)
class Nodes:
    """Stand for nodes and their control plane, by the folder of their state."""

    state: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "controlplane" / "kubeconfig"

    def command(self, word: str, *options: str) -> list[str]:
        """Return the command line of `./dev node`."""
        return [sys.executable, "-m", "tools.node.node", word, "--state", str(self.state), *options]

    def run(self, word: str, *options: str, code: int = 0) -> str:
        """Run `./dev node` and return what it prints; it must end with this code."""
        done = subprocess.run(self.command(word, *options), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Run kubectl as the administrator and return its output; it must succeed."""
        done = subprocess.run(self.kubectl_line(*words), input=given, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kubectl_line(self, *words: str) -> list[str]:
        """Return kubectl's command line."""
        return ["kubectl", "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.state / "cache"), *words]

    def get(self, *words: str) -> dict[str, Any]:
        """Return what `kubectl get` finds."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def pod(self, name: str, container: dict[str, Any], **spec: Any) -> None:
        """Run a pod of one container and wait until it is ready."""
        containers = [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": ["serve"], **container}]
        self.kubectl("create", "-f", "-", given=json.dumps(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, "containers": containers}}))
        line = self.kubectl_line("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={PATIENCE:.0f}s")
        assert subprocess.run(line, capture_output=True, check=False).returncode == 0, self.kubectl("describe", "pod", name)

    def execute(self, pod: str, *words: str) -> str:
        """Run the program of these tests in a pod and return what it prints."""
        return self.kubectl("exec", pod, "--", "/probe", *words)

    @contextmanager
    def forward(self, pod: str) -> Iterator[int]:
        """Forward a free port of this machine to the pod's, and yield it."""
        line = self.kubectl_line("port-forward", f"pod/{pod}", ":8080")
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert told
            yield int(told[1])
            process.terminate()

    def pids(self, status: str) -> dict[str, int]:
        """Return from names to process numbers what `status` has said."""
        return {name: int(pid) for name, pid in re.findall(r"^(\S+) +runs as (\d+)$", status, re.MULTILINE)}


def build_image(folder: Path, name: str, source: str = "probe.go", module: Path | None = None) -> Path:
    """Return a tar file with an image of a program of these tests."""
    program = ROOT / ".cache" / "node" / Path(source).stem
    image.build_program(HERE / source, program, module)
    image.pack(name, program, folder / "image.tar")
    return folder / "image.tar"


def settings() -> dict[str, Any]:
    """Return what nodes may never change of this machine, not even while they run."""
    return {
        "mounts": Path("/proc/mounts").read_text(),
        "interfaces": _ip("link"), "addresses": _ip("address"), "routes": _ip("route"), "networks": _ip("netns"),
        "tunables": {name: (Path("/proc/sys") / name).read_text() for name in TUNABLES},
        "folders": {path: Path(path).exists() for path in ("/var/lib/cni", "/run/containerd", "/run/netns", "/var/lib/kubelet",
                                                           "/var/lib/containerd", "/etc/cni", "/var/log/pods")},
    }


def traces(state: Path) -> set[str]:
    """Return what runs and what is there because of nodes, but for nodes of others: programs, control groups, files."""
    own = NodeCluster(state).group
    found = {f"process {pid} {name}" for pid, name, group in _processes()
             if own in group or (name in PROGRAMS and GROUPS not in group) or _mentions(pid, str(state))}
    found |= {f"control group {path}" for path in Path("/sys/fs/cgroup").glob("*/*")
              if path.is_dir() and (own in path.name or GROUPS not in path.name)}
    return found | ({f"folder {state}"} if state.exists() else set())


def running(state: Path, program: str, node: str = "") -> list[int]:
    """Return the processes of a program in all nodes or one, as this machine sees them."""
    own = f"{NodeCluster(state).group}/{node}"
    return [pid for pid, name, group in _processes() if name == program and own in group]


def _ip(what: str) -> list[str]:
    # The counters of seconds that some addresses have are not settings.
    text = subprocess.run(["ip", "-o", what], capture_output=True, text=True, check=True).stdout
    return [re.sub(r"(valid|preferred)_lft \S+", "", line) for line in text.splitlines()]


def _processes() -> Iterator[tuple[int, str, str]]:
    """Yield each process' number, name, and control groups."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(each.name), (each / "comm").read_text().strip(), (each / "cgroup").read_text()


def _mentions(pid: int, text: str) -> bool:
    try:
        return pid != os.getpid() and text in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
