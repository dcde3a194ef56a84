"""The two small HTTP servers of the operator: metrics, and health probes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from gpuward.controllers.metrics import Metrics
from gpuward.errors import InputError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def parse_address(flag: str, text: str) -> tuple[str, int] | None:
    """Return host and port of a bind address such as `:8080`; `0` switches the server off, as in controller-runtime.

    Raises:
        InputError: the text is no such address.
    """
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InputError(flag, text, "write an address such as :8080 or 127.0.0.1:8080, or 0 for none")
    return host.strip("[]") or "0.0.0.0", int(port)


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
        try:
            await web.TCPSite(runner, *place).start()
        except OSError as error:
            raise InputError(flag, address, f"choose an address that is free: {error.strerror or error}") from error
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
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


async def forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()
