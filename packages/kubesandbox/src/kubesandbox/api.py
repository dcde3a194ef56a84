"""The sandbox's API server: from a request to an answer or a stream, without any transport.

Every request is handled in one step, so it is atomic: nothing else runs between its reads and its write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import admission, errors, eviction, messages, openapi, preconditions, reviews, scaling
from kubesandbox.catalog import Catalog, Target
from kubesandbox.crds import Definitions
from kubesandbox.discovery import AGGREGATED, Discovery
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.namespaces import Namespaces
from kubesandbox.podlogs import PodLogs
from kubesandbox.reading import Reader
from kubesandbox.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.store import Store
    from kubesandbox.writing import Webhook

Object = dict[str, Any]

PROBES: Final = frozenset({"/healthz", "/readyz", "/livez"})
_DOCUMENTS: Final = frozenset({"/version", "/api", "/apis", "/openapi/v2", "/openapi/v3"})
_STREAMS: Final = {"exec": "run commands in", "attach": "attach to", "portforward": "forward ports to", "proxy": "connect to",
                   "ephemeralcontainers": "add others to"}
"""What is asked of running containers, by the last step of the path."""
_CLASSES: Final = "priorityclasses.scheduling.k8s.io"


def at_once(resource_key: str) -> float:
    """Delay no watch."""
    del resource_key
    return 0.0


def _not_allowed() -> errors.MethodNotAllowed:
    return errors.MethodNotAllowed("the server does not allow this method on the requested resource")


class ApiServer:
    """Serve a store's objects.

    `watch_delay` gives, per resource key, the seconds by which watches lag behind writes; it may be replaced at any time.
    `log_sources` has the logs of single pods by (namespace, name); `logs.otherwise` makes those of the others.
    """

    def __init__(self, store: Store, watch_delay: Callable[[str], float] = at_once) -> None:
        self.store = store
        self.watch_delay = watch_delay
        self.logs = PodLogs(store)
        self.log_sources = self.logs.sources
        self.definitions = Definitions(store)
        self.catalog = Catalog(store, self.definitions)
        self._namespaces = Namespaces(store)
        self._discovery = Discovery(self.catalog)
        self._reader = Reader(store, lambda key: self.watch_delay(key))
        self.webhooks: list[Webhook] = []
        """Asked about each write of an object through the API, not about status."""
        self._writer = Writer(store, self.webhooks)
        for name, value in admission.PRIORITIES.items():
            if store.find(_CLASSES, None, name) is None:
                store.create(_CLASSES, {"metadata": {"name": name}, "value": value})

    def handle(self, request: Request) -> Answer | Stream:
        """Answer a request; errors become Status objects. Watches need a running event loop."""
        try:
            return self._route(request)
        except errors.ApiError as error:
            return messages.refusal(error)

    def _route(self, request: Request) -> Answer | Stream:
        path = request.path.rstrip("/") or "/"
        if path.startswith(tuple(PROBES)):
            return Answer(200, b"ok", content_type="text/plain")
        document = self._document(path, request)
        if document is not None:
            if document.get("swagger") and openapi.PROTO in request.accept:
                return Answer(200, b"", content_type=openapi.PROTO.replace("@", "."))
            kind = AGGREGATED if document.get("kind") == "APIGroupDiscoveryList" else messages.JSON
            return Answer(200, messages.encode(document), content_type=kind)
        review = reviews.find(path)
        if review is not None and request.method == "POST":
            body = messages.parse(request.body, request.content_type)
            return messages.answer(reviews.answer(review, body if isinstance(body, dict) else {}), 201)
        if path in _DOCUMENTS:
            raise _not_allowed()
        if not self.catalog.knows(path):
            return Answer(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
        self._refuse_streams(path)
        target = self.catalog.target(path)
        if target.subresource not in (None, "status"):
            return self._subresource(target, request)
        return self._resource(target, request)

    def _refuse_streams(self, path: str) -> None:
        """Say why a container cannot be reached; kubectl shows it."""
        parent, _, asked = path.rpartition("/")
        if asked in _STREAMS and parent.count("/") == 6 and parent.split("/")[5] == "pods":
            target = self.catalog.target(parent)
            self.store.get("pods", target.namespace, target.name or "")
            raise errors.MethodNotAllowed(f"the sandbox has no containers to {_STREAMS[asked]}: its pods are simulated")

    def _document(self, path: str, request: Request) -> Object | None:
        if request.method != "GET":
            return None
        return self._discovery.find(path, request.accept) or openapi.find(path, self.catalog, self.definitions)

    def _resource(self, target: Target, request: Request) -> Answer | Stream:
        if request.method == "GET":
            return self._read(target, request)
        if target.served.resource.namespaced and target.namespace is None and request.method != "DELETE":
            raise _not_allowed()
        single = target.name is not None
        if request.method == "POST" and not single:
            return self._writer.create(target, request)
        if request.method == "PUT" and single:
            return self._writer.replace(target, request)
        if request.method == "PATCH" and single:
            return self._writer.patch(target, request)
        if request.method == "DELETE" and target.subresource is None:
            if single:
                return self._writer.delete(target, request)
            return self._writer.delete_all(target, self._reader.select(target, request), request)
        raise _not_allowed()

    def _read(self, target: Target, request: Request) -> Answer | Stream:
        if request.flag("watch"):
            return self._reader.watch(target, request)
        return self._reader.get(target, request) if target.name is not None else self._reader.listing(target, request)

    def _subresource(self, target: Target, request: Request) -> Answer | Stream:
        asked = (target.subresource, request.method)
        if asked == ("eviction", "POST"):
            return eviction.evict(self.store, target, request)
        if asked == ("log", "GET"):
            return self.logs.answer(target, request)
        if asked == ("binding", "POST"):
            return self._bind(target, request)
        if asked == ("scale", "GET"):
            return messages.answer(scaling.read(self.store, target))
        if target.subresource in ("scale", "finalize") and request.method == "PUT":
            return self._writer.replace(target, request)
        if asked == ("scale", "PATCH"):
            return self._writer.patch(target, request)
        raise _not_allowed()

    def _bind(self, target: Target, request: Request) -> Answer:
        body = messages.parse(request.body, request.content_type)
        node = (body.get("target") or {}).get("name") if isinstance(body, dict) else None
        pod = self.store.get("pods", target.namespace, target.name or "")
        namespace = self.store.find("namespaces", None, target.namespace or "")
        preconditions.check_namespace(target.served.resource, pod["metadata"], namespace)
        if pod["spec"].get("nodeName"):
            raise errors.Conflict(f'Operation cannot be fulfilled on pods/binding "{target.name}": pod {target.name} is already '
                                  f'assigned to node "{pod["spec"]["nodeName"]}"')
        if not node:
            raise errors.BadRequest("target.name: Required value")
        self.store.bind(pod, node)
        return messages.success(201)
