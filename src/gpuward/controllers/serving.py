"""The two small HTTP servers of the operator: metrics, and health probes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from gpuward.controllers.metrics import Metrics
from gpuward.errors import InputError
from gpuward.kube.http.listening import on_all_addresses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


ADVICE: Final = "write an address such as :8080, 127.0.0.1:8080 or [::1]:8080, or 0 for none"


def parse_address(flag: str, text: str) -> tuple[str, int] | None:
    """Return host and port of a bind address such as `:8080`; `0` switches the server off, as in controller-runtime.

    The host is empty for all addresses, as Go's net.Listen has it: `:8080`, `0.0.0.0:8080` and `[::]:8080` are the same.

    Raises:
        InputError: the text is no such address.
    """
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise InputError(flag, text, ADVICE)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if any(mark in host for mark in "[]/") or (":" in host) != bracketed:
        raise InputError(flag, text, ADVICE)
    return "" if host in ("0.0.0.0", "::") else host, int(port)


async def listening(flag: str, address: str, host: str, port: int) -> socket.socket:
    """Return a socket that is bound: to all addresses of both families where the host is empty.

    Raises:
        InputError: the address cannot be bound.
    """
    try:
        if not host:
            return on_all_addresses(port)
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A name may stand for several addresses. Go takes one, of IPv4 first.
        family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server(place, family=family)
    except socket.gaierror as error:
        raise InputError(flag, address, f"the host is not known ({error.strerror}): {ADVICE}") from error
    except OSError as error:
        told = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(flag, address, f"choose an address that is free, of this machine: {told}") from error
    except ValueError as error:  # a name that no resolver takes
        raise InputError(flag, address, ADVICE) from error


@asynccontextmanager
async def serve(flag: str, address: str, routes: list[web.RouteDef]) -> AsyncIterator[str]:
    """Serve routes while the context lasts, and yield the address bound; empty when switched off.

    Raises:
        InputError: the address cannot be bound.
    """
    place = parse_address(flag, address)
    if place is None:
        yield ""
        return
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        bound = await listening(flag, address, *place)
        await web.SockSite(runner, bound).start()
        host, port = bound.getsockname()[:2]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        await runner.cleanup()


def metrics_routes(metrics: Metrics) -> list[web.RouteDef]:
    """Return the route of the metrics."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return [web.get("/metrics", show)]


def health_routes(ready: Callable[[], bool], alive: Callable[[], bool]) -> list[web.RouteDef]:
    """Return the routes of the probes: /healthz fails once a loop has ended, /readyz until the cluster has been listed."""

    def probe(check: Callable[[], bool]) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            good = check()
            return web.Response(text="ok" if good else "not yet", status=200 if good else 500)

        return answer

    return [web.get("/healthz", probe(alive)), web.get("/readyz", probe(ready))]  # type: ignore[arg-type]  # closures
