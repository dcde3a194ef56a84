"""The HTTP transport against a real server: what goes over the wire, and that no foreign error escapes."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import client_exceptions, http_exceptions, web
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gpuward import errors
from gpuward.kube.config.credentials import KeptCredentials
from gpuward.kube.config.files import InFile
from gpuward.kube.http.aiohttp_transport import FOREIGN, _socket, reason
from tests.kube.serving import answer, connected, rotate, serving, status


def test_a_request_arrives_as_it_was_meant() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((
            request.method, request.raw_path, request.headers.get("Content-Type"),
            request.headers.get("Accept-Encoding"), request.headers.get("Authorization"), await request.read(),
        ))
        return web.Response(status=201, body=b"{}", headers={"Warning": '299 - "old"'})

    async def run() -> None:
        credentials = KeptCredentials(authorization="Bearer abc")
        async with serving(handler) as url, connected(url + "/k8s/clusters/c-1", credentials) as transport:
            response = await transport.request(
                "PATCH", "/api/v1/nodes/a%2Fb", query={"labelSelector": "a in (b,c)"}, body=b"[]",
                content_type="application/json-patch+json",
            )
            assert response.status == 201
            assert response.body == b"{}"
            assert response.header("warning") == '299 - "old"'

    asyncio.run(run())
    assert seen == [(
        "PATCH", "/k8s/clusters/c-1/api/v1/nodes/a%2Fb?labelSelector=a+in+%28b%2Cc%29",
        "application/json-patch+json", "identity", "Bearer abc", b"[]",
    )]


@pytest.mark.parametrize("code", [200, 302, 404, 500])
def test_every_status_is_an_answer(code: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=code, body=b"text", headers={"Location": "/elsewhere"})

    async def run() -> int:
        async with serving(handler) as url, connected(url) as transport:
            return (await transport.request("GET", "/api")).status

    assert asyncio.run(run()) == code


def test_a_token_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return answer({})

    async def run() -> None:
        credentials = KeptCredentials(token=InFile(token, "tokenFile"))
        async with serving(handler) as url, connected(url, credentials) as transport:
            await transport.request("GET", "/")
            rotate(token, "second")
            await transport.request("GET", "/")
            token.unlink()
            await transport.request("GET", "/")

    asyncio.run(run())
    assert seen == ["Bearer first", "Bearer second", "Bearer second"]


class Renewing:
    """Give one token, and another one after a refusal, so that the test sees when that is asked for."""

    def __init__(self, fresh: str | None) -> None:
        self.fresh = fresh
        self.renewals = 0
        self.kept = KeptCredentials(authorization="Bearer stale")

    async def current(self) -> Any:
        return await self.kept.current()

    async def renew(self, refused: Any) -> Any:
        self.renewals += 1
        if self.fresh is None or self.renewals > 1:
            return None
        self.kept = KeptCredentials(authorization=self.fresh)
        return await self.kept.current()

    def apart(self) -> Renewing:
        return self


@pytest.mark.parametrize(("fresh", "expected"), [("Bearer fresh", 200), ("Bearer stale", 401), (None, 401)])
def test_after_a_401_another_credential_is_tried_once(fresh: str | None, expected: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer fresh":
            return answer({})
        return status(401, "Unauthorized", "Unauthorized")

    async def run() -> int:
        async with serving(handler) as url, connected(url, Renewing(fresh)) as transport:
            return (await transport.request("GET", "/")).status

    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("fresh", ["Bearer fresh", None])
def test_a_watch_also_renews_its_credential(fresh: str | None) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer fresh":
            return web.Response(body=b"one\ntwo\n")
        return status(401, "Unauthorized", "who?")

    async def run() -> list[bytes]:
        async with serving(handler) as url, connected(url, Renewing(fresh)) as transport:
            return [line async for line in transport.stream("/", query={}, idle_timeout=5)]

    if fresh:
        assert asyncio.run(run()) == [b"one", b"two"]
    else:
        with pytest.raises(errors.Unauthorized, match=r"who\?"):
            asyncio.run(run())


def test_a_stream_gives_whole_lines_however_they_arrive() -> None:
    big = b"x" * 300_000

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b"first\nsec", b"ond\n\n", big, b"\nrest without end"):
            await response.write(piece)
        return response

    async def run() -> list[bytes]:
        async with serving(handler) as url, connected(url) as transport:
            return [line async for line in transport.stream("/", query={"watch": "true"}, idle_timeout=5)]

    assert asyncio.run(run()) == [b"first", b"second", big]


def test_a_stream_that_falls_silent_is_unreachable() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await asyncio.Event().wait()
        return response

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            lines = aiter(transport.stream("/", query={}, idle_timeout=0.05))
            assert await anext(lines) == b"one"
            with pytest.raises(errors.Unreachable, match=r"no answer within 0\.05 s"):
                await anext(lines)

    asyncio.run(run())


def test_a_watch_is_given_up_that_was_silent_like_a_request_without_an_answer() -> None:
    """A slow answer alone says nothing: only when the server answers again is it the connections that are dead."""
    speak = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/void":
            await asyncio.Event().wait()
        if request.path == "/fine":
            return answer({})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        if request.path == "/lively":
            await speak.wait()
            await response.write(b"two\n")
        await asyncio.Event().wait()
        return response

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            watches = [aiter(transport.stream(path, query={}, idle_timeout=5)) for path in ("/silent", "/lively")]
            assert [await anext(lines) for lines in watches] == [b"one", b"one"]
            silent, lively = (asyncio.ensure_future(anext(lines)) for lines in watches)
            await asyncio.sleep(0.01)
            with pytest.raises(errors.Unreachable):
                await transport.request("GET", "/void", timeout=0.05)
            speak.set()
            assert await lively == b"two"
            lively = asyncio.ensure_future(anext(watches[1]))
            await asyncio.sleep(0.05)
            assert not silent.done()
            await transport.request("GET", "/fine")
            with pytest.raises(errors.Unreachable, match="silent like a request that had no answer"):
                await silent
            await transport.request("GET", "/fine")
            assert not lively.done()
            lively.cancel()

    asyncio.run(run())


def test_a_watch_that_does_not_begin_is_given_up_too() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            beginning = asyncio.ensure_future(anext(aiter(transport.stream("/", query={}, idle_timeout=5))))
            await asyncio.sleep(0.05)
            transport.expire_watches(asyncio.get_running_loop().time())
            with pytest.raises(errors.Unreachable, match="silent"):
                await beginning

    asyncio.run(run())


def test_a_network_that_is_gone_is_noticed_by_the_kernel() -> None:
    with _socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_a_stream_that_breaks_is_unreachable() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            lines = aiter(transport.stream("/", query={}, idle_timeout=5))
            assert await anext(lines) == b"one"
            with pytest.raises(errors.Unreachable):
                await anext(lines)

    asyncio.run(run())


def test_a_refused_stream_raises_the_refusal() -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(410, "Expired", "too old resource version: 1 (5)")

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            with pytest.raises(errors.Gone, match="too old"):
                await anext(aiter(transport.stream("/", query={}, idle_timeout=5)))

    asyncio.run(run())


def test_no_answer_in_time_is_unreachable() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:\d+: no answer within 0\.05 s"):
                await transport.request("GET", "/", timeout=0.05)

    asyncio.run(run())


def test_a_server_that_hangs_up_is_unreachable() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            with pytest.raises(errors.Unreachable):
                await transport.request("PATCH", "/", body=b"{}")

    asyncio.run(run())


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"this is no HTTP\r\n\r\n")
    await writer.drain()
    writer.close()


def test_a_server_that_does_not_speak_http_is_unreachable() -> None:
    async def run() -> None:
        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, connected(f"http://127.0.0.1:{port}") as transport:
            with pytest.raises(errors.Unreachable):
                await transport.request("GET", "/")

    asyncio.run(run())


@pytest.mark.parametrize(("url", "told"), [
    ("http://127.0.0.1:1", "http://127.0.0.1:1: cannot connect: Connection refused"),
    ("http://no-such-host.invalid", "http://no-such-host.invalid: the name no-such-host.invalid cannot be resolved"),
])
def test_a_server_that_is_not_there_is_told_in_one_line(url: str, told: str) -> None:
    async def run() -> None:
        async with connected(url) as transport:
            await transport.request("GET", "/")

    with pytest.raises(errors.Unreachable) as caught:
        asyncio.run(run())
    assert str(caught.value) == told


def test_a_closed_transport_is_unreachable() -> None:
    async def run() -> None:
        async with connected("http://127.0.0.1:1") as transport:
            await transport.close()
            await transport.request("GET", "/")

    with pytest.raises(errors.Unreachable, match="closed by us"):
        asyncio.run(run())


def foreign_errors() -> list[Exception]:
    """Make one of every exception that aiohttp, asyncio, ssl and sockets define for a failed exchange."""
    key = ConnectionKey("host", 443, True, True, None, None, None)
    refused = OSError(errno.ECONNREFUSED, "refused")
    special: dict[str, Exception] = {
        "ClientConnectorError": aiohttp.ClientConnectorError(key, refused),
        "ClientConnectorDNSError": aiohttp.ClientConnectorDNSError(key, OSError(-2, "unknown")),
        "ClientProxyConnectionError": aiohttp.ClientProxyConnectionError(key, refused),
        "ClientSSLError": aiohttp.ClientSSLError(key, refused),
        "ClientConnectorSSLError": aiohttp.ClientConnectorSSLError(key, refused),
        "ClientConnectorCertificateError": aiohttp.ClientConnectorCertificateError(
            key, ssl.SSLCertVerificationError("untrusted")
        ),
        "UnixClientConnectorError": client_exceptions.UnixClientConnectorError("/socket", key, refused),
        "ServerFingerprintMismatch": aiohttp.ServerFingerprintMismatch(b"a", b"b", "host", 443),
    }
    found: list[Exception] = []
    for name in client_exceptions.__all__:
        kind = getattr(client_exceptions, name)
        if name.startswith("WS"):  # web sockets, which the transport does not use
            continue
        if name in special:
            found.append(special[name])
        elif issubclass(kind, aiohttp.ClientResponseError):
            info = aiohttp.RequestInfo(URL("http://host"), "GET", CIMultiDictProxy(CIMultiDict()), URL("http://host"))
            found.append(kind(info, (), status=400, message="bad"))
        elif issubclass(kind, aiohttp.InvalidURL):
            found.append(kind("bad url"))
        else:
            found.append(kind())
    found += [kind("x") for kind in vars(http_exceptions).values()
              if isinstance(kind, type) and issubclass(kind, http_exceptions.BadHttpMessage)
              and kind is not http_exceptions.LineTooLong and kind is not http_exceptions.InvalidHeader]
    found += [http_exceptions.HttpProcessingError(message="x"), http_exceptions.LineTooLong(b"x", 1)]
    found += [ssl.SSLError(1, "bad record"), ssl.SSLZeroReturnError(), ConnectionResetError(), BrokenPipeError(),
              TimeoutError(), asyncio.IncompleteReadError(b"", 5)]
    return found


@pytest.mark.parametrize("error", foreign_errors(), ids=lambda error: type(error).__name__)
def test_no_foreign_error_escapes(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(aiohttp.ClientSession, "_request", fail)

    async def run() -> None:
        async with connected("http://127.0.0.1:1") as transport:
            with pytest.raises(errors.Unreachable):
                await transport.request("GET", "/")
            with pytest.raises(errors.Unreachable):
                await anext(aiter(transport.stream("/", query={}, idle_timeout=1)))

    asyncio.run(run())
    assert isinstance(error, FOREIGN)
    line = reason(error, 3)
    assert line
    assert "\n" not in line


def test_cancelling_is_not_an_error_of_the_server() -> None:
    arrived = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        return web.Response()

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            task = asyncio.create_task(transport.request("GET", "/"))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
