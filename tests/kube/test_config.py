"""Finding the API server: which source counts, and one clear line for each way to get it wrong."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from gpuward.errors import KubeconfigError
from gpuward.kube.access import Access
from gpuward.kube.aio import AiohttpTransport
from gpuward.kube.client import Client
from gpuward.kube.config import find_access, in_cluster
from gpuward.kube.plugin import PluginCredentials
from tests.kube.serving import DATA, answer, server_tls, serving

CA_DATA = base64.b64encode((DATA / "ca.pem").read_bytes()).decode()


def kubeconfig(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, *, name: str = "main"
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user if user is not None else {"token": "t"}}],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def authorization(access: Access) -> str:
    return asyncio.run(access.credentials.current()).authorization


def test_the_order_of_sources(tmp_path: Path) -> None:
    account = service_account(tmp_path / "account")
    flag = write(tmp_path / "flag", kubeconfig(name="flag"))
    env = write(tmp_path / "env", kubeconfig(name="env"))
    write(tmp_path / ".kube" / "config", kubeconfig(name="home"))
    environ = {
        "HOME": str(tmp_path), "KUBECONFIG": str(env),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443",
    }

    def server(kubeconfig: str | None = None) -> str:
        return find_access(kubeconfig, environ=environ, service_account=account).server

    assert server(str(flag)) == "https://flag:6443"
    assert server() == "https://env:6443"
    del environ["KUBECONFIG"]
    assert server() == "https://10.0.0.1:443"
    del environ["KUBERNETES_SERVICE_HOST"]
    assert server() == "https://home:6443"


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
    ("not a mapping", "- 1\n", r"config: not a kubeconfig: Expected `object`, got `array`"),
    ("wrong type", {"clusters": "x"}, r"config: not a kubeconfig: Expected `array`, got `str` - at `\$\.clusters`"),
    ("binary", "\x00\x01", r"config: not valid YAML"),
    ("empty", "", r"config: current-context is not set: run `kubectl config use-context"),
    ("no context", {"current-context": "x", "contexts": [{"name": "a", "context": {}}]},
     r"config: context 'x' does not exist: use one of: a$"),
    ("no cluster", kubeconfig() | {"clusters": []}, r"context 'main': cluster 'main' does not exist: use one of: none"),
    ("no user", kubeconfig() | {"users": None}, r"context 'main': user 'main' does not exist: use one of: none"),
    ("no server", kubeconfig(cluster={"server": ""}), r"cluster 'main': server '' is not the URL of an API server"),
    ("no scheme", kubeconfig(cluster={"server": "host:6443"}), r"server 'host:6443' is not the URL"),
    ("bad port", kubeconfig(cluster={"server": "https://h:port"}), r"server 'https://h:port' is not a URL"),
    ("proxy", kubeconfig(cluster={"proxy-url": "http://p"}), r"cluster 'main': proxy-url is not supported"),
    ("bad base64", kubeconfig(cluster={"certificate-authority-data": "!!"}),
     r"cluster 'main': certificate-authority-data: not valid base64"),
    ("bad authority", kubeconfig(cluster={"certificate-authority-data": "YWJj"}),
     r"cluster 'main': certificate-authority-data: no PEM certificate in it .* give the CA in PEM"),
    ("no authority", kubeconfig(cluster={"certificate-authority": "gone.pem"}),
     r"cluster 'main': certificate-authority: cannot read /.*gone.pem: No such file or directory"),
    ("half a certificate", kubeconfig({"client-certificate-data": "YWJj"}), r"user 'main': client-key is missing"),
    ("auth-provider", kubeconfig({"auth-provider": {"name": "gcp"}}), r"user 'main': auth-provider was removed"),
    ("impersonation", kubeconfig({"as": "root"}), r"user 'main': impersonation .* is not supported"),
    ("plugin version", kubeconfig({"exec": {"command": "x", "apiVersion": "v0"}}),
     r"user 'main': exec: apiVersion 'v0' is not supported: use client.authentication.k8s.io/v1 or"),
    ("plugin command", kubeconfig({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
     r"user 'main': exec: command is missing"),
    ("interactive", kubeconfig({"exec": {
        "command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}}),
     r"exec: interactiveMode Always needs a terminal"),
]


@pytest.mark.parametrize(("content", "told"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_kubeconfig_is_told_in_one_line(tmp_path: Path, content: object, told: str) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(KubeconfigError, match=told) as caught:
        find_access(str(path), environ={})
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="set KUBECONFIG or give --kubeconfig"):
        find_access(environ={"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match=r"gone: cannot be read: No such file or directory"):
        find_access(str(tmp_path / "gone"), environ={})
    with pytest.raises(KubeconfigError, match="KUBECONFIG must name an existing kubeconfig"):
        find_access(environ={"KUBECONFIG": str(tmp_path / "gone")})
    with pytest.raises(KubeconfigError, match="Is a directory"):
        find_access(str(tmp_path), environ={})


def service_account(folder: Path, token: str = "pod-token") -> Path:
    write(folder / "token", token)
    write(folder / "ca.crt", (DATA / "ca.pem").read_text())
    write(folder / "namespace", "gpu-operator\n")
    return folder


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    folder = service_account(tmp_path / "account")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, folder)
    assert access.server == "https://[fd00::1]:6443"
    assert access.namespace == "gpu-operator"
    assert authorization(access) == "Bearer pod-token"
    write(folder / "token", "rotated-token")
    assert authorization(access) == "Bearer rotated-token"


@pytest.mark.parametrize(("missing", "told"), [("token", "service account token: cannot read"), ("ca.crt", "ca.crt")])
def test_a_pod_without_its_service_account(tmp_path: Path, missing: str, told: str) -> None:
    folder = service_account(tmp_path / "account")
    (folder / missing).unlink()
    with pytest.raises(KubeconfigError, match=told):
        find_access(environ={"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "h"}, service_account=folder)
    with pytest.raises(KubeconfigError, match="this is not a pod"):
        in_cluster({}, folder)


def test_a_kubeconfig_reaches_a_real_server(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return answer({"gitVersion": "v1.33.0", "major": "1", "minor": "33"})

    async def run() -> str:
        async with serving(handler, server_tls()) as url:
            cluster = {"server": url + "/", "certificate-authority-data": CA_DATA, "tls-server-name": "kubernetes.test"}
            access = find_access(str(write(tmp_path / "c", kubeconfig({"token": "abc"}, cluster))), environ={})
            client = Client(AiohttpTransport(access))
            try:
                return (await client.server_version()).git_version
            finally:
                await client.close()

    assert asyncio.run(run()) == "v1.33.0"
    assert seen == ["Bearer abc"]


def test_a_plugin_is_told_what_the_kubeconfig_says(tmp_path: Path) -> None:
    script = write(tmp_path / "bin" / "login", PRINT_ENVIRONMENT)
    script.chmod(0o755)
    user = {"exec": {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "./bin/login", "args": ["--cluster", "c1"],
        "env": [{"name": "REGION", "value": "west"}], "provideClusterInfo": True, "interactiveMode": "Never",
    }}
    cluster = {"certificate-authority-data": CA_DATA, "extensions": [
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
            "server": "https://main:6443", "certificate-authority-data": CA_DATA, "config": {"audience": "x"}}},
    }


PRINT_ENVIRONMENT = f"""#!{sys.executable}
import base64, json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = dict(args=sys.argv[1:], region=os.environ["REGION"], info=info)
token = base64.b64encode(json.dumps(told).encode()).decode()
print(json.dumps(dict(apiVersion=info["apiVersion"], kind="ExecCredential", status=dict(token=token))))
"""
