"""The typed verbs of the Kubernetes API over a transport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gpuward import errors, names
from gpuward.kube.http.refusals import refusal, watch_error
from gpuward.kube.http.stats import RequestStats
from gpuward.kube.resources import GVR, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuward.kube.http.transport import Response, Transport

T = TypeVar("T")

PAGE_SIZE: Final = 500
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
MANAGED: Final[dict[str, str]] = {"fieldManager": names.FIELD_MANAGER}
METHODS: Final = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold the object in an answer: as bytes, as a dict, or as any type that msgspec can decode."""

    body: bytes

    def object(self) -> dict[str, Any]:
        """Return the object as plain JSON data."""
        return self.into(dict[str, Any])

    def into(self, kind: type[T]) -> T:
        """Return the object as `kind`. Raises errors.ServerError when the body is not such an object."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ServerError(f"the answer cannot be read: {error}") from error


class ListMeta(msgspec.Struct, rename="camel"):
    """Read the metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """Hold one page of a list; its items stay undecoded (`bytes(item)` is the JSON of one).

    Items of built-in kinds carry no apiVersion and kind of their own.
    """

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None

    @property
    def version(self) -> str:
        """Return the resource version that all pages of the list show."""
        return self.metadata.resource_version


class WatchEvent(msgspec.Struct):
    """Hold one event of a watch; its object stays undecoded."""

    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Selection:
    """Say which objects of a resource are meant. An empty namespace means all of them."""

    resource: GVR
    namespace: str = ""
    labels: str = ""
    """A label selector, as kubectl's --selector."""
    fields: str = ""
    """A field selector, as kubectl's --field-selector."""

    @property
    def path(self) -> str:
        """Return the path of the collection."""
        return self.resource.path(self.namespace)

    @property
    def query(self) -> dict[str, str]:
        """Return the selectors as query parameters."""
        both = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in both.items() if value}


class ServerVersion(msgspec.Struct, rename="camel"):
    """Read what /version says."""

    git_version: str = ""
    major: str = ""
    minor: str = ""


