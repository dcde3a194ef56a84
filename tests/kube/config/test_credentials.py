"""Credentials from the kubeconfig and from files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpuward.kube.config.credentials import Credential, KeptCredentials, bearer
from gpuward.kube.config.files import InFile, Inline
from gpuward.kube.config.tls import Certificate


@pytest.mark.parametrize(("token", "header"), [("abc\n", "Bearer abc"), ("  ", ""), ("", "")])
def test_a_bearer_header(token: str, header: str) -> None:
    assert bearer(token) == header


def test_a_refused_token_is_renewed_only_if_the_file_has_another(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = KeptCredentials(token=InFile(path, "tokenFile"))

    async def run() -> list[Credential | None]:
        refused = await credentials.current()
        unchanged = await credentials.renew(refused)
        path.write_text("two")
        return [refused, unchanged, await credentials.renew(refused)]

    assert asyncio.run(run()) == [Credential("Bearer one"), None, Credential("Bearer two")]


def test_a_certificate_goes_with_a_token() -> None:
    credentials = KeptCredentials(authorization="Basic x", chain=Inline(b"chain"), key=Inline(b"key"))
    assert asyncio.run(credentials.current()) == Credential("Basic x", Certificate(b"chain", b"key"))


def test_a_credential_does_not_show_itself() -> None:
    assert "secret" not in repr(Credential("Bearer secret", Certificate(b"secret", b"secret")))
