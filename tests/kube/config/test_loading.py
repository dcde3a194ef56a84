"""Finding the API server: which source counts, and one clear line for each way to get it wrong."""

from __future__ import annotations

import asyncio
import pwd
from pathlib import Path

import pytest
from aiohttp import web

from gpuward.errors import KubeconfigError
from gpuward.kube.config.loading import find_access, in_cluster
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client
from tests.kube.kubeconfigs import CA_DATA, authorization, kubeconfig, write
from tests.kube.serving import DATA, answer, server_tls, serving


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


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="set KUBECONFIG or give --kubeconfig"):
        find_access(environ={"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match=r"gone: cannot be read: No such file or directory"):
        find_access(str(tmp_path / "gone"), environ={})
    with pytest.raises(KubeconfigError, match="KUBECONFIG must name an existing kubeconfig"):
        find_access(environ={"KUBECONFIG": str(tmp_path / "gone")})
    with pytest.raises(KubeconfigError, match="Is a directory"):
        find_access(str(tmp_path), environ={})


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def getpwuid(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    monkeypatch.delenv("HOME")
    account = service_account(tmp_path / "account")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert find_access(environ=environ, service_account=account).server == "https://10.0.0.1:443"
    with pytest.raises(KubeconfigError, match=r"~/\.kube/config does not exist"):
        find_access(environ={})


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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_kubeconfig_reaches_a_real_server(tmp_path: Path, host: str) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return answer({"gitVersion": "v1.33.0", "major": "1", "minor": "33"})

    async def run() -> str:
        async with serving(handler, server_tls(), host) as url:
            cluster = {"server": url + "/", "certificate-authority-data": CA_DATA, "tls-server-name": "kubernetes.test"}
            access = find_access(str(write(tmp_path / "c", kubeconfig({"token": "abc"}, cluster))), environ={})
            client = Client(AiohttpTransport(access))
            try:
                return (await client.server_version()).git_version
            finally:
                await client.close()

    assert asyncio.run(run()) == "v1.33.0"
    assert seen == ["Bearer abc"]
