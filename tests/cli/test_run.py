"""`gpuward run` as a process: it ends, and says why, when anything ends that must not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from gpuward.sandbox.samples import IMAGES
from tests.recorder.test_process import COMMAND, PORTS, install, process, until

ONCE = """
import json, pathlib, sys
seen = pathlib.Path(sys.argv[1])
if seen.exists():
    sys.exit("no more logins")
seen.touch()
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}))
"""


def log_in_by(plugin: str, kubeconfig: Path) -> None:
    """Let the user of a kubeconfig log in by a plugin, written in Python; its argument is a path of its own."""
    read = yaml.safe_load(kubeconfig.read_text())
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
               "args": ["-c", plugin, str(kubeconfig.with_name("seen"))]}
    for user in read["users"]:
        user["user"] = {"exec": section}
    kubeconfig.write_text(yaml.safe_dump(read))


def test_of_two_operators_without_an_election_one_waits_and_status_names_the_other(tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        asyncio.run(install(kubeconfig))
        environment = {**IMAGES, "OPERATOR_NAMESPACE": "gpu-operator", "KUBECONFIG": str(kubeconfig)}
        with process(log, "run", *PORTS, "--no-recorder", **environment):
            until(lambda: '"msg": "Leading"' in log.read_text(), log)
            with process(tmp_path / "second", "run", *PORTS, "--no-recorder", **environment):
                until(lambda: "Listed the cluster" in (tmp_path / "second").read_text(), tmp_path / "second")
                until(lambda: "Another operator runs" in (tmp_path / "second").read_text(), tmp_path / "second")
            shown = subprocess.run([*COMMAND, "status"], env={**os.environ, **environment}, capture_output=True, text=True,
                                   timeout=60, check=False)
    assert shown.stdout.splitlines()[1].startswith(f"operator {socket.gethostname()} renewed its Lease ")
    lines = [json.loads(line) for line in (tmp_path / "second").read_text().splitlines()]
    (told,) = [line for line in lines if line["msg"] == "Another operator runs: waiting until it is gone"]
    assert told["holder"].startswith(f"{socket.gethostname()}_")
    assert not [line for line in lines if line.get("logger", "").startswith("controllers.")]


def test_a_namespace_that_is_not_the_operator_s_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    """One that is not there, and one that is: the stack runs in another."""
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    environment = {**os.environ, **IMAGES, "KUBECONFIG": str(kubeconfig)}
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        asyncio.run(install(kubeconfig))
        with process(log, "run", *PORTS, "--no-recorder", **environment, OPERATOR_NAMESPACE="gpu-operator"):
            until(lambda: "1 of 1 nodes up to date" in shown(environment), log)
        refused = [
            subprocess.run([*COMMAND, "run", *PORTS, "--no-recorder"], env={**environment, "OPERATOR_NAMESPACE": namespace},
                           capture_output=True, text=True, timeout=60, check=False)
            for namespace in ("nope", "default")]
    assert [done.returncode for done in refused] == [1, 1]
    assert [done.stderr.splitlines()[-1] for done in refused] == [
        "gpuward: OPERATOR_NAMESPACE: 'nope' cannot be used: there is no such namespace: set it to the one in which the operator "
        "and its operands live",
        "gpuward: OPERATOR_NAMESPACE: 'default' cannot be used: ClusterPolicy cluster-policy has its operands in gpu-operator: "
        "set it to that namespace, or delete what is in there first"]
    assert not any("Leading" in done.stderr for done in refused)


def shown(environment: dict[str, str]) -> str:
    return subprocess.run([*COMMAND, "status"], env=environment, capture_output=True, text=True, timeout=60, check=False).stdout


class OldServer(BaseHTTPRequestHandler):
    """Answer as an API server of Kubernetes 1.28 that has nothing."""

    def do_GET(self) -> None:
        found = self.path == "/version"
        body = json.dumps({"major": "1", "minor": "28", "gitVersion": "v1.28.15"} if found else {"code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_api_server_that_is_too_old_is_one_line_of_the_log(tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    with ThreadingHTTPServer(("127.0.0.1", 0), OldServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "old", "users": [{"name": "old", "user": {}}],
            "clusters": [{"name": "old", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}]}))
        environment = {**IMAGES, "OPERATOR_NAMESPACE": "gpu-operator", "KUBECONFIG": str(kubeconfig)}
        with process(log, "run", *PORTS, "--no-recorder", **environment):
            until(lambda: '"msg": "Starting"' in log.read_text(), log)
        server.shutdown()
    told = [line for line in map(json.loads, log.read_text().splitlines()) if "older" in line["msg"]]
    assert [(line["level"], line["msg"], line["version"]) for line in told] == [
        ("error", "This Kubernetes is older than 1.29, the oldest that gpuward supports", "v1.28.15")]


def test_the_process_ends_with_its_election(tmp_path: Path) -> None:
    """An operator whose election is dead leads never again; a kubelet that finds it healthy would keep it so."""
    kubeconfig = tmp_path / "kubeconfig"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        log_in_by(ONCE, kubeconfig)  # the main connection logs in, the election's cannot
        environment = {**os.environ, **IMAGES, "OPERATOR_NAMESPACE": "gpu-operator", "KUBECONFIG": str(kubeconfig)}
        ended = subprocess.run([*COMMAND, "run", *PORTS, "--leader-elect", "--no-recorder"], env=environment,
                               capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    *log, last = ended.stderr.splitlines()
    told = json.loads(log[-1])
    assert (told["level"], told["msg"]) == ("error", "Something that must not end has ended: the operator ends with it")
    assert "no more logins" in told["error"]
    assert last.startswith("gpuward: ")
    assert "Traceback" not in ended.stderr
