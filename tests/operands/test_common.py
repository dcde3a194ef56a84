"""Who wins when the policy and the operand set the same thing, operand by operand."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.shapes import EnvVar
from gpuward.operands import common
from gpuward.operands.objects import Json, env, field_env
from tests.operands.build import container, facts, names, pod
from tests.operands.build import env as values_of

OPERANDS = {
    "devicePlugin": ("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
    "toolkit": ("nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr"),
    "gfd": ("gpu-feature-discovery", "gpu-feature-discovery"),
    "migManager": ("nvidia-mig-manager", "nvidia-mig-manager"),
    "dcgmExporter": ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter"),
    "dcgm": ("nvidia-dcgm", "nvidia-dcgm-ctr"),
    "driver": ("nvidia-driver-daemonset", "nvidia-driver-ctr"),
    "validator": ("nvidia-operator-validator", "nvidia-operator-validator"),
    "nodeStatusExporter": ("nvidia-node-status-exporter", "nvidia-node-status-exporter"),
}
ON = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}


def main(section: str, changes: dict[str, Any], more: dict[str, Any] | None = None) -> tuple[Json, Json]:
    daemon_set, name = OPERANDS[section]
    spec = {**ON, **(more or {})}
    rendered = pod(daemon_set, {**spec, section: {**spec.get(section, {}), **changes}})
    return rendered, container(rendered, name)


@pytest.mark.parametrize(("section", "variable", "winner"), [
    ("devicePlugin", "MIG_STRATEGY", "policy"),
    ("devicePlugin", "DEVICE_LIST_STRATEGY", "policy"),
    ("migManager", "CDI_ENABLED", "policy"),
    ("dcgmExporter", "DCGM_REMOTE_HOSTENGINE_INFO", "policy"),
    ("driver", "KERNEL_MODULE_TYPE", "policy"),
    ("toolkit", "CDI_ENABLED", "policy"),
    ("toolkit", "RUNTIME", "operand"),
    ("toolkit", "CONTAINERD_RUNTIME_CLASS", "operand"),
    ("gfd", "MIG_STRATEGY", "operand"),
    ("gfd", "GFD_SLEEP_INTERVAL", "policy"),
])
def test_who_wins_a_variable(section: str, variable: str, winner: str) -> None:
    _, plain = main(section, {})
    _, changed = main(section, {"env": [{"name": variable, "value": "mine"}]})
    assert values_of(changed)[variable] == ("mine" if winner == "policy" else values_of(plain)[variable])
    assert names(changed["env"]).count(variable) == 1
    if winner == "policy":
        assert names(changed["env"]) == names(plain["env"]), "a variable keeps its place"


@pytest.mark.parametrize("section", [name for name in OPERANDS if name != "toolkit"])
def test_arguments_replace(section: str) -> None:
    _, changed = main(section, {"args": ["--a", "b"]})
    assert changed["args"] == ["--a", "b"]


def test_arguments_of_the_toolkit_have_no_effect() -> None:
    assert main("toolkit", {"args": ["--a"]}) == main("toolkit", {})


@pytest.mark.parametrize("section", OPERANDS)
def test_resources_go_to_every_container(section: str) -> None:
    rendered, _ = main(section, {"resources": {"limits": {"cpu": "1"}}})
    assert all(each["resources"] == {"limits": {"cpu": "1"}} for each in rendered["containers"])


@pytest.mark.parametrize("section", OPERANDS)
def test_settings_that_say_nothing_change_nothing(section: str) -> None:
    assert main(section, {"resources": {}}, {"daemonsets": {"podSecurityContext": {}}}) == main(section, {})


@pytest.mark.parametrize("section", OPERANDS)
def test_host_network_comes_with_the_clusters_dns(section: str) -> None:
    rendered, _ = main(section, {"hostNetwork": True})
    assert (rendered["hostNetwork"], rendered["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    rendered, _ = main(section, {"hostNetwork": False})
    assert not {"hostNetwork", "dnsPolicy"} & set(rendered)


@pytest.mark.parametrize("section", [name for name in OPERANDS if name not in ("driver", "validator", "nodeStatusExporter")])
def test_pull_secrets_of_the_validator_come_first_and_each_once(section: str) -> None:
    rendered, changed = main(section, {"imagePullSecrets": ["b", "own", "b"], "imagePullPolicy": "Always"},
                             {"validator": {"imagePullSecrets": ["a", "b"]}})
    assert rendered["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}, {"name": "own"}]
    assert changed["imagePullPolicy"] == "Always"


def test_a_variable_keeps_its_place_and_loses_its_source() -> None:
    made: Json = {"env": [env("A", "1"), field_env("B", "spec.nodeName"), env("C", "3")]}
    common.set_envs(made, [EnvVar(name="B", value="2"), EnvVar(name="D", value="4")])
    assert made["env"] == [env("A", "1"), env("B", "2"), env("C", "3"), env("D", "4")]


@pytest.mark.parametrize(("cdi", "runtime", "expected"), [
    ({"enabled": True}, "containerd", "nvidia"),
    ({"enabled": True}, "crio", "nvidia"),
    ({"enabled": False}, "containerd", "nvidia"),
    ({"enabled": False}, "docker", "nvidia"),
    ({"enabled": False}, "crio", None),
    ({"enabled": True, "nriPluginEnabled": True}, "containerd", None),
])
def test_runtime_class(cdi: dict[str, bool], runtime: str, expected: str | None) -> None:
    for daemon_set in ("nvidia-device-plugin-daemonset", "nvidia-operator-validator", "nvidia-mig-manager"):
        assert pod(daemon_set, {"cdi": cdi}, facts(runtime=runtime)).get("runtimeClassName") == expected
    assert "runtimeClassName" not in pod("nvidia-container-toolkit-daemonset", {"cdi": cdi}, facts(runtime=runtime))


def test_own_runtime_class() -> None:
    assert pod("gpu-feature-discovery", {"operator": {"runtimeClass": "gpu"}})["runtimeClassName"] == "gpu"


@pytest.mark.parametrize(("strategy", "expected"), [
    (None, {"NVIDIA_MIG_MONITOR_DEVICES": "all"}),
    ("none", {"MIG_STRATEGY": "none"}),
    ("mixed", {"MIG_STRATEGY": "mixed", "NVIDIA_MIG_MONITOR_DEVICES": "all"}),
])
def test_mig_strategy(strategy: Any, expected: dict[str, str]) -> None:
    made: Json = {}
    common.set_mig_strategy(made, strategy)
    assert values_of(made) == expected
