"""Whose certificates are trusted: a registry that speaks TLS, with an authority of its own."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from gpuward.ports import ImageFound
from gpuward.registry.client import RegistryClient

ADDRESS = "0.0.0.0"
"""This machine, by a name that is not asked without TLS."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a certificate that is its own authority; its key is beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key", "-out", tmp_path / "ca.crt",
        "-days", "2", "-subj", "/CN=registry", "-addext", f"subjectAltName=IP:{ADDRESS}"], check=True, capture_output=True)
    return tmp_path / "ca.crt"


def asked(certificate: Path, *clients: RegistryClient) -> list[ImageFound]:
    """Ask a registry that has no image, by each client."""
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, status=404)

    async def story() -> list[ImageFound]:
        app = web.Application()
        app.add_routes([web.get("/v2/{rest:.*}", answer)])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key"))
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            image = f"{ADDRESS}:{runner.addresses[0][1]}/nvidia/driver:1"
            return [await client.find(image, {}) for client in clients]
        finally:
            await runner.cleanup()

    return asyncio.run(story())


def test_an_authority_that_is_named_is_trusted_besides_the_others(certificate: Path) -> None:
    (found,) = asked(certificate, RegistryClient(str(certificate)))
    assert found.there is False


def test_without_it_nothing_is_known_and_it_says_why(certificate: Path) -> None:
    (found,) = asked(certificate, RegistryClient())
    assert found.there is None
    assert "its certificate is not trusted (self-signed certificate)" in found.why


def test_a_file_that_changes_counts_with_the_next_question(certificate: Path) -> None:
    """Such as a ConfigMap's, whose authorities are replaced before the old ones expire."""
    named = certificate.with_name("named.crt")
    client = RegistryClient(str(named))
    (before,) = asked(certificate, client)
    named.write_bytes(certificate.read_bytes())
    (after,) = asked(certificate, client)
    assert (before.there, after.there) == (None, False)


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_file_without_authorities_is_named(certificate: Path, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "other.crt"
    if text is not None:
        file.write_text(text)
    (found,) = asked(certificate, RegistryClient(str(file)))
    assert found.there is None
    assert found.why.startswith(f"--trusted-ca={file}: ")
