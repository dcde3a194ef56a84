"""The verbs: what each sends, and which exception each refusal becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gpuward import errors
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import CLUSTER_POLICIES, CONFIG_MAPS, DAEMON_SETS, NODES, PODS
from tests.kube.scripted import Asked, ScriptedTransport, listed, ok, refused
from tests.kube.serving import answer, connected, serving

Call = Callable[[Client], Awaitable[Any]]
MANAGED = {"fieldManager": "gpuward"}
DELETE = {"apiVersion": "v1", "kind": "DeleteOptions"}

REQUESTS: list[tuple[str, Call, Asked]] = [
    ("get", lambda c: c.get(NODES, "n1"), Asked("GET", "/api/v1/nodes/n1", {}, None, "application/json", 0)),
    ("get in a namespace", lambda c: c.get(DAEMON_SETS, "d", "ns"),
     Asked("GET", "/apis/apps/v1/namespaces/ns/daemonsets/d", {}, None, "application/json", 0)),
    ("create", lambda c: c.create(CONFIG_MAPS, {"metadata": {"name": "m", "namespace": "ns"}}, dry_run=True),
     Asked("POST", "/api/v1/namespaces/ns/configmaps", MANAGED | {"dryRun": "All"},
           {"metadata": {"name": "m", "namespace": "ns"}}, "application/json", 0)),
    ("replace for show", lambda c: c.replace(DAEMON_SETS, {"metadata": {"name": "d", "namespace": "ns"}}, dry_run=True),
     Asked("PUT", "/apis/apps/v1/namespaces/ns/daemonsets/d", MANAGED | {"dryRun": "All"},
           {"metadata": {"name": "d", "namespace": "ns"}}, "application/json", 0)),
    ("replace", lambda c: c.replace(CLUSTER_POLICIES, {"metadata": {"name": "p"}}, subresource="status"),
     Asked("PUT", "/apis/nvidia.com/v1/clusterpolicies/p/status", MANAGED, {"metadata": {"name": "p"}},
           "application/json", 0)),
    ("JSON patch", lambda c: c.patch_json(NODES, "n1", [{"op": "remove", "path": "/x"}]),
     Asked("PATCH", "/api/v1/nodes/n1", MANAGED, [{"op": "remove", "path": "/x"}],
           "application/json-patch+json", 0)),
    ("merge patch", lambda c: c.patch_merge(PODS, "p", {"metadata": {"uid": "u"}}, "ns"),
     Asked("PATCH", "/api/v1/namespaces/ns/pods/p", MANAGED, {"metadata": {"uid": "u"}},
           "application/merge-patch+json", 0)),
    ("status", lambda c: c.patch_status(CLUSTER_POLICIES, "p", {"state": "ready"}),
     Asked("PATCH", "/apis/nvidia.com/v1/clusterpolicies/p/status", MANAGED, {"status": {"state": "ready"}},
           "application/merge-patch+json", 0)),
    ("delete", lambda c: c.delete(PODS, "p", "ns", uid="u", version="7", propagation="Background"),
     Asked("DELETE", "/api/v1/namespaces/ns/pods/p", {},
           DELETE | {"preconditions": {"uid": "u", "resourceVersion": "7"}, "propagationPolicy": "Background"},
           "application/json", 0)),
    ("plain delete", lambda c: c.delete(NODES, "n1"),
     Asked("DELETE", "/api/v1/nodes/n1", {}, DELETE, "application/json", 0)),
    ("evict", lambda c: c.evict("p", "ns", uid="u", dry_run=True),
     Asked("POST", "/api/v1/namespaces/ns/pods/p/eviction", {},
           {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "ns"},
            "deleteOptions": DELETE | {"preconditions": {"uid": "u"}, "dryRun": ["All"]}}, "application/json", 0)),
    ("version", lambda c: c.server_version(), Asked("GET", "/version", {}, None, "application/json", 0)),
]


@pytest.mark.parametrize(("call", "expected"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_what_a_verb_sends(call: Call, expected: Asked) -> None:
    transport = ScriptedTransport(lambda asked: ok({"metadata": {"name": "x"}}))
    asyncio.run(_await(call(Client(transport))))
    (asked,) = transport.asked
    asked.at = 0
    assert asked == expected


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Named(msgspec.Struct):
    metadata: dict[str, str]


def test_an_answer_is_bytes_data_or_a_type() -> None:
    client = Client(ScriptedTransport(lambda asked: ok({"metadata": {"name": "n1"}})))
    got = asyncio.run(client.get(NODES, "n1"))
    assert got.body == b'{"metadata":{"name":"n1"}}'
    assert got.object() == {"metadata": {"name": "n1"}}
    assert got.into(Named) == Named({"name": "n1"})
    with pytest.raises(errors.ServerError, match="cannot be read: Expected `str`"):
        got.into(str)


@pytest.mark.parametrize(("details", "kind"), [
    ({}, errors.Conflict),
    ({"causes": [{"field": "spec", "message": "bad"}]}, errors.Invalid),
])
def test_a_failed_test_of_a_json_patch_is_a_conflict(details: dict[str, Any], kind: type[errors.ApiError]) -> None:
    client = Client(ScriptedTransport(lambda asked: refused(422, "Invalid", "our request is wrong", **details)))
    with pytest.raises(errors.ApiError, match="our request is wrong") as caught:
        asyncio.run(client.patch_json(NODES, "n1", [{"op": "test", "path": "/x", "value": 1}]))
    assert type(caught.value) is kind
    assert caught.value.status == 422


def test_a_list_is_read_page_by_page() -> None:
    pages = {"": listed(7, {"n": 1}, {"n": 2}, more="c1"), "c1": listed(7, {"n": 3})}
    transport = ScriptedTransport(lambda asked: pages[asked.query.get("continue", "")])
    client = Client(transport)

    async def run() -> list[Any]:
        selection = Selection(PODS, labels="app=x", fields="spec.nodeName=n1")
        return [msgspec.json.decode(item) async for item in client.list(selection, limit=2)]

    assert asyncio.run(run()) == [{"n": 1}, {"n": 2}, {"n": 3}]
    selectors = {"labelSelector": "app=x", "fieldSelector": "spec.nodeName=n1", "limit": "2"}
    assert [asked.query for asked in transport.asked] == [selectors, selectors | {"continue": "c1"}]
    assert client.stats.total("list", "pods") == 2


def test_a_list_without_items_is_empty() -> None:
    client = Client(ScriptedTransport(lambda asked: ok({"metadata": {"resourceVersion": "3"}, "items": None})))

    async def run() -> list[Any]:
        return [item async for item in client.list(Selection(NODES), limit=0)]

    assert asyncio.run(run()) == []


async def watching(client: Client) -> list[tuple[str, bytes]]:
    events = client.watch(Selection(PODS, "ns"), "5", server_seconds=300, idle_seconds=9)
    return [(event.type, bytes(event.object)) async for event in events]


def test_a_watch_over_http() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path, dict(request.query)))
        return web.Response(body=b'{"type":"ADDED","object":{"a":1}}\n{"type":"BOOKMARK","object":{}}\n')

    async def run() -> list[tuple[str, bytes]]:
        async with serving(handler) as url, connected(url) as transport:
            return await watching(Client(transport))

    assert asyncio.run(run()) == [("ADDED", b'{"a":1}'), ("BOOKMARK", b"{}")]
    assert seen == [("/api/v1/namespaces/ns/pods", {
        "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300", "resourceVersion": "5"})]


@pytest.mark.parametrize(("line", "kind"), [
    (b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}\n', errors.Gone),
    (b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n', errors.ServerError),
    (b'{"type":"ERROR","object":[]}\n', errors.ServerError),
    (b"not json\n", errors.Unreachable),
])
def test_a_watch_that_reports_an_error(line: bytes, kind: type[Exception]) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=line)

    async def run() -> None:
        async with serving(handler) as url, connected(url) as transport:
            with pytest.raises(kind):
                await watching(Client(transport))

    asyncio.run(run())


def test_over_http_the_whole_round_works() -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer({"echo": await request.json(), "method": request.method})

    async def run() -> Any:
        async with serving(handler) as url, connected(url) as transport:
            return (await Client(transport).patch_status(NODES, "n1", {"a": None})).object()

    assert asyncio.run(run()) == {"echo": {"status": {"a": None}}, "method": "PATCH"}


@pytest.mark.parametrize(("call", "told"), [
    (lambda c: c.get(NODES, "n1", "ns"), "nodes are not in a namespace"),
    (lambda c: c.get(PODS, "p"), "name the namespace of pods p"),
    (lambda c: c.create(PODS, {"metadata": {"name": "p"}}), "metadata.namespace"),
    (lambda c: c.replace(NODES, {"metadata": {}}), "metadata.name"),
])
def test_a_request_that_would_mean_something_else_is_not_sent(call: Call, told: str) -> None:
    transport = ScriptedTransport(lambda asked: ok({}))
    with pytest.raises(errors.InputError, match=told):
        asyncio.run(_await(call(Client(transport))))
    assert transport.asked == []
