"""The container runtime's files as the toolkit sees them."""

from __future__ import annotations

import pytest

from tests.operands.build import container, env, facts, pod

DAEMON_SET, CONTAINER = "nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr"


def mounted(variables: dict[str, str], runtime: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the container's variables, and the host's directory behind each directory of the container."""
    listed = [{"name": name, "value": value} for name, value in variables.items()]
    rendered = pod(DAEMON_SET, {"toolkit": {"env": listed}}, facts(runtime=runtime))
    made = container(rendered, CONTAINER)
    paths = {volume["name"]: volume.get("hostPath", {}).get("path", "") for volume in rendered["volumes"]}
    return env(made), {mount["mountPath"]: paths[mount["name"]] for mount in made["volumeMounts"]}


@pytest.mark.parametrize(("runtime", "given", "variables", "directories"), [
    ("containerd", {}, {
        "RUNTIME_CONFIG": "/runtime/config-dir/config.toml", "CONTAINERD_CONFIG": "/runtime/config-dir/config.toml",
        "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.toml",
        "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/containerd/conf.d/99-nvidia.toml",
        "RUNTIME_SOCKET": "/runtime/sock-dir/containerd.sock", "CONTAINERD_SOCKET": "/runtime/sock-dir/containerd.sock",
        "CONTAINERD_RUNTIME_CLASS": "nvidia",
    }, {"/runtime/config-dir/": "/etc/containerd", "/runtime/config-dir.d/": "/etc/containerd/conf.d",
        "/runtime/sock-dir/": "/run/containerd"}),
    ("containerd", {
        "CONTAINERD_CONFIG": "/var/lib/rancher/k3s/config.toml.tmpl", "RUNTIME_CONFIG": "/ignored/config.toml",
        "CONTAINERD_SOCKET": "/run/k3s/k3s.sock", "RUNTIME_DROP_IN_CONFIG": "/etc/k3s/d/gpu.toml",
    }, {
        "RUNTIME_CONFIG": "/runtime/config-dir/config.toml.tmpl", "CONTAINERD_CONFIG": "/runtime/config-dir/config.toml.tmpl",
        "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/gpu.toml", "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/k3s/d/gpu.toml",
        "CONTAINERD_SOCKET": "/runtime/sock-dir/k3s.sock",
    }, {"/runtime/config-dir/": "/var/lib/rancher/k3s", "/runtime/config-dir.d/": "/etc/k3s/d",
        "/runtime/sock-dir/": "/run/k3s"}),
    ("docker", {"RUNTIME_CONFIG": "/data/docker/daemon.json"}, {
        "DOCKER_CONFIG": "/runtime/config-dir/daemon.json", "DOCKER_SOCKET": "/runtime/sock-dir/docker.sock",
    }, {"/runtime/config-dir/": "/data/docker", "/runtime/sock-dir/": "/var/run"}),
    ("crio", {}, {
        "CRIO_CONFIG": "/runtime/config-dir/config.toml", "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.conf",
    }, {"/runtime/config-dir/": "/etc/crio", "/runtime/config-dir.d/": "/etc/crio/crio.conf.d"}),
])
def test_files_of_the_runtime(runtime: str, given: dict[str, str], variables: dict[str, str],
                              directories: dict[str, str]) -> None:
    seen, mounts = mounted(given, runtime)
    assert seen["RUNTIME"] == runtime
    assert variables.items() <= seen.items()
    assert {path: host for path, host in mounts.items() if path.startswith("/runtime/")} == directories


@pytest.mark.parametrize(("sources", "expected"), [
    ("command", "command"),
    ("file=/etc/x", "file=/host/etc/x"),
    ("command,file=/etc/x,file=/etc/y/../z", "command,file=/host/etc/x,file=/host/etc/z"),
    ("command, file=/etc/x", "command, file=/etc/x"),
])
def test_configuration_sources_are_found_under_the_hosts_root(sources: str, expected: str) -> None:
    assert mounted({"RUNTIME_CONFIG_SOURCE": sources}, "containerd")[0]["RUNTIME_CONFIG_SOURCE"] == expected


def test_nri_plugin_needs_only_its_socket() -> None:
    spec = {"cdi": {"nriPluginEnabled": True}, "toolkit": {"env": [{"name": "NRI_SOCKET", "value": "/run/my/nri.sock"}]}}
    rendered = pod(DAEMON_SET, spec)
    made = container(rendered, CONTAINER)
    assert env(made)["NRI_SOCKET"] == "/runtime/nri-sock-dir/nri.sock"
    assert "CONTAINERD_RUNTIME_CLASS" not in env(made)
    assert [mount["mountPath"] for mount in made["volumeMounts"] if mount["mountPath"].startswith("/runtime")] == [
        "/runtime/nri-sock-dir/",
    ]
    assert {"name": "nri-socket", "hostPath": {"path": "/run/my", "type": "DirectoryOrCreate"}} in rendered["volumes"]
