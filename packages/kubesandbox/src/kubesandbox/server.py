"""The API server over HTTP, for a real kubectl."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from aiohttp import web

from kubesandbox.messages import Request, Stream

if TYPE_CHECKING:
    from kubesandbox.api import ApiServer

LARGEST_BODY: Final = 16 * 1024 * 1024
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters:
- name: sandbox
  cluster:
    server: {url}
contexts:
- name: sandbox
  context:
    cluster: sandbox
    user: sandbox
    namespace: {namespace}
current-context: sandbox
users:
- name: sandbox
  user: {{}}
"""


class HttpServer:
    """Serve an API server on the loopback interface, without authentication."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> str:
        """Listen, on a free port when `port` is 0, and return the URL."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound = self._runner.addresses[0][1]
        self.url = f"http://{host}:{bound}"
        return self.url

    async def stop(self) -> None:
        """Stop listening and end the streams that are open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, namespace: str = "default") -> str:
        """Return a kubeconfig file that leads to this server."""
        return KUBECONFIG.format(url=self.url, namespace=namespace)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        request = Request(
            method=http.method, path=http.path, query=dict(http.query), body=await http.read(),
            content_type=http.headers.get("Content-Type", "application/json"), accept=http.headers.get("Accept", ""))
        answer = self._api.handle(request)
        if isinstance(answer, Stream):
            return await self._stream(http, answer)
        date = formatdate(self._api.store.now(), usegmt=True)  # the cluster's time, as virtual as everything else in it
        return web.Response(status=answer.status, body=answer.body, headers={
            **answer.headers, "Content-Type": answer.content_type, "Date": date})

    @staticmethod
    async def _stream(http: web.Request, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": stream.content_type})
        response.enable_chunked_encoding()
        try:
            await response.prepare(http)
            async for chunk in stream.chunks():
                await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            # The client has gone; there is nobody left to tell.
            pass
        finally:
            stream.close()
        return response
