"""Carry requests to a real API server with aiohttp; every foreign error ends here as errors.Unreachable."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gpuward import errors
from gpuward.kube.http.refusals import refusal
from gpuward.kube.http.transport import Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from gpuward.kube.config.access import Access
    from gpuward.kube.config.credentials import Credential
    from gpuward.kube.config.tls import Certificate

FOREIGN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, asyncio.TimeoutError, EOFError, ValueError)
"""All that aiohttp, asyncio, ssl and sockets raise when an exchange fails. OSError includes ssl.SSLError."""

_TCP_OPTIONS: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))
"""A peer that vanished is noticed within 20 s: on a watch that says nothing by probes (seconds and their number), after a
request by what is not acknowledged (milliseconds). A slow server does no harm: its kernel acknowledges."""

_KEPT: Final = 3.0
"""Seconds for which a connection without a request is kept: it may be dead, and a request on it waits for its whole time."""

_TRUST_HINT: Final = "check certificate-authority and tls-server-name in the kubeconfig"


class IdleTimer:
    """Know since when nothing has come on a watch, and end its wait for more when it is given up."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.given_up = False
        self._wait: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def bounded(self, limit: float) -> AsyncIterator[None]:
        """Wait inside for what comes next, for so many seconds or until it is given up: then raise TimeoutError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(0.0 if self.given_up else limit) as self._wait:
                yield
        finally:
            self._wait = None
        self.since = loop.time()

    def give_up(self) -> None:
        """Take the connection for dead."""
        self.given_up = True
        if self._wait is not None:
            self._wait.reschedule(asyncio.get_running_loop().time())


class AiohttpTransport:
    """Implement `gpuward.kube.http.transport.Transport` over HTTP/1.1.

    Belongs to the event loop that first uses it, with credentials of its own. Opens as many connections as there are requests
    at a time: whoever sends them bounds them.

    A connection may stay open and yet carry nothing any more, when a firewall or a proxy has forgotten it. The first to notice
    is a request: where one had no answer in time and a later one has, the server lives, and watches on which nothing has
    come since the first was sent are given up. Whoever follows them goes on from the last version seen.
    """

    def __init__(self, access: Access, *, timeout: float = 30.0, connect_timeout: float = 10.0) -> None:
        """Take the default time for a whole exchange and the time for connecting, both in seconds."""
        self._access = access.apart()
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._context: tuple[tuple[bytes, Certificate | None], ssl.SSLContext] | None = None
        self._watches: set[IdleTimer] = set()
        self._unanswered: float | None = None
        """When the first request was sent that was not answered in time, until one is."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send one request; see the port. After a 401 it is sent once more if there is another credential.

        Raises errors.Unreachable, and errors.KubeconfigError when there never was a usable credential.
        """
        begun = asyncio.get_running_loop().time()
        limit = self._timeout if timeout is None else timeout
        headers = {"Content-Type": content_type} if body is not None else {}
        credential = await self._access.credentials.current()
        while True:
            try:
                async with asyncio.timeout(limit):
                    answer = await self._open(method, path, query, credential, headers=headers, body=body)
                    response = await _read(answer)
            except FOREIGN as error:
                if isinstance(error, TimeoutError) and self._unanswered is None:
                    self._unanswered = begun
                raise self._unreachable(error, limit) from error
            if self._unanswered is not None:
                self.expire_watches(self._unanswered)
                self._unanswered = None
            renewed = await self._access.credentials.renew(credential) if response.status == 401 else None
            if renewed is None:
                return response
            credential = renewed

    def expire_watches(self, since: float) -> None:
        """Give up the watches that have been silent since some time of the event loop, and before: they may be dead."""
        for idle in self._watches:
            if idle.since < since:
                idle.give_up()

    async def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        """Yield the lines of a watch; see the port."""
        idle = IdleTimer(asyncio.get_running_loop().time())
        self._watches.add(idle)
        answer = None
        rest = b""
        try:
            answer = await self._start(path, query, min(idle_timeout, self._timeout), idle)
            while chunk := await self._chunk(answer, idle_timeout, idle):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
        finally:
            self._watches.discard(idle)
            if answer is not None:
                answer.close()

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _start(
        self, path: str, query: Mapping[str, str], limit: float, idle: IdleTimer
    ) -> aiohttp.ClientResponse:
        credential = await self._access.credentials.current()
        while True:
            try:
                async with idle.bounded(limit):
                    answer = await self._open("GET", path, query, credential)
                    if answer.status == 200:
                        return answer
                    response = await _read(answer)
            except FOREIGN as error:
                raise self._broken(error, limit, idle) from error
            renewed = await self._access.credentials.renew(credential) if response.status == 401 else None
            if renewed is None:
                raise refusal(response)
            credential = renewed

    async def _chunk(self, answer: aiohttp.ClientResponse, limit: float, idle: IdleTimer) -> bytes:
        try:
            async with idle.bounded(limit):
                return await answer.content.readany()
        except FOREIGN as error:
            raise self._broken(error, limit, idle) from error

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        credential: Credential,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        url = self._access.server + path + (f"?{urlencode(query)}" if query else "")
        sent = [*(headers or {}).items(), *self._access.impersonation]
        if credential.authorization:
            sent.append(("Authorization", credential.authorization))
        proxy = self._access.proxy
        to_proxy = proxy.headers if proxy else {}
        if not self._access.server.startswith("https:"):  # there is no tunnel, and but one request for both
            sent += to_proxy.items()
        return await self._live_session().request(
            method,
            URL(url, encoded=True),
            headers=sent,
            data=body,
            allow_redirects=False,
            ssl=self._tls(credential),
            server_hostname=self._access.trust.server_name or None,
            proxy=proxy.url if proxy else None,
            proxy_headers=to_proxy,
        )

    def _live_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise errors.Unreachable("the connection to the API server was closed by us")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket, keepalive_timeout=_KEPT),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                # Compressing costs the API server more than sending: it is the first to run out of CPU.
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "gpuward"},
            )
        return self._session

    def _tls(self, credential: Credential) -> ssl.SSLContext | bool:
        if not self._access.server.startswith("https:"):
            return True
        key = (self._access.trust.read_authority(), credential.certificate)
        if self._context is None or self._context[0] != key:
            try:
                self._context = (key, self._access.trust.context(*key))
            except errors.KubeconfigError as error:
                if self._context is None:
                    raise
                # Certificate and key are being rotated and do not fit each other yet: a matter of moments.
                raise errors.Unreachable(str(error)) from error
        return self._context[1]

    def _broken(self, error: Exception, limit: float, idle: IdleTimer) -> errors.Unreachable:
        if idle.given_up:
            return errors.Unreachable(f"{self._access.server}: silent like a request that had no answer")
        return self._unreachable(error, limit)

    def _unreachable(self, error: Exception, limit: float) -> errors.Unreachable:
        late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
        kind = errors.Unanswered if late else errors.Unreachable
        return kind(f"{self._access.server}: {reason(error, limit)}")


async def _read(answer: aiohttp.ClientResponse) -> Response:
    async with answer:
        return Response(answer.status, answer.headers, await answer.read())


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS:
        option = getattr(socket, name, None)  # not every platform has all of them
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def reason(error: Exception, limit: float) -> str:
    """Say in one line why an exchange failed; `limit` is the time in seconds that it had."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            told = getattr(error.certificate_error, "verify_message", "") or _line(error.certificate_error)
            return f"the server's certificate is not accepted: {told}: {_TRUST_HINT}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy does not connect us: {error.status} {' '.join(error.message.split())}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy {error.host}:{error.port} cannot be reached: {_cause(error.os_error)}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} cannot be resolved"
        case aiohttp.ClientSSLError():
            return f"TLS failed: {_line(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection before it answered"
        case aiohttp.ConnectionTimeoutError():
            return "cannot connect: no answer in time"
        case TimeoutError() | aiohttp.ServerTimeoutError():
            return f"no answer within {limit:g} s"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {_cause(error.os_error)}"
        case _:
            return _line(error)


def _cause(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else _line(error)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
