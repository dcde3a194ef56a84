"""A client of the Kubernetes API for programs that ask now and then: it blocks, on Python's own HTTP, so waiting costs little.

It talks to the API server directly, or through the HTTP proxy that a kubeconfig names; one in the environment is for the
operator.
"""

from __future__ import annotations

import http.client
import math
import os
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gpuward import errors, names
from gpuward.agents.answers import AnswerInTime
from gpuward.agents.lasting import told_of
from gpuward.kube.http.refusals import refusal
from gpuward.kube.http.transport import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from gpuward.kube.config.proxy import Proxy

Object = dict[str, Any]
Objects = list[Object]

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
TIMEOUT: Final = 10.0
"""Seconds to connect, to send, and of silence in an answer, which has a time of its own as a whole."""
PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts; the last one again and again."""
LONGEST_PAUSE: Final = 10.0
"""Seconds between attempts where the server asks for so many, or for more."""
PAGE_SIZE: Final = 125
"""A node has 110 pods by default: one answer."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BROKEN: Final = (OSError, http.client.HTTPException)
PASSING: Final = (errors.Unreachable, errors.TooManyRequests, errors.ServerError)
"""What a later attempt may not meet."""
STARTING: Final = (errors.Unauthorized, errors.Forbidden)
STARTING_SECONDS: Final = 10.0
"""For how long an API server that has just started may refuse what it allows, as it has not read its roles and keys yet."""
LIST_SECONDS: Final = 120.0
"""For all pages of a list."""
LONGEST_LIST: Final = 20_000
"""Objects of a list: agents ask for what is on one node, or in one namespace."""
BETWEEN: Final = "something between the API server and this program may be broken"
UNKNOWN: Final = "they have expired, or the service account, or the pod that they are for, was deleted"
LISTINGS: Final = 3
"""How often a list is begun anew whose next page is no longer kept."""
UNREAD: Final = "managedFields"
"""What makes up half of an object, and most of the memory that it takes; nobody reads it in a list."""


class _Listed(msgspec.Struct):
    metadata: dict[str, msgspec.Raw]
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None

    def object(self) -> Object:
        known = {key: msgspec.json.decode(value) for key, value in self.metadata.items() if key != UNREAD}
        return {"metadata": known, "spec": self.spec or {}, "status": self.status or {}}


class _Page(TypedDict, total=False):
    metadata: Any
    items: list[_Listed] | dict[str, Any] | str | float | bool | None


class ApiServer(Protocol):
    """Read and write objects by their paths, such as /api/v1/nodes/gpu-1."""

    def get(self, path: str) -> Object:
        """Return an object. Raises errors.ApiError, errors.Unreachable."""
        ...

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects that selectors choose. Raises errors.ApiError, errors.Unreachable."""
        ...

    def create(self, path: str, body: Object) -> Object:
        """Create an object, or a subresource such as an eviction. Raises errors.ApiError, errors.Unreachable."""
        ...

    def patch(self, path: str, body: object, kind: str = MERGE_PATCH) -> Object:
        """Change an object. Raises errors.ApiError, errors.Unreachable."""
        ...

    def delete(self, path: str, body: Object | None = None) -> None:
        """Delete an object. Raises errors.ApiError, errors.Unreachable."""
        ...

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Give all that is asked for meanwhile so many seconds together."""
        ...


class Access(Protocol):
    """Know where an API server is, and how to be let in."""

    @property
    def server(self) -> str: ...

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must carry; empty where that is its host's."""
        ...

    @property
    def proxy(self) -> Proxy | None:
        """The HTTP proxy in front of the server."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the headers by which the server knows us, as they are now. Raises errors.KubeconfigError."""
        ...

    def context(self) -> ssl.SSLContext:
        """Return whom we trust. Raises errors.KubeconfigError."""
        ...