class Client:
    """Speak the Kubernetes API.

    Every verb raises errors.Unreachable when no answer came (a write may then have happened or not) and the subclass
    of errors.ApiError that fits when the server refused. Objects go in as plain JSON data, answers come out as
    `Answer`. Namespaces are "" for cluster-scoped resources. `timeout` is in seconds for one request.
    """

    def __init__(self, transport: Transport, *, timeout: float = 30.0) -> None:
        self.transport = transport
        self.timeout = timeout
        self.stats = RequestStats()
        self.heard: Callable[[float, float], None] = lambda date, asked: None
        """Called with the server's time in each answer, and the event loop's when it was asked for; see `servertime`."""
        self.date: float | None = None
        """The server's time of its last answer, watches aside, in Unix seconds; None where it does not tell."""
        self._date = ""

    async def get(self, resource: GVR, name: str, namespace: str = "") -> Answer:
        """Read one object with a quorum read: never older than any write that was answered before."""
        return await self._send("get", resource.path(namespace, name), str(resource))

    async def logs(self, pod: str, namespace: str, container: str, *, lines: int, most: int, previous: bool = False) -> bytes:
        """Read the last lines of a container's log, `most` bytes of them; of the one before it, if that is asked for."""
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(most), "timestamps": "true"}
        query |= {"previous": "true"} if previous else {}
        return (await self._send("get", PODS.path(namespace, pod, "log"), _label(PODS, "log"), query=query)).body

    async def pages(self, selection: Selection, *, limit: int = PAGE_SIZE) -> AsyncGenerator[Page, None]:
        """Yield the pages of a list with at most `limit` items each (0: one page), all of one resource version.

        Raises errors.Gone when the list took so long that the server no longer keeps its version: start again.
        """
        query = selection.query | ({"limit": str(limit)} if limit else {})
        while True:
            answer = await self._send("list", selection.path, str(selection.resource), query=query)
            page = answer.into(Page)
            yield page
            if not page.metadata.continue_:
                return
            query = query | {"continue": page.metadata.continue_}

    async def list(self, selection: Selection, *, limit: int = PAGE_SIZE) -> AsyncGenerator[msgspec.Raw, None]:
        """Yield the objects of a list one by one, page after page, undecoded."""
        async with contextlib.aclosing(self.pages(selection, limit=limit)) as pages:
            async for page in pages:
                for item in page.items or ():
                    yield item

    async def create(self, resource: GVR, obj: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Create an object in the namespace that its metadata names. Raises errors.AlreadyExists for a taken name."""
        namespace = _namespace(obj)
        if resource.namespaced and not namespace:
            raise errors.InputError("metadata.namespace", "", f"name the namespace that the {resource} belong in")
        path = resource.path(namespace)
        query = MANAGED | ({"dryRun": "All"} if dry_run else {})
        return await self._send("create", path, str(resource), body=_encode(obj), query=query)

    async def replace(self, resource: GVR, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> Answer:
        """Replace a whole object. Its metadata.resourceVersion, when set, is a precondition (errors.Conflict)."""
        path = resource.path(_namespace(obj), _name(obj), subresource)
        query = MANAGED | ({"dryRun": "All"} if dry_run else {})
        return await self._send("update", path, _label(resource, subresource), body=_encode(obj), query=query)

    async def patch_json(
        self,
        resource: GVR,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Answer:
        """Apply a JSON patch (RFC 6902); its `test` operations are preconditions.

        Raises errors.Conflict when a `test` fails or a path is missing. (kube-apiserver answers that with a 422
        without causes, unlike the 422 of an object that breaks its schema: apiserver, endpoints/handlers/patch.go.)
        """
        path = resource.path(namespace, name, subresource)
        try:
            return await self._send(
                "patch", path, _label(resource, subresource), body=_encode(operations), content_type=JSON_PATCH
            )
        except errors.Invalid as error:
            if error.details.get("causes"):
                raise
            raise _unmet(f"{resource} {name}", error) from error

    async def patch_merge(  # noqa: PLR0913 (each is a part of the request)
        self, resource: GVR, name: str, patch: Mapping[str, Any], namespace: str = "", *, subresource: str = "",
        strategic: bool = False, dry_run: bool = False,
    ) -> Answer:
        """Apply a merge patch (RFC 7386). Its metadata.uid and .resourceVersion are preconditions (errors.Conflict).

        A `strategic` one, of Kubernetes' own kinds alone, merges lists by the keys of their items.
        kube-apiserver answers 409 to another resourceVersion, and to another uid 422 as to a field that cannot change.
        """
        path = resource.path(namespace, name, subresource)
        try:
            return await self._send(
                "patch", path, _label(resource, subresource), body=_encode(patch),
                content_type=STRATEGIC_PATCH if strategic else MERGE_PATCH, query=MANAGED | ({"dryRun": "All"} if dry_run else {})
            )
        except errors.Invalid as error:
            if {cause.get("field") for cause in error.details.get("causes") or ()} != {"metadata.uid"}:
                raise
            raise _unmet(f"{resource} {name}", error) from error

    async def patch_status(
        self, resource: GVR, name: str, status: Mapping[str, Any], namespace: str = ""
    ) -> Answer:
        """Merge `status` into an object's status."""
        return await self.patch_merge(resource, name, {"status": status}, namespace, subresource="status")

    async def delete(
        self,
        resource: GVR,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        propagation: str = "",
    ) -> Answer:
        """Delete an object; the answer is the object while it still terminates, or a Status once it is gone.

        `uid` and `version`, when given, must be those of the object (errors.Conflict). `propagation` is Background, Foreground or
        Orphan; empty means the resource's default.
        """
        body = _encode(_delete_options(uid, None, propagation, version))
        return await self._send("delete", resource.path(namespace, name), str(resource), body=body)

    async def delete_pod(
        self, name: str, namespace: str, *, uid: str = "", version: str = "", grace_seconds: int | None = None
    ) -> Answer:
        """Delete a pod as `delete` does; one that terminates already has less time from now on if `grace_seconds` is less."""
        body = _encode(_delete_options(uid, grace_seconds, "", version))
        return await self._send("delete", PODS.path(namespace, name), str(PODS), body=body)

    async def evict(
        self, name: str, namespace: str, *, uid: str = "", grace_seconds: int | None = None, dry_run: bool = False
    ) -> Answer:
        """Evict a pod through policy/v1; the answer is a Status.

        Raises errors.TooManyRequests when a disruption budget protects the pod, errors.ServerError when several
        budgets select it, errors.Conflict when `uid` is given and is not the pod's.
        """
        options = _delete_options(uid, grace_seconds, "")
        if dry_run:
            options["dryRun"] = ["All"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = PODS.path(namespace, name, "eviction")
        return await self._send("create", path, _label(PODS, "eviction"), body=_encode(eviction))

    async def watch(
        self, selection: Selection, version: str, *, server_seconds: int, idle_seconds: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after `version` until the server ends the watch, about `server_seconds` later.

        Bookmarks are asked for and come as events of type BOOKMARK. Raises errors.Gone when `version` is no longer
        kept, errors.Unreachable when the connection breaks or stays silent for `idle_seconds`.
        """
        query = selection.query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(server_seconds),
            "resourceVersion": version,
        }
        lines = self.transport.stream(selection.path, query=query, idle_timeout=idle_seconds)
        status = 200
        try:
            async for line in lines:
                event = _decode_event(line)
                if event.type == "ERROR":
                    raise watch_error(bytes(event.object))
                yield event
        except (errors.ApiError, errors.Unreachable) as error:
            status = error.status if isinstance(error, errors.ApiError) else 0
            raise
        finally:
            self.stats.count("watch", str(selection.resource), status)
            if isinstance(lines, AsyncGenerator):  # ends the connection now, not when the garbage is collected
                await lines.aclose()

    async def server_version(self) -> ServerVersion:
        """Ask for the server's version: the cheapest way to learn whether it can be reached."""
        return (await self._send("get", "/version", "version")).into(ServerVersion)

    async def close(self) -> None:
        """Close the transport."""
        await self.transport.close()

    async def _send(
        self,
        verb: str,
        path: str,
        label: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        if query is None and verb == "patch":
            query = MANAGED
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            response = await self.transport.request(
                METHODS[verb], path, query=query, body=body, content_type=content_type, timeout=self.timeout
            )
        except errors.Unreachable:
            self.stats.count(verb, label, 0, loop.time() - asked)
            raise
        self.stats.count(verb, label, response.status, loop.time() - asked)
        self._note_date(response.header("Date") or "", asked)
        return _accept(response)

    def _note_date(self, text: str, asked: float) -> None:
        """Take the time in an answer; most answers have the same as the one before."""
        if text and text != self._date:
            self._date = text
            try:
                self.date = parsedate_to_datetime(text).timestamp()
            except (ValueError, OverflowError):
                self.date = None
        if text and self.date is not None:
            self.heard(self.date, asked)


def _accept(response: Response) -> Answer:
    if 200 <= response.status < 300:
        return Answer(response.body)
    raise refusal(response)


def _decode_event(line: bytes) -> WatchEvent:
    try:
        return msgspec.json.decode(line, type=WatchEvent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Unreachable(f"the watch sent a line that is not an event: {error}") from error


def _unmet(what: str, error: errors.Invalid) -> errors.Conflict:
    return errors.Conflict(f"a precondition of the patch of {what} does not hold: {error.message}",
                           status=error.status, reason=error.reason, details=error.details)


def _encode(data: object) -> bytes:
    return msgspec.json.encode(data)


def _namespace(obj: Mapping[str, Any]) -> str:
    return str(obj.get("metadata", {}).get("namespace") or "")


def _name(obj: Mapping[str, Any]) -> str:
    name = obj.get("metadata", {}).get("name")
    if not name:
        raise errors.InputError("metadata.name", name, "name the object that is to be replaced")
    return str(name)


def _label(resource: GVR, subresource: str) -> str:
    return f"{resource}/{subresource}" if subresource else str(resource)


def _delete_options(uid: str, grace_seconds: int | None, propagation: str, version: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid or version:
        options["preconditions"] = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation:
        options["propagationPolicy"] = propagation
    return options
