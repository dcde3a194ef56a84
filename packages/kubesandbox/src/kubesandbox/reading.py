"""GET: one object, a list (in pages, selected), a watch; as JSON, as a Table or as metadata only."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, messages, selectors, tables
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.store import without_kind
from kubesandbox.watch import Watch, Wish, too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.catalog import Served, Target
    from kubesandbox.store import Store

Object = dict[str, Any]

KEPT_PAGES: Final = 64
"""How many unfinished paged lists are remembered; the oldest then answer 410."""


_NEWEST: Final = -1
"""Stands in a continue token for no version in particular."""


class Reader:
    """Answer reads from a store."""

    def __init__(self, store: Store, watch_delay: Callable[[str], float]) -> None:
        self._store = store
        self._watch_delay = watch_delay
        self._pages: OrderedDict[str, list[Object]] = OrderedDict()

    def get(self, target: Target, request: Request) -> Answer:
        """Return one object; raise `errors.NotFound` when there is none."""
        found = self._store.get(target.served.storage_key, target.namespace, target.name or "")
        shape = _shape(request)
        if shape == "Table":
            return messages.answer(tables.render(target.served, [found], self._store.now(), _rows_hold(request)))
        if shape == "Metadata":
            return messages.answer(partial(found))
        return messages.answer(self._json(target.served, found))

    def listing(self, target: Target, request: Request) -> Answer:
        """Return the objects that the selectors want, `limit` at a time."""
        version = request.query.get("resourceVersion") or "0"
        token = request.query.get("continue")
        if token:
            found, version = self._resume(target, request, token)
        else:
            self._check_version(request, _number(version))
            found, version = self.select(target, request), str(self._store.version)
        limit = request.seconds("limit") or 0
        meta: Object = {"resourceVersion": version}
        if limit and len(found) > limit:
            found, rest = found[:limit], found[limit:]
            meta["continue"] = self._keep(version, rest)
            if not (request.query.get("labelSelector") or request.query.get("fieldSelector")):
                meta["remainingItemCount"] = len(rest)
        return self._listed(target.served, found, meta, request)

    def select(self, target: Target, request: Request) -> list[Object]:
        """Return the stored objects that a request's namespace, name and selectors want."""
        served = target.served
        labels = selectors.parse_labels(request.query.get("labelSelector") or "")
        fields = selectors.parse_fields(served.resource, request.query.get("fieldSelector") or "")
        return [obj for obj in self._candidates(target, fields)
                if selectors.match_labels(labels, obj) and selectors.match_fields(served.resource, fields, obj)]

    def _candidates(self, target: Target, fields: tuple[selectors.FieldRequirement, ...]) -> list[Object]:
        key = target.served.storage_key
        wanted = {field.field: field.value for field in fields if field.equal}
        if key == "pods" and wanted.get("spec.nodeName"):
            found = self._store.lookup("pods", "node", wanted["spec.nodeName"])
            return [pod for pod in found if target.namespace in (None, pod["metadata"]["namespace"])]
        return self._store.list(key, target.namespace)

    def watch(self, target: Target, request: Request) -> Stream:
        """Return the stream of changes; the watch begins now, not when the stream is first read."""
        served = target.served
        labels = selectors.parse_labels(request.query.get("labelSelector") or "")
        fields = selectors.parse_fields(served.resource, request.query.get("fieldSelector") or "")
        namespace, name = target.namespace, target.name

        def matches(obj: Object) -> bool:
            meta = obj["metadata"]
            return (namespace in (None, meta.get("namespace")) and name in (None, meta["name"])
                    and selectors.match_labels(labels, obj) and selectors.match_fields(served.resource, fields, obj))

        version = request.query.get("resourceVersion") or ""
        initial = request.flag("sendInitialEvents") or version in ("", "0")
        bookmarks = request.flag("allowWatchBookmarks")
        wish = Wish(
            resource_key=served.storage_key, since=None if initial else _number(version), matches=matches,
            encode=self._line(served, request), bookmark=_bookmark(served) if bookmarks else None,
            initial=tuple(obj for obj in self._store.list(served.storage_key, namespace) if matches(obj)) if initial else (),
            ends_initial=request.flag("sendInitialEvents"), seconds=request.seconds("timeoutSeconds"))
        watch = Watch(self._store, wish, self._watch_delay)
        return Stream(watch.lines, watch.close)

    def _line(self, served: Served, request: Request) -> Callable[[str, Object], bytes]:
        shape, holds = _shape(request), _rows_hold(request)

        def encode(kind: str, obj: Object) -> bytes:
            if shape == "Table":
                body = messages.encode(tables.render(served, [obj], self._store.now(), holds))
            elif shape == "Metadata":
                body = messages.encode(partial(obj))
            else:
                body = self._json(served, obj)
            return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

        return encode

    def _json(self, served: Served, obj: Object) -> bytes:
        shown = served.show(obj)
        if shown is not obj:
            return messages.encode(shown)
        head = messages.encode({"kind": obj["kind"], "apiVersion": obj["apiVersion"]})
        return head[:-1] + b"," + self._store.encoded(obj)[1:]

    def _item(self, served: Served, obj: Object) -> bytes:
        """Return an object as part of a list: built-in ones leave out what the list's own kind says."""
        if served.resource.custom:
            return self._json(served, obj)
        shown = served.show(obj)
        return self._store.encoded(obj) if shown is obj else messages.encode(without_kind(shown))

    def _listed(self, served: Served, found: list[Object], meta: Object, request: Request) -> Answer:
        shape = _shape(request)
        if shape == "Table":
            table = tables.render(served, found, self._store.now(), _rows_hold(request))
            table["metadata"] = meta
            return messages.answer(table)
        if shape == "Metadata":
            return messages.answer({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                                    "items": [partial(obj) for obj in found]})
        head = messages.encode({"kind": served.resource.kind + "List", "apiVersion": served.resource.api_version,
                                "metadata": meta})
        items = b",".join(self._item(served, obj) for obj in found)
        return messages.answer(head[:-1] + b',"items":[' + items + b"]}")

    def _check_version(self, request: Request, version: int) -> None:
        if request.query.get("resourceVersionMatch") and not request.query.get("resourceVersion"):
            raise _forbidden_match()
        if version > self._store.version:
            raise too_large(version, self._store.version)
        if request.query.get("resourceVersionMatch") == "Exact" and version != self._store.version:
            raise errors.Gone("The provided resource version is too old to be listed exactly.")

    def _keep(self, version: str, rest: list[Object]) -> str:
        token = _token(int(version), _place(rest[0]))
        self._pages[token] = rest
        while len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)
        return token

    def _resume(self, target: Target, request: Request, token: str) -> tuple[list[Object], str]:
        try:
            read = json.loads(base64.urlsafe_b64decode(token))
            version, start = int(read["rv"]), tuple(read["start"].split("/"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise errors.BadRequest("continue key is not valid: unable to decode") from None
        if version == _NEWEST:
            found = self.select(target, request)
            return [obj for obj in found if tuple(_place(obj).split("/")) >= start], str(self._store.version)
        rest = self._pages.get(token)
        if rest is None or version < self._store.compacted(target.served.storage_key):
            raise messages.PageExpired(_token(_NEWEST, read["start"]))
        return rest, str(version)


def _place(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _token(version: int, start: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}).encode()).decode()


def _forbidden_match() -> errors.Invalid:
    told = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    cause = {"reason": "FieldValueForbidden", "message": told, "field": "resourceVersionMatch"}
    return errors.Invalid(f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {told}',
                          details={"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]})


def partial(obj: Object) -> Object:
    """Return an object's metadata as the API server gives it to who asks for nothing else."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _shape(request: Request) -> str:
    if "as=Table" in request.accept:
        return "Table"
    return "Metadata" if "as=PartialObjectMetadata" in request.accept else "JSON"


def _rows_hold(request: Request) -> str:
    return request.query.get("includeObject") or "Metadata"


def _number(version: str) -> int:
    try:
        return int(version)
    except ValueError:
        raise errors.BadRequest(f'invalid resource version: resourceVersion: Invalid value: "{version}": strconv.ParseUint: '
                                f'parsing "{version}": invalid syntax') from None


def _bookmark(served: Served) -> Callable[[str, Object], bytes]:
    def encode(version: str, annotations: Object) -> bytes:
        meta: Object = {"resourceVersion": version, "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        return messages.encode({"type": "BOOKMARK", "object": {
            "kind": served.resource.kind, "apiVersion": served.resource.api_version, "metadata": meta}}) + b"\n"

    return encode
