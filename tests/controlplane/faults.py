"""What goes wrong around operators on a real control plane: who they are, how they are watched, what must hold in the end."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

from tools.controlplane import processes

from gpuward import names
from tests.controlplane.few import driver_pods
from tests.controlplane.plane import OPERATOR, PATIENCE, WRITES, NodeWatch, Plane, Sight, cordoned_by_us, eventually, in_progress

LIMIT = 2
"""Nodes that may be upgraded at once."""
Request = dict[str, Any]


class LastingWatch(NodeWatch):
    """Keep every state of all nodes, also over the end of the API server that shows them.

    One that comes back may have forgotten what was between: then all nodes are taken as they are.
    """

    def _refused(self, status: dict[str, Any]) -> None:
        """Leave it at that: all nodes are listed anew."""

    def _go_on(self) -> None:
        eventually("the API server answers", lambda: self._closed or serves(self._plane))
        if not self._closed:
            self.list()
        super()._go_on()


class Account:
    """Stand for one operator among several: a token of the service account of its own, and the way to the API server."""

    def __init__(self, plane: Plane, server: str = "") -> None:
        text = plane.kubectl("create", "token", names.OPERATOR_NAME, "-n", names.DEFAULT_NAMESPACE).strip()
        claims = text.split(".")[1]
        self.identity = "JTI=" + json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]
        """How the audit log calls it."""
        self.kubeconfig = plane.state / f"{uuid4()}.kubeconfig"
        config = json.loads(plane.kubectl("config", "view", "--raw", "-o", "json"))
        for user in config["users"]:
            if user["name"] == "gpuward":
                user["user"] = {"token": text}
        for cluster in config["clusters"]:
            cluster["cluster"]["server"] = server or cluster["cluster"]["server"]
        self.kubeconfig.write_text(json.dumps(config))

    def asked(self, requests: list[Request]) -> list[Request]:
        """Return which of the requests are its own."""
        key = "authentication.kubernetes.io/credential-id"
        return [entry for entry in requests if self.identity in entry["user"].get("extra", {}).get(key, ())]


def late_writes(requests: list[Request], since: float) -> dict[float, str]:
    """Return what of this was written, or tried to be, after some time, and when; the Lease of the election does not count."""
    times = {datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(): entry["requestURI"] for entry in requests
             if entry["verb"] in WRITES and entry["objectRef"]["resource"] not in ("leases", "events")}
    return {at: times[at] for at in sorted(times) if at > since}


def longest_pause(requests: list[Request], since: float) -> tuple[float, str]:
    """Return the most seconds that passed between two writes after some time, and what was asked meanwhile, in seconds from its
    begin.
    """
    begin, end = max(pairwise([since, *late_writes(requests, since)]), key=lambda pair: pair[1] - pair[0])
    meanwhile = [(datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp() - begin, entry) for entry in requests]
    return end - begin, "; ".join(
        f"{at:.1f} {entry['verb']} {entry['requestURI']} {entry.get('responseStatus', {}).get('code')}"
        for at, entry in sorted(meanwhile, key=lambda each: each[0]) if -1 < at <= end - begin)


@contextmanager
def standing(plane: Plane, account: Account, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Keep an operator running that may be killed or stopped."""
    with (plane.state / "operator.log").open("a") as log, \
            plane.start_operator(log, *flags, KUBECONFIG=str(account.kubeconfig)) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE)


def holder(plane: Plane) -> str:
    """Return who holds the Lease of the leader election."""
    try:
        return str(plane.get("lease", names.LEADER_LEASE, "-n", names.DEFAULT_NAMESPACE)["spec"].get("holderIdentity", ""))
    except AssertionError:  # there is none yet
        return ""


def wait_for_first(watch: NodeWatch, done: int) -> None:
    """Wait until so many nodes have been upgraded since the watch began, and others not."""
    watch.wait_for(f"{done} nodes are upgraded", lambda now: len(upgraded(watch)) >= done)


def upgraded(watch: NodeWatch) -> set[str]:
    """Return the nodes whose upgrade has begun and ended."""
    begun = {name for moment in watch.moments for name, sight in moment.items() if in_progress(sight)}
    return {name for name in begun if watch.moments[-1][name].state == "upgrade-done"}


def check_end(plane: Plane, watch: NodeWatch, version: str, before: dict[str, str]) -> None:
    """Check that limits held all the time, and that the fleet ends as after any rollout."""
    assert watch.most(in_progress) <= LIMIT
    assert watch.most(cordoned_by_us) <= LIMIT
    assert all(sight == Sight("upgrade-done", False, False) for sight in watch.moments[-1].values())
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    assert all(f":{version}-" in pod["spec"]["containers"][0]["image"] for pod in pods)
    now = driver_pods(plane)
    assert now.keys() == before.keys()
    assert not set(now.values()) & set(before.values())


def labels(plane: Plane) -> dict[str, dict[str, str]]:
    """Return the labels of all nodes."""
    return {node["metadata"]["name"]: node["metadata"]["labels"] for node in plane.get("nodes")["items"]}


def gone_twice(requests: list[Request]) -> list[str]:
    """Return the pods which the operator evicted or deleted more than once, with success."""
    taken = Counter(entry["requestURI"].split("?")[0] for entry in requests
                    if entry["user"]["username"] == OPERATOR and "/pods/" in entry["requestURI"]
                    and entry["verb"] in ("create", "delete") and entry["responseStatus"]["code"] < 300)
    return [path for path, times in taken.items() if times > 1]


def restart_api_server(plane: Plane, *flags: str) -> None:
    """Kill the API server and start it again, from now on also with these flags, and wait until it serves."""
    command = plane.state / "kube-apiserver.argv"
    command.write_text(json.dumps([*json.loads(command.read_text()), *flags]))
    processes.restart(plane.state, "kube-apiserver")
    eventually("the API server is back", lambda: serves(plane))


def serves(plane: Plane) -> bool:
    """Tell whether the API server is ready."""
    done = subprocess.run(["kubectl", "get", "--raw", "/readyz"], env=plane.environment, capture_output=True, check=False)
    return done.returncode == 0


def compact(plane: Plane) -> int:
    """Let etcd forget all that was before now; return the revision up to which it did."""
    port = json.loads((plane.state / "ports.json").read_text())["etcd"]
    revision = int(_etcd(port, "maintenance/status", {})["header"]["revision"])
    _etcd(port, "kv/compaction", {"revision": revision, "physical": True})
    return revision


def _etcd(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{path}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found
