"""Credential plugins, run for real as subprocesses."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpuward.errors import KubeconfigError, Unreachable
from gpuward.kube.config.access import Access
from gpuward.kube.config.credentials import Credential
from gpuward.kube.config.plugin import Plugin, PluginCredentials, read_answer, run
from gpuward.kube.config.tls import Trust
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from tests.kube.serving import answer, serving

V1 = "client.authentication.k8s.io/v1"


def plugin(tmp_path: Path, code: str, **more: Any) -> Plugin:
    """Return a plugin that runs Python code; `tmp_path` is its argument."""
    return Plugin(
        command=sys.executable, api_version=V1, arguments=("-c", "import sys\n" + code, str(tmp_path)),
        directory=tmp_path, origin="/c: user 'u': exec", **more,
    )


COUNTING = """
import json, pathlib
seen = pathlib.Path(sys.argv[1]) / "runs"
with seen.open("a") as file:
    file.write("x")
status = {"token": "token-%d" % len(seen.read_text()), "expirationTimestamp": "2026-01-01T01:00:00Z"}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""
EXPIRY = datetime(2026, 1, 1, 1, tzinfo=UTC).timestamp()


class Clock:
    """Give a time that the test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_the_answer_is_kept_until_it_expires_or_is_refused(tmp_path: Path) -> None:
    clock = Clock(EXPIRY - 3600)
    credentials = PluginCredentials(plugin(tmp_path, COUNTING), now=clock)

    async def tokens() -> list[str]:
        seen = [await credentials.current(), await credentials.current()]
        clock.now = EXPIRY - 5
        seen.append(await credentials.current())
        clock.now = EXPIRY - 3600
        refused = await credentials.current()
        renewed = await asyncio.gather(credentials.renew(refused), credentials.renew(refused))
        seen += [credential for credential in renewed if credential is not None]
        return [credential.authorization.removeprefix("Bearer ") for credential in seen]

    assert asyncio.run(tokens()) == ["token-1", "token-1", "token-2", "token-3", "token-3"]
    assert (tmp_path / "runs").read_text() == "x" * 3


def test_two_event_loops_share_an_access_and_nothing_else(tmp_path: Path) -> None:
    """The election has an event loop of its own: a lock that both waited for ended one of them for good."""
    async def handler(request: web.Request) -> web.Response:
        return answer({}, 401 if request.headers["Authorization"].endswith("-1") else 200)

    async def main() -> None:
        async with serving(handler) as url:
            credentials = PluginCredentials(plugin(tmp_path, COUNTING), now=Clock(EXPIRY - 3600))
            access = Access(url, Trust(), credentials)
            async with asyncio.timeout(30):
                statuses = await several(access) + await asyncio.to_thread(lambda: asyncio.run(several(access)))
        assert statuses == [200] * 6

    async def several(access: Access) -> list[int]:
        transport = AiohttpTransport(access)
        try:
            return [answer.status for answer in await asyncio.gather(*(transport.request("GET", "/") for _ in range(3)))]
        finally:
            await transport.close()

    asyncio.run(main())


def test_a_renewal_that_brings_the_same_credential_is_none(tmp_path: Path) -> None:
    code = f"print({json.dumps(json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': {'token': 't'}}))})"
    credentials = PluginCredentials(plugin(tmp_path, code))

    async def renew() -> Credential | None:
        return await credentials.renew(await credentials.current())

    assert asyncio.run(renew()) is None


def test_a_plugin_that_fails_later_is_a_passing_trouble(tmp_path: Path) -> None:
    code = COUNTING + "sys.exit(len(seen.read_text()) - 1)"
    clock = Clock(EXPIRY - 3600)
    credentials = PluginCredentials(plugin(tmp_path, code), now=clock)

    async def expire() -> None:
        await credentials.current()
        clock.now = EXPIRY
        await credentials.current()

    with pytest.raises(Unreachable, match=r"the credential could not be renewed: .* ended with 1"):
        asyncio.run(expire())


def test_a_certificate_is_taken_as_well(tmp_path: Path) -> None:
    status = {"clientCertificateData": "PEM CHAIN", "clientKeyData": "PEM KEY"}
    code = f"print({json.dumps(json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': status}))})"
    credential = asyncio.run(PluginCredentials(plugin(tmp_path, code)).current())
    assert credential.certificate == (b"PEM CHAIN", b"PEM KEY")
    assert credential.authorization == ""
    assert "PEM" not in repr(credential)


@pytest.mark.parametrize(("code", "told"), [
    ("print('oops', file=sys.stderr)\nsys.exit(3)", "ended with 3: oops"),
    ("sys.exit(4)", "ended with 4: no message"),
    ("import signal\nsignal.pause()", r"did not end within 0\.5 s: run it by hand"),
])
def test_a_plugin_that_fails_is_told_in_one_line(tmp_path: Path, code: str, told: str) -> None:
    with pytest.raises(KubeconfigError, match=told) as caught:
        run(plugin(tmp_path, code), 0.5)
    assert str(caught.value).startswith("/c: user 'u': exec: ")


@pytest.mark.parametrize(("printed", "told"), [
    (b"hello", "printed no ExecCredential"),
    (b"{}", "printed no kind of no apiVersion"),
    (json.dumps({"apiVersion": "v1", "kind": "ExecCredential"}).encode(), f"asks for ExecCredential of {V1}: make both"),
    (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}).encode(), "neither a token nor a certificate"),
    (json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientCertificateData": "x"}}).encode(),
     "neither a token nor a certificate with its key"),
])
def test_an_answer_that_cannot_be_used(tmp_path: Path, printed: bytes, told: str) -> None:
    with pytest.raises(KubeconfigError, match=told):
        read_answer(printed, plugin(tmp_path, ""))


@pytest.mark.parametrize(("command", "hint", "told"), [
    ("no-such-login", "", "command 'no-such-login' was not found: install it, or put it on the PATH"),
    ("./no-such-login", "get it\nfrom us", "command './no-such-login' was not found: get it from us"),
])
def test_a_plugin_that_is_not_installed(tmp_path: Path, command: str, hint: str, told: str) -> None:
    missing = Plugin(command=command, api_version=V1, directory=tmp_path, install_hint=hint)
    with pytest.raises(KubeconfigError, match=told):
        run(missing, 1)


def test_a_plugin_that_cannot_be_run(tmp_path: Path) -> None:
    script = tmp_path / "login"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(KubeconfigError, match=r"cannot run \./login: No such file or directory"):
        run(Plugin(command="./login", api_version=V1, directory=tmp_path), 1)
