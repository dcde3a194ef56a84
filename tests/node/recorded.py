"""What nodes and pods went through, as a watch has told it."""

from __future__ import annotations

import json
import math
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.node.realnodes import Nodes

STATE = "nvidia.com/gpu-driver-upgrade-state"
GPU = "nvidia.com/gpu"
DRIVER = "nvidia-driver"
"""The component that all driver pods have in a label, those of NVIDIADrivers too."""
KILLED = 137
"""How a container ends that SIGKILL ended."""
UNKNOWN = "ContainerStatusUnknown"
"""Why the kubelet says so, too: it has not seen how the container ended."""
NEVER = "1970-01-01T00:00:00Z"
"""When a container started that was removed between its creation and its start: it ran nothing that could have ended well."""


def _seconds(stamp: str | None) -> float:
    """Return a time of the kubelet's in seconds; one that it does not know is long ago."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


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
    def ending(self) -> bool:
        return self.gone or "deletionTimestamp" in self.obj["metadata"]

    def says(self, condition: str) -> str:
        """Return the reason of a condition that is True, empty where it is not."""
        found = (each for each in self.obj.get("status", {}).get("conditions") or [] if each["type"] == condition)
        return next((each.get("reason", "") for each in found if each["status"] == "True"), "")

    @property
    def uses_gpu(self) -> bool:
        return any(GPU in each.get("resources", {}).get("limits", {}) for each in self.obj["spec"].get("containers", []))


@dataclass
class Record:
    """Hold all moments of nodes and pods since it began, in their order."""

    moments: list[Moment] = field(default_factory=list)

    def of(self, kind: str) -> list[Moment]:
        return [each for each in self.moments if each.obj["kind"] == kind]

    def killed(self) -> dict[tuple[str, str], str]:
        """Return the app of each pod, and the name of its container, that SIGKILL has ended, and how one of them ended."""
        return {(pod.label("app"), each["name"]): f"{pod.name} on {pod.node}, {state['terminated']}" for pod in self.of("Pod")
                for each in pod.containers for state in (each["state"], each.get("lastState") or {})
                if (ended := state.get("terminated", {})).get("exitCode") == KILLED
                and ended["reason"] != UNKNOWN and ended["startedAt"] != NEVER}

    def running(self, node: str, at: float) -> set[str]:
        """Return the pods with a GPU of which a container ran on a node at some time.

        By the kubelet's own times, which are cut to whole seconds: on a busy machine a watch tells of an end some time after it.
        """
        ran: dict[tuple[str, str, str], float] = {}
        for pod in self.of("Pod"):
            if pod.node != node or not pod.uses_gpu:
                continue
            for each in pod.containers:
                for state in (each["state"], each.get("lastState") or {}):
                    if begun := state.get("running"):
                        ran.setdefault((pod.name, each["name"], begun["startedAt"]), math.inf)
                    elif ended := state.get("terminated"):
                        ran[pod.name, each["name"], ended["startedAt"]] = _seconds(ended["finishedAt"])
            if pod.gone:
                ran.update({key: min(end, pod.at) for key, end in ran.items() if key[0] == pod.name})
        return {name for (name, _, begun), end in ran.items() if _seconds(begun) + 1 <= at < end}

    def torn(self) -> list[tuple[str, str]]:
        """Return the driver pods that began to go while a pod with a GPU ran on their node, and the latter."""
        now: dict[str, Moment] = {}
        found: list[tuple[str, str]] = []
        for pod in self.of("Pod"):
            before = now.get(pod.name)
            now[pod.name] = pod
            if pod.label("app.kubernetes.io/component") == DRIVER and pod.ending and not (before and before.ending):
                found += [(pod.name, user.name) for user in now.values() if user.node == pod.node and user.uses_gpu and user.runs]
        return found

    def most_cordoned(self) -> int:
        """Return how many nodes were cordoned at once, at most."""
        now: dict[str, bool] = {}
        most = 0
        for node in self.of("Node"):
            now[node.name] = node.cordoned
            most = max(most, sum(now.values()))
        return most


@contextmanager
def recording(nodes: Nodes) -> Iterator[Record]:
    """Record all nodes, pods and ClusterPolicies."""
    record = Record()
    watches = [subprocess.Popen(nodes.kubectl_line("get", "--raw", f"{path}?watch=true"), stdout=subprocess.PIPE,
                                text=True) for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/nvidia.com/v1/clusterpolicies")]
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
