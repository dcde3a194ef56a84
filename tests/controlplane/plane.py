"""A real control plane to test against: kubectl, the operator under its own rights, a recorded watch of nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self
from uuid import uuid4

import yaml
from tools.controlplane import processes
from tools.controlplane.programs import Delays, with_delays

from gpuward import names
from gpuward.kube.resources import LEASES
from gpuward.model.record import CordonOwner, decode_record
from gpuward.sandbox.fleet import workloads

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
"""Seconds for a step of many requests, on a machine that is busy with other tests."""
POLL = 0.3
NOT_IN_PROGRESS = {"", "upgrade-done", "upgrade-required", "upgrade-failed"}
OPERATOR = f"system:serviceaccount:{names.DEFAULT_NAMESPACE}:{names.OPERATOR_NAME}"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
IMAGES = {
    "DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator:v26.7.0",
}


@dataclass(frozen=True)
class Log:
    """Read what operators have said since some moment."""

    path: Path
    begin: int

    def lines(self) -> list[dict[str, Any]]:
        """Return every complete line."""
        *complete, _ = self.path.read_bytes()[self.begin:].split(b"\n")
        return [json.loads(line) for line in complete]

    def failures(self, words: str) -> list[dict[str, Any]]:
        """Return the lines whose error has these words."""
        return [line for line in self.lines() if words in line.get("error", "")]


@dataclass(frozen=True)
class Plane:
    """Stand for a control plane that runs, by the folder of its state."""

    state: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def port(self) -> int:
        """Return the API server's port."""
        ports: dict[str, int] = json.loads((self.state / "ports.json").read_text())
        return ports["api"]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *words: str, given: str | None = None, patience: float = PATIENCE) -> str:
        """Run kubectl as the administrator and return its output; it must succeed."""
        done = subprocess.run(["kubectl", "--cache-dir", str(self.state / "cache"), *words], env=self.environment, input=given,
                              capture_output=True, text=True, timeout=patience, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, *words: str) -> dict[str, Any]:
        """Return what `kubectl get` finds, as JSON data."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def gpuward(self, *words: str) -> str:
        """Run a gpuward command under the operator's own rights and return its output; it must succeed."""
        done = subprocess.run(self.command(*words), env=self.environment, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def operator(self, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Keep `gpuward run` running as the service account of deploy/operator.yaml, with more or other variables."""
        with self._log.open("a") as log, self._operator(log, **environment) as process:
            yield process
            assert process.poll() is None, self._log.read_text()[-2000:]

    def log(self) -> Log:
        """Return what operators say from now on."""
        return Log(self._log, self._log.stat().st_size if self._log.exists() else 0)

    @property
    def _log(self) -> Path:
        return self.state / "operator.log"

    def furnish(self, *, with_workloads: bool = True) -> None:
        """Install the CRDs, the operator's rights, the policy, and workloads: GPU pods under a disruption budget, and others."""
        self.kubectl("apply", "--server-side", "-f", "-", given=self.gpuward("crds"))
        # `kubectl wait` gives up on one that has no conditions yet.
        eventually("the CRDs are served", lambda: all(map(_is_established, self.get("crd")["items"])))
        self.kubectl("apply", "--validate=strict", "-f", str(ROOT / "deploy" / "operator.yaml"))
        self.kubectl("apply", "--validate=strict", "-f", str(ROOT / "examples" / "clusterpolicy.yaml"))
        for each in workloads(training=0) if with_workloads else ():
            if each["kind"] != "Job":
                self.kubectl("create", "-f", "-", given=json.dumps(each))

    def slow_pods(self, driver_seconds: float, validator_seconds: float) -> None:
        """Let pods of the driver and of the validator take so long from now on to get ready."""
        stages = self.state / "stages.yaml"
        found = with_delays(yaml.safe_load_all(stages.read_text()), Delays(driver_seconds, validator_seconds))
        stages.write_text(yaml.safe_dump_all(found))
        # A new kwok touches no node before the old one's Lease has expired.
        leases = LEASES.path("kube-node-lease")
        processes.restart(self.state, "kwok", lambda: self.kubectl("delete", "--raw", leases))

    def policy_ready(self, patience: float = PATIENCE) -> None:
        """Wait until the ClusterPolicy says that the stack is ready."""
        self.kubectl("wait", "clusterpolicy/cluster-policy", "--for=jsonpath={.status.state}=ready", f"--timeout={patience:.0f}s",
                     patience=patience + 10.0)

    def change_policy(self, **driver: Any) -> None:
        """Change fields of the policy's driver."""
        self.kubectl("patch", "clusterpolicy/cluster-policy", "--type=merge", "-p", json.dumps({"spec": {"driver": driver}}))

    def first_verdict(self) -> None:
        """Run the operator until it has carried out its first plan for the policy."""
        with self._operator(subprocess.PIPE) as process:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if '"msg": "ClusterPolicy ready"' in line:
                    break
            else:
                raise AssertionError("".join(said)[-2000:])

    @contextmanager
    def audited(self) -> Iterator[list[dict[str, Any]]]:
        """Yield a list which holds, at the end, what the audit log says was asked of the API server meanwhile."""
        found: list[dict[str, Any]] = []
        begin, end = f"audited={uuid4()}", f"audited={uuid4()}"
        self.kubectl("get", "--raw", f"/version?{begin}")
        yield found
        self.kubectl("get", "--raw", f"/version?{end}")
        command = ["tail", "-n", "+1", "-f", str(self.state / "audit.log")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follow:
            assert follow.stdout is not None
            for line in follow.stdout:
                entry = json.loads(line)
                if begin in entry["requestURI"]:
                    found.clear()
                elif end in entry["requestURI"]:
                    break
                elif entry["user"]:  # nobody's, where the request ended before it was known whose it is
                    found.append(entry)
            follow.terminate()

    @contextmanager
    def _operator(self, log: IO[str] | int, *flags: str, **changed: str) -> Iterator[subprocess.Popen[str]]:
        with self.start_operator(log, *flags, **changed) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE)

    def start_operator(self, log: IO[str] | int, *flags: str, **changed: str) -> subprocess.Popen[str]:
        """Start `gpuward run` as the service account of deploy/operator.yaml; the caller ends it."""
        command = self.command("run", "--context", "gpuward", "--metrics-bind-address", "127.0.0.1:0",
                                "--health-probe-bind-address", "127.0.0.1:0", *flags)
        environment = {**self.environment, **IMAGES, "OPERATOR_NAMESPACE": names.DEFAULT_NAMESPACE, **changed}
        return subprocess.Popen(command, env=environment, stderr=log, text=True)

    @staticmethod
    def command(*words: str) -> list[str]:
        """Return the command line that runs a gpuward command."""
        # Whatever ends the tests ends what they run (PR_SET_PDEATHSIG is 1).
        text = "import ctypes; ctypes.CDLL(None).prctl(1, 15); from gpuward.cli.main import main; main()"
        return [sys.executable, "-c", text, *words]


@dataclass(frozen=True)
class Sight:
    """Hold what a node's watch showed of it at one moment."""

    state: str
    unschedulable: bool
    ours: bool
    """Whether the upgrade cordoned it."""


class NodeWatch:
    """Keep every state of all nodes that the API server showed, in its own order, from a thread of its own.

    A server with too much to do ends watches that fall behind; they go on from where they were.
    """

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._now: dict[str, Sight] = {}
        self._version = ""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._closed = False
        self.failure = ""
        """Why nothing more is seen, though somebody still looks."""
        self.moments: list[dict[str, Sight]] = []
        """All nodes, after each change of one."""

    def __enter__(self) -> Self:
        self.list()
        self._kubectl = self._open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._kubectl.terminate()
        self._thread.join(PATIENCE)

    def list(self) -> None:
        """Take all nodes as they are, to watch them from there."""
        listed = json.loads(self._plane.kubectl("get", "--raw", "/api/v1/nodes"))
        self.take(*listed["items"])
        self._version = listed["metadata"]["resourceVersion"]

    def _open(self) -> subprocess.Popen[bytes]:
        path = f"/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
        return subprocess.Popen(["kubectl", "get", "--raw", path], env=self._plane.environment, stdout=subprocess.PIPE)

    def end_stream(self) -> None:
        """End the stream that is followed now, as a server does that has too much to do."""
        with self._changed:
            self._kubectl.terminate()

    def take(self, *nodes: dict[str, Any]) -> None:
        """Keep what nodes are like now."""
        with self._changed:
            self._now |= {node["metadata"]["name"]: _sight(node) for node in nodes}
            self.moments.append(dict(self._now))
            self._changed.notify_all()

    def wait_for(self, what: str, holds: Callable[[dict[str, Sight]], bool]) -> None:
        """Wait until something holds for the nodes as last shown."""
        with self._changed:
            held = self._changed.wait_for(lambda: bool(self.failure) or holds(self._now), PATIENCE)
            assert not self.failure
            assert held, f"{what}: {self._now}"

    def wait_for_rollout(self) -> None:
        """Wait until an upgrade of every node has begun and ended."""
        self.wait_for("upgrades begin", lambda now: self._touched() == now.keys())
        self.wait_for("upgrades end", lambda now: all(sight.state == "upgrade-done" for sight in now.values()))

    def most(self, counts: Callable[[Sight], bool]) -> int:
        """Return the largest number of nodes that were so at any moment."""
        return max(sum(map(counts, moment.values())) for moment in self.moments)

    def _touched(self) -> set[str]:
        return {name for moment in self.moments for name, sight in moment.items() if sight.state != "upgrade-done"}

    def _follow(self) -> None:
        try:
            while not self._closed:
                self._see(self._kubectl)
                self._kubectl.communicate()
                self._go_on()
        except Exception as error:  # whatever it is, those who wait have to hear of it
            with self._changed:
                self.failure = f"the watch of the nodes failed: {type(error).__name__}: {error}"
                self._changed.notify_all()

    def _see(self, kubectl: subprocess.Popen[bytes]) -> None:
        assert kubectl.stdout is not None
        for line in kubectl.stdout:
            if not line.endswith(b"\n"):
                return  # it was cut off, and comes again
            event = json.loads(line)
            if event["type"] == "ERROR":
                self._refused(event["object"])
                return
            if event["type"] != "BOOKMARK":
                self.take(event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]

    def _refused(self, status: dict[str, Any]) -> None:
        raise AssertionError(status)

    def _go_on(self) -> None:
        """Watch on after the stream ended, unless nobody wants it any more."""
        with self._changed:
            if not self._closed:
                self._kubectl = self._open()


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds that nothing can be watched for."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(POLL)


def _is_established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def in_progress(sight: Sight) -> bool:
    return sight.state not in NOT_IN_PROGRESS


def cordoned_by_us(sight: Sight) -> bool:
    return sight.unschedulable and sight.ours


def _sight(node: dict[str, Any]) -> Sight:
    meta = node["metadata"]
    record = (meta.get("annotations") or {}).get(names.UPGRADE_RECORD)
    ours = record is not None and decode_record(record).cordon is CordonOwner.GPUWARD
    return Sight(meta["labels"].get(names.UPGRADE_STATE, ""), node["spec"].get("unschedulable", False), ours)
