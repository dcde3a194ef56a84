"""The HTTP transport over TLS, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from gpuward import errors
from gpuward.kube.config.credentials import KeptCredentials
from gpuward.kube.config.files import InFile, Inline
from gpuward.kube.config.tls import Trust
from tests.kube.serving import DATA, answer, connected, rotate, server_tls, serving

CA = InFile(DATA / "ca.pem", "certificate-authority")


@pytest.mark.parametrize(("trust", "told"), [
    (Trust(authority=CA, server_name="kubernetes.test"), None),
    (Trust(verify=False), None),
    (Trust(authority=CA), "IP address mismatch"),
    (Trust(authority=CA, server_name="other.test"), "Hostname mismatch"),
    (Trust(server_name="kubernetes.test"), "unable to get local issuer certificate"),
])
def test_whom_we_trust(trust: Trust, told: str | None) -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer({})

    async def run() -> int:
        async with serving(handler, server_tls()) as url, connected(url, trust=trust) as transport:
            return (await transport.request("GET", "/")).status

    if told is None:
        assert asyncio.run(run()) == 200
        return
    with pytest.raises(errors.Unreachable) as caught:
        asyncio.run(run())
    message = str(caught.value)
    assert told in message
    assert "certificate is not accepted" in message
    assert "tls-server-name" in message
    assert "\n" not in message


def test_a_server_without_tls_is_told_in_one_line() -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer({})

    async def run() -> None:
        async with serving(handler) as url, connected(url.replace("http:", "https:")) as transport:
            await transport.request("GET", "/")

    with pytest.raises(errors.Unreachable, match="TLS failed"):
        asyncio.run(run())


def test_the_client_certificate_is_shown_and_read_again_when_it_changes(tmp_path: Path) -> None:
    chain, key = tmp_path / "client.pem", tmp_path / "client.key"
    chain.write_bytes((DATA / "client.pem").read_bytes())
    key.write_bytes((DATA / "client.key").read_bytes())
    trust = Trust(authority=CA, server_name="localhost")

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        return answer({"subject": str(request.transport.get_extra_info("peercert")["subject"])})

    async def run() -> str:
        credentials = KeptCredentials(chain=InFile(chain, "client-certificate"), key=InFile(key, "client-key"))
        async with serving(handler, server_tls(ask_client=True)) as url:
            async with connected(url, credentials, trust) as transport:
                response = await transport.request("GET", "/")
                rotate(chain, "being replaced")
                with pytest.raises(errors.Unreachable, match="client-certificate, client-key: unusable"):
                    await transport.request("GET", "/")
            async with connected(url, trust=trust) as transport:
                with pytest.raises(errors.Unreachable):
                    await transport.request("GET", "/")
        return response.body.decode()

    assert "tester" in asyncio.run(run())


def test_a_client_certificate_that_never_worked_is_a_configuration_error() -> None:
    credentials = KeptCredentials(chain=Inline(b"no PEM"), key=Inline(b"no PEM"))

    async def run() -> None:
        async with connected("https://127.0.0.1:1", credentials) as transport:
            await transport.request("GET", "/")

    with pytest.raises(errors.KubeconfigError, match="give a PEM certificate and its unencrypted key"):
        asyncio.run(run())
