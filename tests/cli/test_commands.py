"""The installed command: what it prints and how it exits when something is in its way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuward.cli.commands import commands

KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
}
PATIENCE = 240.0
"""Seconds for a command, on a machine that is busy with other tests."""


def gpuward(*arguments: str, kubeconfig: Path | str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    variables = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "OPERATOR_NAMESPACE")}
    variables |= {"HOME": "/nonexistent", **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}), **environment}
    command = [sys.executable, "-c", "from gpuward.cli.main import main; main()", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)


def pointing_to(folder: Path, server: str) -> Path:
    """Write a kubeconfig for a server."""
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump({**KUBECONFIG, "clusters": [{"name": "a", "cluster": {"server": server}}]}))
    return file


@contextmanager
def refusing(status: int, reason: str, message: str) -> Iterator[str]:
    """Serve an API that tells its version and refuses everything else."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/version"
            body = {"gitVersion": "v1.36.3"} if known else {
                "kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
            self.send_response(200 if known else status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuse)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command said, which must be one line on stderr."""
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    return line


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_missing_kubeconfig_is_one_line(command: str) -> None:
    line = one_line(gpuward(command, kubeconfig="/nonexistent/config", OPERATOR_NAMESPACE="ns"))
    assert line == "gpuward: /nonexistent/config: no such file: KUBECONFIG must name an existing kubeconfig"


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_refused_connection_is_one_line(command: str, tmp_path: Path) -> None:
    line = one_line(gpuward(command, kubeconfig=pointing_to(tmp_path, "http://127.0.0.1:9"), OPERATOR_NAMESPACE="ns"))
    assert line == "gpuward: the API server cannot be reached: http://127.0.0.1:9: cannot connect: Connection refused"


def test_diff_says_the_same_of_a_refused_connection_and_ends_as_kubectls_does(tmp_path: Path) -> None:
    result = gpuward("diff", kubeconfig=pointing_to(tmp_path, "http://127.0.0.1:9"))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gpuward: the API server cannot be reached: http://127.0.0.1:9: cannot connect: Connection refused\n"


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_403_is_one_line(command: str, tmp_path: Path) -> None:
    message = 'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope'
    with refusing(403, "Forbidden", message) as server:
        line = one_line(gpuward(command, kubeconfig=pointing_to(tmp_path, server), OPERATOR_NAMESPACE="ns"))
    assert line == f"gpuward: the API server refused (403 Forbidden): {message}"


def test_missing_crds_are_told_with_the_command_that_installs_them(tmp_path: Path) -> None:
    with refusing(404, "NotFound", "the server could not find the requested resource") as server:
        line = one_line(gpuward("status", kubeconfig=pointing_to(tmp_path, server)))
    assert "gpuward crds | kubectl apply --server-side -f -" in line


def test_there_is_nothing_to_resume_where_nothing_is_installed(tmp_path: Path) -> None:
    with refusing(404, "NotFound", "the server could not find the requested resource") as server:
        line = one_line(gpuward("resume", kubeconfig=pointing_to(tmp_path, server)))
    assert line == "gpuward: there is no ClusterPolicy, and so no rollout to resume"


def test_an_operator_says_at_its_start_which_of_its_variables_names_no_image(tmp_path: Path) -> None:
    """It goes on: a policy may name all of its images itself."""
    digest = f"sha256:{'0' * 64}"
    told = gpuward("run", kubeconfig=pointing_to(tmp_path, "http://127.0.0.1:9"), OPERATOR_NAMESPACE="ns", VALIDATOR_IMAGE="",
                   DRIVER_MANAGER_IMAGE=f"r.example/manager:{digest}", GFD_IMAGE="r.example/gfd:v1")
    lines = [json.loads(line) for line in told.stderr.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line["level"] == "error"]
    assert (line["msg"], line["variable"]) == ("A variable of the operator names no image", "DRIVER_MANAGER_IMAGE")
    assert line["fix"] == f"write r.example/manager@{digest}: a digest comes after '@'"


def test_the_operator_needs_its_namespace() -> None:
    assert "OPERATOR_NAMESPACE" in one_line(gpuward("run"))


@pytest.mark.parametrize("deadline", ["abc", "1s", "-5s"])
def test_a_renew_deadline_that_cannot_be_used_is_refused_without_an_election_too(deadline: str) -> None:
    done = gpuward("run", f"--leader-lease-renew-deadline={deadline}", OPERATOR_NAMESPACE="ns")
    assert done.returncode == 2
    assert f"Error: Invalid value for '--leader-lease-renew-deadline': '{deadline}': " in done.stderr


@pytest.mark.parametrize(("option", "value", "told"), [
    ("--zap-log-level", "foo", "'foo': use one of debug, info, warning, error, panic, or a number above 0"),
    ("--zap-time-encoding", "foo", "'foo': use one of epoch, "),
    ("--metrics-bind-address", "foo", "'foo': write an address such as :8080"),
    ("--health-probe-bind-address", "foo", "'foo': write an address such as :8080"),
    ("--ui", "perhaps", "'perhaps': write true or false"),
])
def test_a_flag_of_the_operator_that_cannot_be_used_ends_with_2_before_anything_else(option: str, value: str, told: str) -> None:
    done = gpuward("run", f"{option}={value}")
    assert done.returncode == 2
    assert f"Error: Invalid value for '{option}': {told}" in done.stderr


def test_a_duration_that_cannot_be_used_is_told_with_its_option_once() -> None:
    done = gpuward("status", "--wait", "--timeout", "5")
    assert done.returncode == 2
    assert done.stderr.count("--timeout") == 1
    assert "Error: Invalid value for '--timeout': '5': " in done.stderr


def test_the_levels_of_the_log_are_all_in_the_help() -> None:
    assert "debug, info, warning, error, panic, or a number" in " ".join(gpuward("run", "--help").stdout.split())


def test_the_crds_are_printed_as_yaml() -> None:
    printed = gpuward("crds")
    kinds = [document["spec"]["names"]["kind"] for document in yaml.safe_load_all(printed.stdout)]
    assert (printed.returncode, kinds) == (0, ["ClusterPolicy", "NVIDIADriver", "RolloutPolicy"])


def demo_with(folder: Path, **upgrades: object) -> subprocess.CompletedProcess[str]:
    """Run the demo with the example policy, its upgrade policy changed."""
    policy = yaml.safe_load((Path(__file__).parents[2] / "examples" / "clusterpolicy.yaml").read_text())
    policy["spec"]["driver"]["upgradePolicy"] |= upgrades
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    return gpuward("demo", "--nodes", "2", "--speed", "60", "--policy", str(file))


def test_a_demo_whose_policy_cannot_be_followed_says_so_and_fails(tmp_path: Path) -> None:
    result = demo_with(tmp_path, maxUnavailable="abc")
    assert result.returncode == 1
    assert "spec.driver.upgradePolicy.maxUnavailable: 'abc' cannot be used" in result.stderr
    assert "0 of 2 nodes upgraded" in result.stdout


def test_a_demo_whose_policy_the_schema_refuses_says_so_and_fails(tmp_path: Path) -> None:
    result = demo_with(tmp_path, maxParallelUpgrades=-1)
    assert result.returncode == 1
    assert "422 Invalid" in result.stderr
    assert "spec.driver.upgradePolicy.maxParallelUpgrades" in result.stderr


@pytest.mark.parametrize(("arguments", "problem"), [
    (("demo", "--nodes", "0"), "Invalid value for '--nodes': 0 is not in the range 1<=x<=5000."),
    (("demo", "--max-unavailable", "abc"), "Invalid value for '--max-unavailable': 'abc': write a number of nodes (2) or"),
    (("demo", "--max-unavailable", "-1"), "Invalid value for '--max-unavailable': '-1': "),
    (("demo", "--to", "a b"), "Invalid value for '--to': 'a b': write a driver version"),
    (("demo", "--to", ""), "Invalid value for '--to': '': write a driver version"),
    (("plan", "--to", ""), "Invalid value for '--to': '': write a driver version"),
    (("rehearse", "--to", ""), "Invalid value for '--to': '': write a driver version"),
    (("demo", "--speed", "inf"), "Invalid value for '--speed': inf: "),
    (("demo", "--policy", "/nonexistent"), "Invalid value for '--policy': '/nonexistent': name a file that can be read"),
    (("demo", "--images", "/nonexistent"), "Invalid value for '--images': '/nonexistent': name a file"),
    (("sandbox", "--images", "/nonexistent"), "Invalid value for '--images': '/nonexistent': name a file"),
    (("sandbox", "--speed", "nan"), "Invalid value for '--speed': nan"),
    (("sandbox", "--kubeconfig", "/nonexistent/x"), "Invalid value for '--kubeconfig': '/nonexistent/x': name a file that can"),
])
def test_options_that_cannot_be_used_are_usage_errors_before_anything_is_shown(arguments: tuple[str, ...], problem: str) -> None:
    result = gpuward(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0].endswith(f" {arguments[0]} [OPTIONS]")
    assert lines[-1].startswith(f"Error: {problem}")


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_line(gpuward("sandbox", "--port", str(port)))
    assert line == (
        f"gpuward: cannot listen on 127.0.0.1:{port}: Address already in use; name another --port, or none for a free one")


@pytest.mark.parametrize("command", ["crds", "--help"])
def test_an_output_without_room_is_one_line(command: str) -> None:
    python = [sys.executable, "-c", "from gpuward.cli.main import main; main()", command]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(python, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 1
    assert result.stderr == "gpuward: cannot write the output: No space left on device\n"


WITH_NAMESPACE = sorted(name for name, command in commands.commands.items()
                        if any("--namespace" in option.opts for option in command.params))


@pytest.mark.parametrize("command", WITH_NAMESPACE)
@pytest.mark.parametrize("namespace", ["B@d/ns", "a/b", "Bad_ns", "", "-a", "a" * 64])
def test_a_namespace_that_cannot_be_one_is_refused_at_once(command: str, namespace: str, tmp_path: Path) -> None:
    """A slash in it is a path that no API server knows: commands waited for it without end."""
    told = CliRunner().invoke(commands, [command, *(["gpu-1"] if command == "explain" else []),
                                         *([] if command == "render" else ["--kubeconfig", str(tmp_path / "absent")]),
                                         "-n", namespace])
    assert told.exit_code == 2
    assert f"Invalid value for '--namespace' / '-n': {namespace!r} is no namespace: write up to 63 lower case" in told.output


def test_all_commands_that_ask_for_a_namespace_are_tried() -> None:
    assert WITH_NAMESPACE == [
        "abort", "approve", "bug-report", "capture", "check", "cleanup", "diff", "drivers", "explain", "plan", "promote",
        "rehearse", "render", "shadow", "status"]


def test_the_operator_refuses_a_namespace_that_cannot_be_one() -> None:
    told = gpuward("run", OPERATOR_NAMESPACE="a/b")
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert "OPERATOR_NAMESPACE: 'a/b' cannot be used: write up to 63 lower case" in told.stderr


def test_a_wave_is_not_passed_over_where_a_plan_is_approved_of() -> None:
    told = CliRunner().invoke(commands, ["approve", "canary", "--plan", "plan.json"])
    assert told.exit_code == 2
    assert "WAVE ('canary') and --plan exclude each other: approve of the plan first, then of the wave" in told.output
