"""What nodes and pods went through, as a watch has told it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.node.realnodes import Nodes

STATE = "nvidia.com/gpu-driver-upgrade-state"
GPU = "nvidia.com/gpu"
KILLED = 137
"""How a container ends that SIGKILL ended."""


@dataclass(frozen=True)
class Moment:
    """Hold an object as it was from some time on."""

    at: float
    gone: bool
    obj: dict[str, Any]

    @property
    def name(self) -> str:
        name: str = self.obj["metadata"]["name"]
        return name

    def label(self, key: str) -> str:
        value: str = self.obj["metadata"].get("labels", {}).get(key, "")
        return value

    @property
    def node(self) -> str:
        node: str = self.obj["spec"].get("nodeName", "")
        return node

    @property
    def cordoned(self) -> bool:
        return bool(self.obj["spec"].get("unschedulable"))

    @property
    def containers(self) -> list[dict[str, Any]]:
        status = self.obj["status"]
        return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]

    @property
    def runs(self) -> bool:
        return not self.gone and any("running" in each["state"] for each in self.containers)

    @property
    def ready(self) -> bool:
        return not self.gone and any(
            each["type"] == "Ready" and each["status"] == "True" for each in self.obj["status"].get("conditions") or [])

    @property
    def uses_gpu(self) -> bool:
        return any(GPU in each.get("resources", {}).get("limits", {}) for each in self.obj["spec"].get("containers", []))


@dataclass
class Record:
    """Hold all moments of nodes and pods since it began, in their order."""

    moments: list[Moment] = field(default_factory=list)

    def of(self, kind: str) -> list[Moment]:
        return [each for each in self.moments if each.obj["kind"] == kind]

    def killed(self) -> set[tuple[str, str]]:
        """Return the app of each pod, and the name of its container, that SIGKILL has ended."""
        ended = [(pod.label("app"), each["name"], state["terminated"]["exitCode"]) for pod in self.of("Pod")
                 for each in pod.containers for state in (each["state"], each.get("lastState") or {}) if "terminated" in state]
        return {(app, name) for app, name, code in ended if code == KILLED}

    def running(self, node: str, at: float) -> set[str]:
        """Return the pods with a GPU whose containers ran on a node at some time."""
        last = {pod.name: pod for pod in self.of("Pod") if pod.at <= at and pod.uses_gpu}
        return {name for name, pod in last.items() if pod.node == node and pod.runs}


@contextmanager
def recording(nodes: Nodes) -> Iterator[Record]:
    """Record all nodes and pods."""
    record = Record()
    watches = [subprocess.Popen(nodes.kubectl_line("get", "--raw", f"/api/v1/{kind}?watch=true"), stdout=subprocess.PIPE,
                                text=True) for kind in ("nodes", "pods")]
    readers = [threading.Thread(target=_read, args=(watch, record), daemon=True) for watch in watches]
    for reader in readers:
        reader.start()
    try:
        yield record
    finally:
        for watch in watches:
            watch.terminate()
        for reader in readers:
            reader.join()


def _read(watch: subprocess.Popen[str], record: Record) -> None:
    with watch:
        assert watch.stdout is not None
        for line in watch.stdout:
            event = json.loads(line)
            record.moments.append(Moment(time.time(), event["type"] == "DELETED", event["object"]))
