"""Proxies: which one counts for which server, as for Go, and that requests and watches go through a real one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpuward import errors
from gpuward.kube.config.files import InFile
from gpuward.kube.config.loading import find_access
from gpuward.kube.config.proxy import Proxy, environment_proxy, parse_proxy
from gpuward.kube.config.tls import Trust
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate
from gpuward.kube.lease.election_thread import ElectionThread
from tests.kube.forwarding import ForwardProxy, forwarding
from tests.kube.kubeconfigs import CA_DATA, kubeconfig, write
from tests.kube.serving import DATA, answer, connected, server_tls, serving, status

CA = InFile(DATA / "ca.pem", "certificate-authority")
BEHIND = "https://kubernetes.example:6443"
PROXY = Proxy("http://proxy:3128")


@pytest.mark.parametrize(("exempted", "server", "through"), [
    ("", BEHIND, True), ("*", BEHIND, False), ("other, *", BEHIND, False), (" , ", BEHIND, True),
    ("kubernetes.example", BEHIND, False), ("KUBERNETES.example", BEHIND, False), ("example", BEHIND, False),
    (".example", BEHIND, False), ("*.example", BEHIND, False), (".kubernetes.example", BEHIND, True),
    ("*.kubernetes.example", BEHIND, True), ("netes.example", BEHIND, True), ("a.kubernetes.example", BEHIND, True),
    ("kubernetes.example:6443", BEHIND, False), ("kubernetes.example:443", BEHIND, True), ("example:6443", BEHIND, False),
    ("kubernetes.example:443", "https://kubernetes.example", False), ("kubernetes.example:", BEHIND, False),
    (":6443", BEHIND, True), ("other,kubernetes.example", BEHIND, False),
    ("10.0.0.0/8", "https://10.96.0.1:443", False), ("10.9.9.9/8", "https://10.96.0.1", False),
    ("10.0.0.0/8", "https://11.0.0.1", True), ("10.0.0.0/99", "https://10.0.0.1", True),
    ("10.96.0.1", "https://10.96.0.1", False), ("10.96.0.1:443", "https://10.96.0.1", False),
    ("10.96.0.1:6443", "https://10.96.0.1", True), ("10.96.0.1", "https://[::ffff:10.96.0.1]", False),
    ("fd00::/8", "https://[fd00::1]", False), ("fd00::1", "https://[fd00:0::1]:6443", False),
    ("[fd00::1]:6443", "https://[fd00::1]:6443", False), ("[fd00::1]:443", "https://[fd00::1]:6443", True),
    ("[fd00::1]", "https://[fd00::1]", True), ("10.0.0.0/8", "https://[fd00::1]", True), ("0.1", "https://10.0.0.1", False),
    ("bücher.example", "https://xn--bcher-kva.example", False), ("xn--bcher-kva.example", "https://bücher.example", False),
    ("", "https://localhost:6443", False), ("", "https://127.0.0.1", False), ("", "https://127.9.9.9", False),
    ("", "https://[::1]:6443", False), ("", "https://localhost.example", True),
])
def test_which_servers_are_exempt(exempted: str, server: str, through: bool) -> None:
    assert environment_proxy(server, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": exempted}) == (PROXY if through else None)


@pytest.mark.parametrize(("environ", "server", "proxy"), [
    ({}, BEHIND, None), ({"HTTPS_PROXY": ""}, BEHIND, None), ({"ALL_PROXY": "http://proxy:3128"}, BEHIND, None),
    ({"HTTPS_PROXY": "proxy:3128"}, BEHIND, PROXY), ({"https_proxy": "http://proxy:3128"}, BEHIND, PROXY),
    ({"HTTPS_PROXY": "http://proxy:3128", "https_proxy": "http://other"}, BEHIND, PROXY),
    ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "example"}, BEHIND, None),
    ({"HTTP_PROXY": "http://proxy:3128"}, BEHIND, None), ({"HTTPS_PROXY": "http://proxy:3128"}, "http://a", None),
    ({"HTTP_PROXY": "http://proxy:3128"}, "http://a", PROXY),
    ({"HTTPS_PROXY": "https://proxy"}, BEHIND, Proxy("https://proxy:443")),
    ({"HTTPS_PROXY": "http://[fd00::9]"}, BEHIND, Proxy("http://[fd00::9]:80")),
    ({"HTTPS_PROXY": "http://me:p%40ss@proxy:3128/"}, BEHIND, Proxy("http://proxy:3128", "Basic bWU6cEBzcw==")),
    ({"HTTPS_PROXY": "socks5://proxy", "NO_PROXY": "*"}, BEHIND, None),
])
def test_which_variable_counts(environ: dict[str, str], server: str, proxy: Proxy | None) -> None:
    assert environment_proxy(server, environ) == proxy


@pytest.mark.parametrize("text", ["socks5://me:secret@proxy:1080", "http://me:secret@proxy:port", "http://me:secret@"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(text: str) -> None:
    with pytest.raises(errors.KubeconfigError, match=r"HTTPS_PROXY: .*name an HTTP proxy") as caught:
        environment_proxy(BEHIND, {"HTTPS_PROXY": text})
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    proxy = parse_proxy("http://me:secret@proxy", "x")
    assert proxy.authorization
    assert proxy.authorization not in repr(proxy)
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize("in_environment", [True, False])
def test_a_kubeconfigs_own_proxy_counts_more(tmp_path: Path, in_environment: bool) -> None:
    cluster = {} if in_environment else {"proxy-url": "http://own:8080"}
    file = write(tmp_path / "c", kubeconfig(cluster=cluster))
    environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "" if in_environment else "*"}
    assert find_access(str(file), environ=environ).proxy == (PROXY if in_environment else Proxy("http://own:8080"))


def test_a_pods_service_account_goes_through_the_environments_proxy(tmp_path: Path) -> None:
    write(tmp_path / "token", "t")
    write(tmp_path / "ca.crt", (DATA / "ca.pem").read_text())
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HTTPS_PROXY": "proxy:3128", "HOME": str(tmp_path)}
    assert find_access(environ=environ, service_account=tmp_path).proxy == PROXY
    environ["NO_PROXY"] = ".svc,10.96.0.0/12"
    assert find_access(environ=environ, service_account=tmp_path).proxy is None


async def tell(request: web.Request) -> web.Response:
    """Answer what a request says."""
    return answer({"gitVersion": "v1.33.0", "authorization": request.headers.get("Authorization"),
                   "as": request.headers.getall("Impersonate-Group", [])})


@pytest.mark.parametrize("proxy_tls", [False, True])
def test_requests_go_through_a_tunnel_and_trust_the_server_alone(tmp_path: Path, proxy_tls: bool) -> None:
    async def run() -> tuple[ForwardProxy, str, bytes]:
        async with serving(tell, server_tls()) as url, forwarding(tls=server_tls() if proxy_tls else None) as proxy:
            cluster = {"server": url, "certificate-authority-data": CA_DATA, "tls-server-name": "kubernetes.test",
                       "proxy-url": proxy.url.replace("//", "//me:p%40ss@")}
            user = {"token": "abc", "as": "jane", "as-groups": ["a", "b"]}
            access = find_access(str(write(tmp_path / "c", kubeconfig(user, cluster))), environ={})
            transport = AiohttpTransport(access)
            try:
                response = await transport.request("GET", "/version")
                lines = [line async for line in transport.stream("/api/v1/pods", query={"watch": "true"}, idle_timeout=5)]
            finally:
                await transport.close()
            assert lines == []
            return proxy, url, response.body

    proxy, url, body = asyncio.run(run())
    assert set(proxy.requests) == {f"CONNECT {url.removeprefix('https://')}"}
    assert proxy.headers[0]["proxy-authorization"] == "Basic bWU6cEBzcw=="
    assert "authorization" not in proxy.headers[0], "what is for the API server is not for the proxy"
    assert b'"authorization":"Bearer abc","as":["a","b"]' in body


def test_without_tls_the_proxy_fetches() -> None:
    async def run() -> tuple[ForwardProxy, str, int]:
        async with serving(tell) as url, forwarding() as proxy:
            given = parse_proxy(proxy.url.replace("//", "//me:p%40ss@"), "x")
            async with connected(url, proxy=given) as transport:
                code = (await transport.request("GET", "/version")).status
            return proxy, url, code

    proxy, url, code = asyncio.run(run())
    assert (proxy.requests, code) == ([f"GET {url}/version"], 200)
    assert proxy.headers[0]["proxy-authorization"] == "Basic bWU6cEBzcw=="


def test_the_servers_certificate_is_checked_behind_a_proxy() -> None:
    async def run() -> None:
        async with serving(tell, server_tls()) as url, forwarding() as proxy:
            trust = Trust(authority=CA, server_name="other.test")
            async with connected(url, trust=trust, proxy=parse_proxy(proxy.url, "x")) as transport:
                await transport.request("GET", "/")

    with pytest.raises(errors.Unreachable, match="certificate is not accepted: Hostname mismatch"):
        asyncio.run(run())


@pytest.mark.parametrize(("refusal", "told"), [
    ("407 Proxy Authentication Required", "the proxy does not connect us: 407 Proxy Authentication Required$"),
    ("403 Forbidden", "the proxy does not connect us: 403 Forbidden$"),
    (None, r"the proxy 127\.0\.0\.1:\d+ cannot be reached: Connection refused$"),
])
def test_a_proxy_that_does_not_help_is_told_in_one_line(refusal: str | None, told: str) -> None:
    async def run() -> None:
        async with forwarding(refusal=refusal or "") as proxy:
            given = parse_proxy(proxy.url, "x")
            if refusal is not None:
                async with connected(BEHIND, proxy=given) as transport:
                    await transport.request("GET", "/")
        async with connected(BEHIND, proxy=given) as transport:
            await transport.request("GET", "/")

    with pytest.raises(errors.Unreachable, match=told):
        asyncio.run(run())


def test_the_election_goes_through_the_proxy_as_whom_the_main_loop_acts(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def lease(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Impersonate-User"))
        return status(403, "Forbidden", "no")

    async def run() -> ForwardProxy:
        async with serving(lease) as url, forwarding() as proxy:
            file = write(tmp_path / "c", kubeconfig({"as": "jane"}, {"server": url, "proxy-url": proxy.url}))
            access = find_access(str(file), environ={})
            thread = ElectionThread(lambda: AiohttpTransport(access), Candidate("me", "ns", "lease"),
                                    random=random.Random(1), changed=lambda leading: None)
            client = Client(AiohttpTransport(access))
            thread.start()
            with pytest.raises(errors.Forbidden):
                await client.server_version()
            async with asyncio.timeout(20):
                while len(seen) < 2:
                    await asyncio.sleep(0.01)
            await thread.stop()
            await client.close()
            return proxy

    proxy = asyncio.run(run())
    assert set(seen) == {"jane"}
    assert any("/leases/" in request for request in proxy.requests)
    assert any(request.endswith("/version") for request in proxy.requests)
