"""gpuward's own driver manager on real nodes: what it says, and how its process ends in the midst of its work."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from typing import Any

from tests.node.installed import NAMESPACE
from tests.node.realnodes import Nodes, eventually, running
from tests.node.stack import DRIVER, pods_on, within

CONTAINER = "k8s-driver-manager"
PROGRAM = "driver-manager"
OFTEN = 0.01


def said(nodes: Nodes, node: str, since: float) -> list[str]:
    """Return what the driver managers of a node have said since some time, as the kubelet has written it down."""
    logs = (nodes.state / "nodes" / node / "root/var/log/pods").glob(f"{NAMESPACE}_{DRIVER}*/{CONTAINER}/*.log")
    lines = sorted(line for log in logs for line in log.read_text().splitlines())
    return [line for line in lines if datetime.fromisoformat(line.partition(" ")[0]).timestamp() > since]


def await_word(nodes: Nodes, node: str, word: str, since: float) -> None:
    """Wait until a driver manager of a node has said something since some time."""
    eventually(f"{node}: {word}", lambda: any(word in line for line in said(nodes, node, since)), 120, OFTEN)


def unloads(nodes: Nodes, node: str) -> bool:
    """Tell whether a module of a node is being unloaded."""
    return bool(running(nodes.state, "rmmod", node))


def kill_at(nodes: Nodes, node: str, word: str, since: float, *later: str, at_latest_unloading: bool = False) -> float:
    """Kill the driver manager once it says this, put another pod in its pod's place, and return when that was.

    `later` is what may come at once, where an earlier one was killed with a request sent and before it said so. The kubelet
    would start it again, but wait longer each time.
    """
    words = (word, *later)

    def is_there() -> bool:
        told = any(each in line for line in said(nodes, node, since) for each in words)
        return told or (at_latest_unloading and unloads(nodes, node))

    eventually(f"{node}: {word}", is_there, 120, OFTEN)
    kill(nodes, node)
    now = time.time()
    replace(nodes, node)
    return now


def kill(nodes: Nodes, node: str) -> None:
    """Kill the driver manager of a node in the midst of its work."""
    found = running(nodes.state, PROGRAM, node)
    assert found, "it is done already"
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def replace(nodes: Nodes, node: str) -> None:
    """Delete a node's driver pods at once, as nobody should, and wait until there is another one."""
    old = {pod["metadata"]["uid"] for pod in driver_pods(nodes, node)}
    nodes.kubectl("delete", "pod", "-n", NAMESPACE, "-l", f"app={DRIVER}", "--field-selector", f"spec.nodeName={node}",
                  "--grace-period=0", "--force")
    eventually("there is another driver pod", lambda: any(pod["metadata"]["uid"] not in old for pod in driver_pods(nodes, node)))


def renew(nodes: Nodes, node: str) -> None:
    """Delete a node's driver pod, as people do where nobody upgrades drivers for them."""
    (pod,) = driver_pods(nodes, node)
    nodes.kubectl("delete", "pod", "-n", NAMESPACE, pod["metadata"]["name"], "--wait=false")


def driver_pods(nodes: Nodes, node: str) -> list[dict[str, Any]]:
    return pods_on(nodes, node, "-n", NAMESPACE, "-l", f"app={DRIVER}")


def hold(nodes: Nodes, node: str, module: str) -> None:
    """Let unloading a module take until `go_on`."""
    within(nodes, node, "touch", f"/run/nvidia/.kernel/hold-{module}")


def go_on(nodes: Nodes, node: str, module: str) -> None:
    within(nodes, node, "rm", f"/run/nvidia/.kernel/hold-{module}")
