"""The flags and files of the control plane's programs."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
import yaml
from tools.controlplane.programs import (
    NEWEST,
    PACKAGES,
    RELEASES,
    USERS,
    Delays,
    Place,
    command_lines,
    free_ports,
    write_files,
)

from gpuward.model.kubernetes import OLDEST_NAME

STAGES = Path(__file__).parents[2] / "tools" / "controlplane" / "stages.yaml"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "bin", tmp_path / "run", free_ports())


def test_every_program_has_a_command_line(place: Place) -> None:
    lines = command_lines(place)
    assert list(lines) == list(PACKAGES)
    assert all(line[0] == str(place.bin / name) for name, line in lines.items())


def test_the_oldest_release_that_is_tried_is_the_oldest_that_is_supported() -> None:
    assert list(RELEASES)[-1] == OLDEST_NAME


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_built_from_a_module_with_one_version_of_kubernetes(release: str) -> None:
    folder = STAGES.parent if release == NEWEST else STAGES.parent / f"v{release}"
    module = (folder / "go.mod").read_text()
    assert f"k8s.io/kubernetes {RELEASES[release]}\n" in module
    staged = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (v\S+)$", module, re.MULTILINE))
    assert staged == {RELEASES[release].replace("v1.", "v0.")}


def test_only_a_control_plane_for_real_nodes_leaves_kwok_out_and_reaches_nodes_through_a_proxy(place: Place) -> None:
    real = Place(place.bin, place.run, place.ports, ("node-1", "node-2"))
    assert set(command_lines(place)) - set(command_lines(real)) == {"kwok"}
    egress = f"--egress-selector-config-file={place.run / 'egress.json'}"
    assert [egress in command_lines(each)["kube-apiserver"] for each in (place, real)] == [False, True]
    write_files(real, STAGES, Delays())
    rows = [line.split(",") for line in (place.run / "tokens.csv").read_text().splitlines()]
    assert [row[1] for row in rows if row[3] == '"system:nodes"'] == ["system:node:node-1", "system:node:node-2"]
    assert str(real.egress) in (place.run / "egress.json").read_text()


def test_controllers_are_patient_with_more_nodes_than_two_cores_carry(place: Place) -> None:
    usual, patient = (command_lines(place, nodes)["kube-controller-manager"] for nodes in (500, 501))
    assert set(patient) - set(usual) == {"--node-monitor-grace-period=600s",
                                         "--feature-gates=StaleControllerConsistencyDaemonSet=false"}


def test_an_older_release_is_given_no_gate_that_it_does_not_know(place: Place) -> None:
    def gates(release: str) -> list[str]:
        older = Place(place.bin, place.run, place.ports, release=release)
        return [flag for line in command_lines(older, 501).values() for flag in line if flag.startswith("--feature-gates=")]

    assert {release: gates(release) for release in RELEASES} == {
        "1.36": ["--feature-gates=StaleControllerConsistencyDaemonSet=false"], "1.32": [],
        "1.29": ["--feature-gates=ServiceAccountTokenJTI=true"]}


def test_nothing_listens_beyond_the_loopback_interface(place: Place) -> None:
    flags = [flag for line in command_lines(place).values() for flag in line]
    addresses = [flag for flag in flags if re.match(r"--[a-z-]*(listen|bind|advertise)", flag)]
    assert len(addresses) == 6
    assert all("127.0.0.1" in flag for flag in addresses)


def test_ports_differ_and_no_client_is_given_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        given_out = client.getsockname()[1]
    ports = free_ports()
    assert len({ports.api, ports.etcd, ports.etcd_peers}) == 3
    first = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    assert max(ports.api, ports.etcd, ports.etcd_peers) < int(first) <= given_out


def test_the_delays_are_those_asked_for(place: Place) -> None:
    write_files(place, STAGES, Delays(20, 5.5))
    stages = {stage["metadata"]["name"]: stage for stage in yaml.safe_load_all((place.run / "stages.yaml").read_text())}
    choice = stages["pod-ready"]["spec"]["delay"]["durationFrom"]["expressionFrom"]
    assert '{"nvidia-driver-daemonset": "20s", "nvidia-operator-validator": "5.5s"}' in choice
    assert set(stages) == {"node-initialize", "node-heartbeat", "pod-ready", "pod-ready-again", "pod-complete", "pod-delete"}


def test_every_user_has_a_context_and_a_token_that_nobody_else_can_read(place: Place) -> None:
    write_files(place, STAGES, Delays())
    config = json.loads(place.kubeconfig.read_text())
    assert config["current-context"] == "admin"
    assert [context["name"] for context in config["contexts"]] == list(USERS)
    assert len({user["user"]["token"] for user in config["users"]}) == len(USERS)
    assert place.run.stat().st_mode & 0o077 == 0


def test_only_the_operator_is_bound_by_rules(place: Place) -> None:
    write_files(place, STAGES, Delays())
    rows = (place.run / "tokens.csv").read_text().splitlines()
    assert [row.split(",")[2] for row in rows if "system:masters" not in row] == ["gpuward"]