@dataclass(frozen=True, slots=True)
class PodAccess:
    """Use the service account of the pod, whose token the kubelet replaces from time to time."""

    server: str
    folder: Path = SERVICE_ACCOUNT
    server_name: str = ""
    proxy: None = None

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token."""
        try:
            return {"Authorization": f"Bearer {(self.folder / 'token').read_text(encoding='ascii').strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            raise errors.KubeconfigError(f"the service account's token cannot be read: {error}") from None

    def context(self) -> ssl.SSLContext:
        """Return the trust in the cluster's authority."""
        try:
            context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        except OSError as error:  # ssl.SSLError is one, too
            raise errors.KubeconfigError(f"the service account's ca.crt cannot be used: {error}") from None
        # Python 3.13 turns this on; it refuses the authorities of many existing clusters, which lack a key identifier.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def find_access(kubeconfig: str = "", environ: Mapping[str, str] = os.environ) -> Access:
    """Find the API server: by a kubeconfig, in a pod by its service account. Raises errors.KubeconfigError."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if host and not kubeconfig and not environ.get("KUBECONFIG"):
        if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
            raise errors.KubeconfigError(f"KUBERNETES_SERVICE_PORT: {port[:100]!r} is no port")
        return PodAccess(f"https://{f'[{host}]' if ':' in host else host}:{port}")
    # What it needs is a third of the memory that an agent in a pod takes.
    from gpuward.agents.kubeconfig import KubeconfigAccess

    return KubeconfigAccess.found(kubeconfig)


@dataclass(slots=True)
class KubernetesApi:
    """Send requests one after the other. What another attempt may mend is tried again for `patience` seconds."""

    access: Access
    tell: Callable[[str], None] = lambda line: None
    """Hears of a request that takes long."""
    patience: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    _connection: http.client.HTTPConnection | None = field(default=None, init=False)
    _until: float = field(default=math.inf, init=False)
    """When no more is to be asked."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give all that is asked for meanwhile so many seconds together."""
        before = self._until
        self._until = min(before, self.monotonic() + seconds)
        try:
            yield
        finally:
            self._until = before

    def get(self, path: str) -> Object:
        """Return an object."""
        return self._ask("GET", path, part="metadata")

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects that selectors choose."""
        for pause in PAUSES[:LISTINGS - 1]:
            try:
                return self._pages(path, labels, fields)
            except errors.Gone:
                self.sleep(pause)
        return self._pages(path, labels, fields)

    def _pages(self, path: str, labels: str, fields: str) -> Objects:
        chosen = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE_SIZE)}
        found: list[Object] = []
        until, read = self.monotonic() + LIST_SECONDS, {""}
        while True:
            page = self._ask("GET", path, {key: value for key, value in chosen.items() if value}, part="items")
            found += [each.object() for each in page["items"] or ()]
            token = chosen["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return found
            if token in read:
                raise _endless(path, f"page {len(read)} leads to a page that was read before")
            if len(found) > LONGEST_LIST:
                raise _endless(path, f"it has more than {LONGEST_LIST} objects")
            if self.monotonic() >= until:
                raise _endless(path, f"it was not at its end after {LIST_SECONDS:g} s and {len(read)} pages")
            read.add(token)

    def create(self, path: str, body: Object) -> Object:
        """Create an object, or a subresource."""
        return self._ask("POST", path, {"fieldManager": names.FIELD_MANAGER}, body)

    def patch(self, path: str, body: object, kind: str = MERGE_PATCH) -> Object:
        """Change an object."""
        return self._ask("PATCH", path, {"fieldManager": names.FIELD_MANAGER}, body, kind)

    def delete(self, path: str, body: Object | None = None) -> None:
        """Delete an object."""
        self._ask("DELETE", path, body=body)

    def _ask(self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None,
             content_type: str = JSON, part: str = "") -> Object:
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        begun, attempt, why = self.monotonic(), 0, f"{self.access.server}: no answer yet"
        with told_of(self.tell, lambda: why):
            while True:
                try:
                    return self._with(part, path, self._object(self._once(method, target, body, content_type), part))
                except (*PASSING, *STARTING) as error:
                    pause, why = max(PAUSES[min(attempt, len(PAUSES) - 1)], asked_pause(error)), str(error)
                    if self.monotonic() + pause > min(begun + self._patience_with(error, method, path), self._until):
                        raise error from None
                    attempt += 1
                    self.sleep(pause)

    def _patience_with(self, error: errors.GpuwardError, method: str, path: str) -> float:
        # A budget says no with the same status as a server under load; who evicts has a patience of its own.
        if path.endswith("/eviction"):
            return 0.0
        if isinstance(error, PASSING):
            return self.patience
        # What is created may be refused for what it is, and events are dispensable.
        lasts = isinstance(error, errors.Forbidden) and method not in ("GET", "PATCH")
        return 0.0 if lasts else min(self.patience, STARTING_SECONDS)

    def _object(self, response: Response, part: str) -> Object:
        if not 200 <= response.status < 300:
            refused = refusal(response)
            if isinstance(refused, errors.Unauthorized):  # the server says no more than this one word
                raise errors.Unauthorized(f"{self.access.server} knows nobody by these credentials ({refused}): {UNKNOWN}",
                                          details=refused.details)
            raise refused
        try:
            return cast("Object", msgspec.json.decode(response.body or b"{}", type=_Page if part == "items" else dict[str, Any]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ServerError(f"the answer cannot be read: {error}") from error

    def _with(self, part: str, path: str, found: Object) -> Object:
        """Return an answer that has what it is asked for. Else a node without pods would be one of which nothing was heard."""
        if part and not isinstance(found.get(part, ""), dict if part == "metadata" else list | None):
            raise errors.ServerError(f"the answer of {self.access.server}{path} has no {part}: {BETWEEN}")
        return found

    def _once(self, method: str, target: str, body: object, content_type: str) -> Response:
        headers = {"Accept": JSON, "User-Agent": "gpuward", **self.access.headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        fresh = self._connection is None
        timeout = self._timeout()
        connection = self._connection = self._connection or self._connect()
        connection.timeout = timeout
        answer_in_time = partial(AnswerInTime, seconds=self._until - self.monotonic())
        connection.response_class = cast("type[http.client.HTTPResponse]", answer_in_time)
        path = urlsplit(self.access.server).path.rstrip("/") + target
        content = msgspec.json.encode(body) if body is not None else None
        try:
            if connection.sock is not None:  # the answer before may have left less
                connection.sock.settimeout(timeout)
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return Response(answer.status, dict(answer.getheaders()), answer.read())
        except BROKEN as error:
            self.close()
            # A server closes connections that nobody used for a while, and says so with the next request only.
            if not fresh and method == "GET" and isinstance(error, ConnectionError):
                return self._once(method, target, body, content_type)
            by = f" by the proxy {self.access.proxy.url}" if self.access.proxy is not None else ""
            raise errors.Unreachable(f"{self.access.server}{by}: {str(error) or type(error).__name__}") from error
        except errors.GpuwardError:  # told to end: who asks once more finds no half request
            self.close()
            raise
        except ValueError:  # its words repeat the header, and so the token
            self.close()
            raise errors.KubeconfigError("a request cannot be sent: its token or its server's name has "
                                         "characters that none may have") from None

    def _connect(self) -> http.client.HTTPConnection:
        server = urlsplit(self.access.server)
        host, port = server.hostname or "", server.port or (80 if server.scheme == "http" else 443)
        proxy = self.access.proxy
        front = urlsplit(proxy.url) if proxy is not None else None
        at = (front.hostname or "", front.port) if front is not None else (host, port)
        connection = (http.client.HTTPConnection(*at) if server.scheme == "http" else
                      _Secure(*at, self.access.context(), self.access.server_name or host))
        if proxy is not None:
            # Python 3.11 puts no brackets around an IPv6 address that it asks a proxy for.
            connection.set_tunnel(f"[{host}]" if ":" in host else host, port, proxy.headers)
        return connection

    def _timeout(self) -> float:
        if (left := self._until - self.monotonic()) <= 0:
            raise errors.Unreachable(f"{self.access.server}: its time was up before it was asked")
        return min(TIMEOUT, left)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Secure(http.client.HTTPConnection):
    """Connect over TLS to a server whose certificate may carry another name than its host's."""

    def __init__(self, host: str, port: int | None, trusted: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port)
        self.default_port, self._trusted, self._name = 443, trusted, name

    def connect(self) -> None:
        """Connect, and see whose certificate the server has."""
        super().connect()
        self.sock = self._trusted.wrap_socket(self.sock, server_hostname=self._name)


def asked_pause(error: errors.GpuwardError) -> float:
    """Return the seconds that a server wants to be left alone for."""
    return min((error.retry_after if isinstance(error, errors.ApiError) else None) or 0.0, LONGEST_PAUSE)


def _endless(path: str, why: str) -> errors.ServerError:
    return errors.ServerError(f"the list of {path} cannot be read to its end: {why}: {BETWEEN}")
