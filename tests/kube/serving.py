"""A real HTTP server on loopback whose handler the test writes, and transports to it."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from gpuward.kube.config.access import Access
from gpuward.kube.config.credentials import Credentials, KeptCredentials
from gpuward.kube.config.proxy import Proxy
from gpuward.kube.config.tls import Trust
from gpuward.kube.http.aiohttp_transport import AiohttpTransport

DATA = Path(__file__).parent / "data"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve every path with `handler`; yield the URL."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connected(
    url: str, credentials: Credentials | None = None, trust: Trust | None = None, timeout: float = 5.0,
    proxy: Proxy | None = None,
) -> AsyncIterator[AiohttpTransport]:
    """Yield a transport to a server, closed at the end."""
    transport = AiohttpTransport(Access(url, trust or Trust(), credentials or KeptCredentials(), proxy=proxy), timeout=timeout)
    try:
        yield transport
    finally:
        await transport.close()


def server_tls(*, ask_client: bool = False) -> ssl.SSLContext:
    """Return the TLS side of a server with the test certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "server.pem")
    if ask_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(DATA / "ca.pem")
    return context


def answer(body: Any, status: int = 200, **headers: str) -> web.Response:
    """Return a JSON answer."""
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers
    )


def status(code: int, reason: str, message: str, **details: Any) -> web.Response:
    """Return a refusal as kube-apiserver writes it."""
    return answer(
        {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message, "details": details,
        },
        code,
    )


def rotate(path: Path, value: str) -> None:
    """Replace a file as the kubelet does: by renaming another one over it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(value)
    fresh.rename(path)
