"""The device plugin, and the config manager that it shares with GPU feature discovery and the MPS daemon."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operands.build import container, env, names, pod, states

MAIN = {
    "nvidia-device-plugin-daemonset": ("nvidia-device-plugin", "nvidia-device-plugin"),
    "gpu-feature-discovery": ("gpu-feature-discovery", "gpu-feature-discovery"),
    "nvidia-device-plugin-mps-control-daemon": ("mps-control-daemon-ctr", "/usr/bin/mps-control-daemon"),
}
CONFIG = {"config": {"name": "plugins", "default": "any"}}


@pytest.mark.parametrize("daemon_set", MAIN)
def test_no_configuration_no_config_manager(daemon_set: str) -> None:
    rendered = pod(daemon_set, {"devicePlugin": {"config": {"name": "", "default": "any"}}})
    assert names(rendered["containers"]) == [MAIN[daemon_set][0]]
    assert "config-manager-init" not in names(rendered["initContainers"])
    assert "shareProcessNamespace" not in rendered


@pytest.mark.parametrize("daemon_set", MAIN)
def test_config_manager(daemon_set: str) -> None:
    main, process = MAIN[daemon_set]
    rendered = pod(daemon_set, {"devicePlugin": CONFIG})
    assert names(rendered["containers"]) == [main, "config-manager"]
    assert rendered["initContainers"][-1]["name"] == "config-manager-init"
    assert names(rendered["volumes"])[-2:] == ["plugins", "config"]
    assert env(container(rendered, main))["CONFIG_FILE"] == "/config/config.yaml"
    for name, oneshot, signalled in (("config-manager-init", "true", ""), ("config-manager", "false", process)):
        manager = container(rendered, name)
        values = env(manager)
        assert (values["DEFAULT_CONFIG"], values["FALLBACK_STRATEGIES"]) == ("any", "empty")
        assert (values["ONESHOT"], values["PROCESS_TO_SIGNAL"]) == (oneshot, signalled)
        assert manager["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
        assert {m["name"]: m["mountPath"] for m in manager["volumeMounts"]} == {
            "config": "/config", "plugins": "/available-configs",
        }
    # A pod in the host's process namespace already sees the process that is to be signalled.
    assert rendered.get("shareProcessNamespace", False) != rendered.get("hostPID", False)


@pytest.mark.parametrize(("name", "volume"), [
    ("plugins.v1", "plugins-v1"), ("p" * 63 + ".long", "p" * 63), ("p" * 62 + ".long", "p" * 62),
])
def test_volume_has_a_name_that_kubernetes_takes(name: str, volume: str) -> None:
    rendered = pod("nvidia-device-plugin-daemonset", {"devicePlugin": {"config": {"name": name}}})
    assert {"name": volume, "configMap": {"name": name}} in rendered["volumes"]
    assert volume in names(container(rendered, "config-manager")["volumeMounts"])


def test_a_config_map_called_as_the_managers_volume_is_refused() -> None:
    error = states({"devicePlugin": {"config": {"name": "config"}}})["state-device-plugin"].error
    assert error is not None
    assert (error.field, error.value) == ("spec.devicePlugin.config.name", "config")


@pytest.mark.parametrize(("daemon_set", "section"), [
    ("nvidia-device-plugin-daemonset", "devicePlugin"), ("gpu-feature-discovery", "gfd"),
    ("nvidia-device-plugin-mps-control-daemon", "devicePlugin"),
])
def test_config_manager_has_the_resources_of_its_operand(daemon_set: str, section: str) -> None:
    spec: dict[str, Any] = {"devicePlugin": CONFIG}
    spec[section] = {**spec.get(section, {}), "resources": {"requests": {"cpu": "10m"}}}
    rendered = pod(daemon_set, spec)
    for name in ("config-manager", "config-manager-init"):
        assert container(rendered, name)["resources"] == {"requests": {"cpu": "10m"}}


@pytest.mark.parametrize(("spec", "variables", "unset"), [
    ({}, {"DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri", "NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"},
     {"GDS_ENABLED", "GDRCOPY_ENABLED", "CONFIG_FILE"}),
    ({"cdi": {"enabled": False}}, {"DEVICE_LIST_STRATEGY": "envvar"}, {"CDI_ENABLED", "NVIDIA_CDI_HOOK_PATH"}),
    ({"toolkit": {"enabled": False}}, {"CDI_ENABLED": "true"}, {"NVIDIA_CDI_HOOK_PATH"}),
    ({"toolkit": {"installDir": ""}}, {"NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"}, set()),
    ({"toolkit": {"installDir": "/opt/n/"}}, {"NVIDIA_CDI_HOOK_PATH": "/opt/n/toolkit/nvidia-cdi-hook"}, set()),
    ({"gds": {"enabled": True}}, {"GDS_ENABLED": "true", "MOFED_ENABLED": "true"}, {"GDRCOPY_ENABLED"}),
])
def test_variables(spec: dict[str, Any], variables: dict[str, str], unset: set[str]) -> None:
    values = env(container(pod("nvidia-device-plugin-daemonset", spec), "nvidia-device-plugin"))
    assert variables.items() <= values.items()
    assert not unset & set(values)


def test_mps_root_is_shared_by_plugin_and_daemon() -> None:
    spec = {"devicePlugin": {"mps": {"root": "/data/mps/"}, "env": [{"name": "X", "value": "1"}], "args": ["--x"]}}
    plugin, daemon = (pod(name, spec) for name in ("nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon"))
    for rendered in (plugin, daemon):
        paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in rendered["volumes"]}
        assert (paths["mps-root"], paths["mps-shm"]) == ("/data/mps/", "/data/mps/shm")
    assert env(container(plugin, "nvidia-device-plugin"))["MPS_ROOT"] == "/data/mps/"
    main = container(daemon, "mps-control-daemon-ctr")
    assert "X" not in env(main), "the plugin's variables are not the daemon's"
    assert "args" not in main
    assert daemon["serviceAccountName"] == "nvidia-device-plugin"
