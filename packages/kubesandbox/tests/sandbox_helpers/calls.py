"""Requests to an API server as short sentences, for tests."""

from __future__ import annotations

import json
from typing import Any

from kubesandbox.api import ApiServer
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.store import Store

NOW = 1_700_000_000.0
PATCHES = {
    "json": "application/json-patch+json", "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
}


class Caller:
    """Send requests to one API server and read its answers."""

    def __init__(self, **options: Any) -> None:
        self.store = Store(now=lambda: NOW, **options)
        self.api = ApiServer(self.store)

    def send(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json",
             accept: str = "application/json", **query: Any) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        text = {name: str(value) for name, value in query.items() if value is not None}
        answer = self.api.handle(Request(method, path, text, data, content_type, accept))
        assert isinstance(answer, Answer)
        return answer

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.send(method, path, body, **more)
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def refused(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str, str]:
        answer = self.send(method, path, body, **more)
        status = json.loads(answer.body)
        assert status["kind"] == "Status"
        assert status["status"] == "Failure"
        assert status["code"] == answer.status
        return answer.status, status["reason"], status["message"]

    def patch(self, kind: str, path: str, body: Any, **query: Any) -> Any:
        return self.ok("PATCH", path, body, content_type=PATCHES[kind], **query)

    def watch(self, path: str, **query: Any) -> Stream:
        text = {name: str(value) for name, value in query.items()}
        stream = self.api.handle(Request("GET", path, {"watch": "1", **text}))
        assert isinstance(stream, Stream)
        return stream

    def node(self, name: str = "n", **spec: Any) -> Any:
        return self.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str = "p", node: str | None = "n", **more: Any) -> Any:
        spec = {"containers": [{"name": "c", "image": "i:1"}], **({"nodeName": node} if node else {}), **more.pop("spec", {})}
        return self.ok("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name, **more}, "spec": spec})


def kind_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of a custom resource whose spec has these properties."""
    return {"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "properties": {"state": {"type": "string"}}}}}


def definition(schema: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    """Return the CustomResourceDefinition of `things.example.com`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
                 "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                               "schema": {"openAPIV3Schema": schema or kind_schema(size={"type": "integer", "minimum": 0},
                                                                                  color={"type": "string", "default": "red"})},
                               **version}]},
    }


THINGS = "/apis/example.com/v1/things"
THING = {"apiVersion": "example.com/v1", "kind": "Thing"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
