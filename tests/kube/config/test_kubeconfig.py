"""Reading kubeconfig files: how they merge, what a context means, and one clear line for each way to get it wrong."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.errors import KubeconfigError
from gpuward.kube.config.loading import find_access
from gpuward.kube.config.plugin import PluginCredentials
from tests.kube.kubeconfigs import CA_DATA, authorization, kubeconfig, write
from tests.kube.serving import DATA


def test_files_in_kubeconfig_merge_and_the_first_counts(tmp_path: Path) -> None:
    first = kubeconfig({"token": "first"}, name="a")
    first["current-context"] = ""
    second = kubeconfig({"token": "second"}, name="a")
    second["contexts"].append({"name": "b", "context": {"cluster": "a", "user": "a", "namespace": "gpu-operator"}})
    second["current-context"] = "b"
    write(tmp_path / "one", first)
    write(tmp_path / "two", second)
    paths = [str(tmp_path / name) for name in ("missing", "one", "two")]
    access = find_access(environ={"KUBECONFIG": os.pathsep.join(paths)})
    assert access.namespace == "gpu-operator"
    assert authorization(access) == "Bearer first"
    assert access.origin == f"{tmp_path / 'two'}: context 'b'"
    assert find_access(context="a", environ={"KUBECONFIG": os.pathsep.join(paths)}).namespace == "default"


def test_paths_are_relative_to_their_file_and_data_counts_more(tmp_path: Path) -> None:
    write(tmp_path / "conf" / "pki" / "token", "from-file\n")
    write(tmp_path / "conf" / "pki" / "ca.pem", (DATA / "ca.pem").read_text())
    config = kubeconfig(
        {"tokenFile": "pki/token"}, {"certificate-authority": "pki/ca.pem", "tls-server-name": "kubernetes.test"}
    )
    access = find_access(str(write(tmp_path / "conf" / "config", config)), environ={})
    assert authorization(access) == "Bearer from-file"
    assert access.trust.read_authority() == (DATA / "ca.pem").read_bytes()
    assert access.trust.server_name == "kubernetes.test"
    config["clusters"][0]["cluster"] |= {"certificate-authority": "missing", "certificate-authority-data": CA_DATA}
    access = find_access(str(write(tmp_path / "conf" / "config", config)), environ={})
    assert access.trust.read_authority() == (DATA / "ca.pem").read_bytes()


@pytest.mark.parametrize(("user", "expected"), [
    ({"token": "abc"}, "Bearer abc"),
    ({"username": "u", "password": "p"}, "Basic dTpw"),
    ({"token": None, "username": None}, ""),
    ({}, ""),
])
def test_how_a_user_is_authorized(tmp_path: Path, user: dict[str, Any], expected: str) -> None:
    assert authorization(find_access(str(write(tmp_path / "c", kubeconfig(user))), environ={})) == expected


def test_a_client_certificate_is_taken_from_data_or_files(tmp_path: Path) -> None:
    chain, key = (DATA / "client.pem").read_bytes(), (DATA / "client.key").read_bytes()
    user = {
        "client-certificate-data": base64.b64encode(chain).decode(),
        "client-key": str(DATA / "client.key"),
    }
    access = find_access(str(write(tmp_path / "c", kubeconfig(user))), environ={})
    assert asyncio.run(access.credentials.current()).certificate == (chain, key)


BROKEN: list[tuple[str, Any, str]] = [
    ("bad YAML", "a: [1,\nb: }", r"config: not valid YAML in line 2 \(.*\): correct it"),
    ("not a mapping", "- 1\n", r"config: not a kubeconfig: Expected `object`, got `array`: name another file"),
    ("wrong type", {"clusters": "x"}, r"config: not a kubeconfig: Expected `array`, got `str` - at `\$\.clusters`: correct that"),
    ("binary", "\x00\x01", r"config: not valid YAML"),
    ("within itself", "a: &a [*a]", r"config: not a kubeconfig: it is within itself: correct it"),
    ("nested", "[" * 5000, r"config: not a kubeconfig: it is nested too deeply: correct it"),
    ("empty", "", r"config: current-context is not set: run `kubectl config use-context"),
    ("no context", {"current-context": "x", "contexts": [{"name": "a", "context": {}}]},
     r"config: context 'x' does not exist: use one of: a$"),
    ("no cluster", kubeconfig() | {"clusters": []}, r"context 'main': cluster 'main' does not exist: use one of: none"),
    ("no user", kubeconfig() | {"users": None}, r"context 'main': user 'main' does not exist: use one of: none"),
    ("no server", kubeconfig(cluster={"server": ""}), r"cluster 'main': server '' is not the URL of an API server"),
    ("a space", kubeconfig(cluster={"server": "https://a b"}), r"server 'https://a b' is not the URL"),
    ("no scheme", kubeconfig(cluster={"server": "host:6443"}), r"server 'host:6443' is not the URL"),
    ("bad port", kubeconfig(cluster={"server": "https://h:port"}), r"server 'https://h:port' is not a URL"),
    ("socks proxy", kubeconfig(cluster={"proxy-url": "socks5://p:1080"}),
     r"cluster 'main': proxy-url: proxies of the kind 'socks5' are not supported: name an HTTP proxy, such as http://"),
    ("no proxy", kubeconfig(cluster={"proxy-url": "proxy:3128"}), r"proxies of the kind 'proxy' are not supported"),
    ("proxy's port", kubeconfig(cluster={"proxy-url": "http://u:secret@p:x"}), r"cluster 'main': proxy-url: not a URL: name"),
    ("proxy's host", kubeconfig(cluster={"proxy-url": "http://"}), r"cluster 'main': proxy-url: no host in it: name"),
    ("bad base64", kubeconfig(cluster={"certificate-authority-data": "!!"}),
     r"cluster 'main': certificate-authority-data: not valid base64"),
    ("bad authority", kubeconfig(cluster={"certificate-authority-data": "YWJj"}),
     r"cluster 'main': certificate-authority-data: no PEM certificate in it .* give the CA in PEM"),
    ("no authority", kubeconfig(cluster={"certificate-authority": "gone.pem"}),
     r"cluster 'main': certificate-authority: cannot read /.*gone.pem: No such file or directory"),
    ("half a certificate", kubeconfig({"client-certificate-data": "YWJj"}), r"user 'main': client-key is missing"),
    ("auth-provider", kubeconfig({"auth-provider": {"name": "gcp"}}), r"user 'main': auth-provider was removed"),
    ("nobody to impersonate", kubeconfig({"as-groups": ["admins"]}), r"user 'main': as is missing: as-uid, as-groups and"),
    ("two lines", kubeconfig({"as": "a", "as-groups": ["a\nb"]}), r"user 'main': 'a\\nb' cannot be sent as Impersonate-Group"),
    ("plugin version", kubeconfig({"exec": {"command": "x", "apiVersion": "v0"}}),
     r"user 'main': exec: apiVersion 'v0' is not supported: use client.authentication.k8s.io/v1 or"),
    ("plugin command", kubeconfig({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
     r"user 'main': exec: command is missing"),
    ("interactive", kubeconfig({"exec": {
        "command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}}),
     r"exec: interactiveMode Always needs a terminal"),
]


def test_whom_a_user_acts_as_is_told_in_client_gos_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-uid": "42", "as-groups": ["devs", "ops"],
            "as-user-extra": {"example.com/scope": ["view", "list"], "reason": []}}
    assert find_access(str(write(tmp_path / "c", kubeconfig(user))), environ={}).impersonation == (
        ("Impersonate-User", "jane"), ("Impersonate-Uid", "42"), ("Impersonate-Group", "devs"), ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fscope", "view"), ("Impersonate-Extra-example.com%2Fscope", "list"),
    )
    assert find_access(str(write(tmp_path / "c", kubeconfig({"as": "jane"}))), environ={}).impersonation == (
        ("Impersonate-User", "jane"),)
    assert find_access(str(write(tmp_path / "c", kubeconfig())), environ={}).impersonation == ()


@pytest.mark.parametrize(("content", "told"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_kubeconfig_is_told_in_one_line(tmp_path: Path, content: object, told: str) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(KubeconfigError, match=told) as caught:
        find_access(str(path), environ={})
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message


def test_a_plugin_is_told_what_the_kubeconfig_says(tmp_path: Path) -> None:
    script = write(tmp_path / "bin" / "login", PRINT_ENVIRONMENT)
    script.chmod(0o755)
    user = {"exec": {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "./bin/login", "args": ["--cluster", "c1"],
        "env": [{"name": "REGION", "value": "west"}], "provideClusterInfo": True, "interactiveMode": "Never",
    }}
    cluster = {"certificate-authority-data": CA_DATA, "proxy-url": "http://p:3128", "extensions": [
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]}
    access = find_access(str(write(tmp_path / "c", kubeconfig(user, cluster))), environ={})
    assert isinstance(access.credentials, PluginCredentials)
    told = yaml.safe_load(base64.b64decode(authorization(access).removeprefix("Bearer ")))
    assert told["args"] == ["--cluster", "c1"]
    assert told["region"] == "west"
    assert told["info"] == {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {
            "server": "https://main:6443", "certificate-authority-data": CA_DATA, "config": {"audience": "x"},
            "proxy-url": "http://p:3128"}},
    }


PRINT_ENVIRONMENT = f"""#!{sys.executable}
import base64, json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = dict(args=sys.argv[1:], region=os.environ["REGION"], info=info)
token = base64.b64encode(json.dumps(told).encode()).decode()
print(json.dumps(dict(apiVersion=info["apiVersion"], kind="ExecCredential", status=dict(token=token))))
"""
