"""What the command line makes of what people write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner

from gpuward.cli import logs
from gpuward.cli.ages import age
from gpuward.cli.commands import commands
from gpuward.cli.demo import how_long
from gpuward.cli.policyfile import read_policy
from gpuward.cli.screen import gpu_nodes
from gpuward.cli.story import Options, adjusted, next_version
from gpuward.cli.targets import named_driver
from gpuward.controllers.serving import parse_address
from gpuward.errors import InputError
from gpuward.sandbox.samples import IMAGES, sample_policy


@pytest.mark.parametrize(("text", "place"), [
    (":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9)), ("0", None), ("", None),
])
def test_addresses(text: str, place: tuple[str, int] | None) -> None:
    assert parse_address("--x", text) == place


@pytest.mark.parametrize("text", ["8080", ":http", ":70000", "host"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(InputError, match="write an address such as :8080"):
        parse_address("--x", text)


@pytest.mark.parametrize(("before", "after"), [("595.91.07", "595.91.08"), ("580.99", "580.100"), ("575", "576"), ("x", "x.1")])
def test_the_next_version(before: str, after: str) -> None:
    assert next_version(before) == after


def test_ages() -> None:
    assert [age(value) for value in (-1, 5, 119, 185, 7800, 400000)] == ["0s", "5s", "119s", "3m5s", "2h10m", "4d"]


def test_options_change_a_copy_of_the_policy() -> None:
    policy = sample_policy()
    changed = adjusted(Options(policy, max_parallel=0, max_unavailable="100%"))
    upgrades = changed["spec"]["driver"]["upgradePolicy"]
    assert (upgrades["maxParallelUpgrades"], upgrades["maxUnavailable"]) == (0, "100%")
    assert policy["spec"]["driver"]["upgradePolicy"]["maxParallelUpgrades"] == 1
    assert adjusted(Options(policy, max_unavailable="3"))["spec"]["driver"]["upgradePolicy"]["maxUnavailable"] == 3


@pytest.mark.parametrize(("text", "problem"), [
    ("a: [", "write valid YAML"), ("a: 2026-13-45", "write valid YAML"), ("a: &a {b: *a}", "write valid YAML"),
    ("kind: Pod", "a ClusterPolicy in it"), ("kind: ClusterPolicy", "metadata.name"),
])
def test_a_bad_policy_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        read_policy(str(file))
    with pytest.raises(InputError, match="No such file"):
        read_policy(str(tmp_path / "absent.yaml"))


def test_log_lines_have_the_shape_of_zap() -> None:
    lines: list[str] = []
    logs.configure(lines.append, lambda: 12.5, times="epoch")
    log = structlog.get_logger(source="controllers.Upgrade")
    log.info("Updated node state", node="n0")
    log.debug("not shown")
    assert json.loads(lines[0]) == {"level": "info", "ts": 12.5, "logger": "controllers.Upgrade", "msg": "Updated node state",
                                    "node": "n0"}
    assert len(lines) == 1
    logs.configure(lines.append, lambda: 0.0, level="2", times="rfc3339", readable=True)
    structlog.get_logger(source="x").debug("shown")
    assert lines[1] == "1970-01-01T00:00:00Z\tDEBUG\tx\tshown\n"


@pytest.mark.parametrize(("times", "shown"), [
    ("epoch", 1.5), ("millis", 1500.0), ("nano", 1500000000), ("iso8601", "1970-01-01T00:00:01.500Z"),
    ("rfc3339", "1970-01-01T00:00:01Z"), ("rfc3339nano", "1970-01-01T00:00:01.500000Z"), ])
def test_times_in_the_log_are_rfc_3339_and_zap_s_flag_chooses_others(times: str, shown: object) -> None:
    lines: list[str] = []
    logs.configure(lines.append, lambda: 1.5, times=times)
    structlog.get_logger().info("said")
    assert json.loads(lines[0])["ts"] == shown
    logs.configure(lines.append, lambda: 1.5)
    structlog.get_logger().info("said")
    assert json.loads(lines[1])["ts"] == "1970-01-01T00:00:01Z"


@pytest.mark.parametrize(("level", "times"), [("loud", "epoch"), ("info", "sundial")])
def test_unknown_log_settings_are_named(level: str, times: str) -> None:
    with pytest.raises(InputError, match="--zap-"):
        logs.configure(lambda line: None, lambda: 0.0, level=level, times=times)


def test_a_policy_that_names_no_driver_gets_one_with_its_new_version() -> None:
    assert named_driver(sample_policy()["spec"]["driver"], IMAGES["DRIVER_IMAGE"]) == {}
    assert named_driver({}, IMAGES["DRIVER_IMAGE"]) == {"repository": "nvcr.io/nvidia", "image": "driver"}


def test_one_node_is_one_node() -> None:
    assert (gpu_nodes(1), gpu_nodes(2)) == ("1 GPU node", "2 GPU nodes")


@pytest.mark.parametrize(("nodes", "most", "told"), [
    (12, None, ""), (500, 0, ""), (500, 100, ""),
    (500, None, " With 1 at a time that takes some 23 minutes; --max-parallel 20 is faster."),
    (5000, 20, " With 20 at a time that takes some 11 minutes."),
])
def test_a_demo_that_takes_long_says_so_before(nodes: int, most: int | None, told: str) -> None:
    assert how_long(Options(sample_policy(), nodes, max_parallel=most), 20.0) == told


def test_a_timeout_of_no_wait_is_refused() -> None:
    done = CliRunner().invoke(commands, ["status", "--timeout", "10m"], prog_name="gpuward")
    assert (done.exit_code, "--timeout is for --wait: add --wait, or leave it out" in done.output) == (2, True)
