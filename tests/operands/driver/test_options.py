"""Options of the driver pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operands.build import container, env, facts, names, pod, states

DAEMON_SET, CONTAINER = "nvidia-driver-daemonset", "nvidia-driver-ctr"


def driver(spec: dict[str, Any], **cluster: Any) -> Any:
    rendered = pod(DAEMON_SET, {"driver": spec}, facts(**cluster))
    return rendered, container(rendered, CONTAINER)


@pytest.mark.parametrize(("probe", "expected"), [
    (None, (60, 10, 60, 1, 120)),
    ({"initialDelaySeconds": 7}, (7, 10, 60, 1, 120)),
    ({"initialDelaySeconds": 0, "periodSeconds": 8, "timeoutSeconds": 9, "successThreshold": 1, "failureThreshold": 10},
     (60, 8, 9, 1, 10)),
])
def test_startup_probe_is_merged(probe: dict[str, int] | None, expected: tuple[int, ...]) -> None:
    _, made = driver({"startupProbe": probe})
    merged = made["startupProbe"]
    order = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold")
    assert tuple(merged[name] for name in order) == expected
    assert merged["exec"]["command"] == ["sh", "/usr/local/bin/startup-probe.sh"]


@pytest.mark.parametrize(("os_tag", "repositories", "certificates"), [
    ("ubuntu24.04", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
    ("debian12", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
    ("rocky9", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
    ("sl-micro6.0", "/etc/zypp/repos.d", "/etc/pki/trust/anchors"),
])
def test_packages_go_where_the_system_looks(os_tag: str, repositories: str, certificates: str) -> None:
    spec = {"repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"}}
    rendered, made = driver(spec, os_tag=os_tag, config_maps={"repos": ("b", "a"), "certs": ("ca.crt",)})
    mounts = [(m["name"], m["mountPath"], m["subPath"]) for m in made["volumeMounts"] if m["name"] in ("repos", "certs")]
    assert mounts == [
        ("repos", f"{repositories}/a", "a"), ("repos", f"{repositories}/b", "b"), ("certs", f"{certificates}/ca.crt", "ca.crt"),
    ]
    assert [v for v in names(rendered["volumes"]) if v in ("repos", "certs")] == ["repos", "certs"]


def test_packages_of_an_unknown_system_are_refused() -> None:
    cluster = facts(os_tag="talos1.9", config_maps={"repos": ()})
    error = states({"driver": {"repoConfig": {"configMapName": "repos"}}}, cluster)["state-driver"].error
    assert error is not None
    assert (error.field, error.value) == ("spec.driver.repoConfig", "repos")
    assert "talos" in error.fix


@pytest.mark.parametrize(("os_tag", "runtime", "spec", "paths"), [
    ("rhel9", "containerd", {}, ["/run/secrets/etc-pki-entitlement", "/run/secrets/redhat.repo", "/run/secrets/rhsm"]),
    ("rhel9", "crio", {}, []),
    ("rhel9", "containerd", {"repoConfig": {"configMapName": "repos"}}, []),
    ("sles15.5", "crio", {}, ["/etc/SUSEConnect", "/etc/zypp/credentials.d"]),
    ("sl-micro6.0", "containerd", {"repoConfig": {"configMapName": "repos"}}, ["/etc/SUSEConnect", "/etc/zypp/credentials.d"]),
    ("ubuntu22.04", "containerd", {}, []),
])
def test_subscriptions(os_tag: str, runtime: str, spec: dict[str, Any], paths: list[str]) -> None:
    _, made = driver(spec, os_tag=os_tag, runtime=runtime, config_maps={"repos": ()})
    assert [m["mountPath"] for m in made["volumeMounts"] if m["name"].startswith("subscription-config-")] == paths


@pytest.mark.parametrize(("licensing", "source", "keys"), [
    ({"secretName": "s", "configMapName": "c"}, "secret", ["gridd.conf"]),
    ({"secretName": "s", "nlsEnabled": True}, "secret", ["gridd.conf", "client_configuration_token.tok"]),
    ({"secretName": "", "configMapName": "c", "nlsEnabled": False}, "configMap", ["gridd.conf"]),
])
def test_licence(licensing: dict[str, Any], source: str, keys: list[str]) -> None:
    rendered, made = driver({"licensingConfig": {"nlsEnabled": None, **licensing}}, secrets=frozenset("s"), config_maps={"c": ()})
    volume = next(v for v in rendered["volumes"] if v["name"] == "licensing-config")
    assert [item["key"] for item in volume[source]["items"]] == keys
    assert [m["subPath"] for m in made["volumeMounts"] if m["name"] == "licensing-config"] == keys


def test_module_parameters_also_reach_the_container_that_loads_peermem() -> None:
    spec = {"kernelModuleConfig": {"name": "modules"}, "rdma": {"enabled": True}}
    rendered, made = driver(spec, config_maps={"modules": ("nvidia.conf", "nvidia-uvm.conf")})
    for each in (made, container(rendered, "nvidia-peermem-ctr")):
        assert [m["mountPath"] for m in each["volumeMounts"] if m["name"] == "modules"] == [
            "/drivers/nvidia-uvm.conf", "/drivers/nvidia.conf",
        ]


def test_one_config_map_for_two_purposes_is_one_volume() -> None:
    spec = {"repoConfig": {"configMapName": "host.files"}, "certConfig": {"name": "host.files"}}
    rendered, made = driver(spec, config_maps={"host.files": ("a",)})
    assert names(rendered["volumes"]).count("host-files") == 1
    assert [m["mountPath"] for m in made["volumeMounts"] if m["name"] == "host-files"] == [
        "/etc/apt/sources.list.d/a", "/usr/local/share/ca-certificates/a",
    ]


def test_a_config_map_called_as_a_volume_of_the_pod_is_refused() -> None:
    cluster = facts(config_maps={"var-log": ("a",)})
    error = states({"driver": {"certConfig": {"name": "var-log"}}}, cluster)["state-driver"].error
    assert error is not None
    assert (error.field, error.value) == ("spec.driver.certConfig.name", "var-log")


def test_the_secret_is_the_environment_of_driver_and_module_builders() -> None:
    rendered = pod(DAEMON_SET, {"driver": {"secretEnv": "env"}, "gds": {"enabled": True}, "gdrcopy": {"enabled": True}},
                   facts(secrets=frozenset({"env"})))
    assert names(rendered["containers"]) == [CONTAINER, "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"]
    assert all(each["envFrom"] == [{"secretRef": {"name": "env"}}] for each in rendered["containers"])


def test_host_mofed_only_counts_with_rdma() -> None:
    rendered, made = driver({"rdma": {"enabled": False, "useHostMofed": True}})
    assert "USE_HOST_MOFED" not in env(made)
    assert names(rendered["containers"]) == [CONTAINER]
