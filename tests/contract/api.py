"""What a contract test speaks through: one API server, whichever it is, and a namespace of the test's own in it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import ssl
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import yaml

from gpuward import errors
from gpuward.kube.config.loading import from_files
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import JSON_PATCH, MERGE_PATCH, Client
from gpuward.kube.resources import NAMESPACES, NODES, SERVICE_ACCOUNTS

PATIENCE = 30.0
"""Seconds for anything that a cluster does by itself (a namespace is emptied after 5), on a machine that is busy."""
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """Hold an answer: its status, its body as JSON data, and the texts of its warnings."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> set[tuple[str, str]]:
        """Return reason and field of every cause that a refusal names."""
        listed = (self.body.get("details") or {}).get("causes") or ()
        return {(cause.get("reason", ""), cause.get("field", "")) for cause in listed}

    @property
    def warnings(self) -> list[str]:
        text = ", ".join(value for name, value in self.headers.items() if name == "Warning")
        return [json.loads(part.rstrip(", ")) for part in text.split("299 - ")[1:]]


class Watching:
    """Hand out the events of one watch, in order."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[Object] = queue.Queue()
        self.refused: errors.GpuwardError | None = None

    def next(self) -> Object:
        """Return the next event; an event of type END means that the server has ended the watch."""
        return self.arrived.get(timeout=PATIENCE)

    def until_end(self) -> list[Object]:
        """Return all events that are left when the server ends the watch."""
        found = []
        while (event := self.next())["type"] != "END":
            found.append(event)
        return found

    def until(self, kind: str, name: str) -> list[Object]:
        """Return the events up to the first of a type about an object of a name."""
        found = [self.next()]
        while (found[-1]["type"], found[-1]["object"]["metadata"].get("name")) != (kind, name):
            assert found[-1]["type"] != "END", found
            found.append(self.next())
        return found


class Server(ABC):
    """Reach one API server from synchronous code, through gpuward's own transport on a thread of its own."""

    def __init__(self, kind: str, kubeconfig: Path) -> None:
        self.kind = kind
        self.kubeconfig = kubeconfig
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._address = urlsplit(cluster["server"])
        self._authority = cluster.get("certificate-authority")
        self._token = config["users"][0]["user"].get("token", "")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.transport = AiohttpTransport(from_files([kubeconfig], None, skip_missing=False))
        self.client = Client(self.transport)

    @abstractmethod
    def compact(self) -> None:
        """Forget the changes up to now, where nothing keeps them in memory."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the changes up to now."""

    def close(self) -> None:
        self.run(self.transport.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result(3 * PATIENCE)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: Any) -> Reply:
        """Send one request as gpuward's client sends it."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        asked = {name.rstrip("_"): str(value) for name, value in query.items()}
        answer = self.run(self.transport.request(method, path, query=asked, body=data, content_type=content_type))
        return Reply(answer.status, _parsed(answer.body), answer.headers)

    def raw(self, method: str, path: str, *, accept: str, **query: Any) -> Reply:
        """Send a request that asks for a form of its own."""
        if self._authority:
            context = ssl.create_default_context(cafile=self._authority)
            connection: HTTPConnection = HTTPSConnection(self._address.netloc, timeout=PATIENCE, context=context)
        else:
            connection = HTTPConnection(self._address.netloc, timeout=PATIENCE)
        try:
            asked = "?" + urlencode({name.rstrip("_"): str(value) for name, value in query.items()}) if query else ""
            connection.request(method, path + asked, headers={"Accept": accept, "Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            return Reply(answer.status, _parsed(answer.read()), dict(answer.getheaders()))
        finally:
            connection.close()

    @contextmanager
    def watching(self, path: str, **query: Any) -> Iterator[Watching]:
        """Follow a watch while the block runs."""
        seen = Watching()
        asked = {"watch": "true", **{name: str(value) for name, value in query.items()}}
        work = self.submit(self._follow(self.transport.stream(path, query=asked, idle_timeout=PATIENCE), seen))
        try:
            yield seen
        finally:
            work.cancel()

    async def _follow(self, lines: AsyncIterator[bytes], seen: Watching) -> None:
        try:
            async for line in lines:
                seen.arrived.put(json.loads(line))
        except errors.GpuwardError as error:
            seen.refused = error
        finally:
            seen.arrived.put({"type": "END", "object": {"metadata": {}}})

    def kubectl(self, *words: str, given: str | None = None, fails: bool = False, namespace: str = "default",
                **environment: str) -> str:
        """Run kubectl and return what it says; with `fails` it must fail, and what it complains of is returned."""
        home = self.kubeconfig.parent
        command = ["kubectl", "--cache-dir", str(home / "cache"), "-n", namespace, *words]
        done = subprocess.run(command, env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(home), **environment},
                              input=given, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout


class Api:
    """Be an API server with a namespace that no other test uses; cluster-scoped objects of the test carry its name."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.ns = namespace
        self._made: list[str] = [NAMESPACES.path("", namespace)]
        self.post(NAMESPACES.path(), {"metadata": {"name": namespace}})
        # Pods are refused until the account that they run under by default is there.
        self.until(SERVICE_ACCOUNTS.path(namespace), lambda found: any(one["metadata"]["name"] == "default" for one in found))

    @property
    def kind(self) -> str:
        return self.server.kind

    def clean_up(self) -> None:
        for path in reversed(self._made):
            self.delete(path, gracePeriodSeconds=0)

    def get(self, path: str, **query: Any) -> Reply:
        return self.server.request("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Reply:
        return self.server.request("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Reply:
        return self.server.request("PUT", path, body, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return self.server.request("DELETE", path, body, **query)

    def merge(self, path: str, change: Any, **query: Any) -> Reply:
        return self.server.request("PATCH", path, change, content_type=MERGE_PATCH, **query)

    def patch_json(self, path: str, *operations: Object) -> Reply:
        return self.server.request("PATCH", path, list(operations), content_type=JSON_PATCH)

    def strategic(self, path: str, change: Any) -> Reply:
        return self.server.request("PATCH", path, change, content_type=STRATEGIC_PATCH)

    def apply(self, path: str, change: Any, manager: str = "test", **query: Any) -> Reply:
        return self.server.request("PATCH", path, change, content_type=APPLY_PATCH, fieldManager=manager, **query)

    def table(self, path: str, **query: Any) -> Reply:
        return self.server.raw("GET", path, accept=TABLE, **query)

    def made(self, path: str, body: Object, **query: Any) -> Object:
        """Create an object that must be accepted; return it as stored."""
        reply = self.post(path, body, **query)
        assert reply.status == 201, reply.body
        found: Object = reply.body
        return found

    def cluster_wide(self, path: str, body: Object) -> Object:
        """Create a cluster-scoped object that goes with the test."""
        self._made.append(f"{path}/{body['metadata']['name']}")
        return self.made(path, body)

    def node(self, suffix: str = "a", *, taints: list[Object] | None = None, labels: Mapping[str, str] | None = None) -> str:
        """Add a node that is ready, and that only pods of this test look for; return its name."""
        name = f"{self.ns}-{suffix}"
        resources = {"cpu": "32", "memory": "64Gi", "pods": "110"}
        self.cluster_wide(NODES.path(), {
            "metadata": {"name": name, "labels": {"test": self.ns, "kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {"taints": taints or []},
            "status": {"capacity": resources, "allocatable": resources, "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}]}})
        self.node_when(name, lambda node: not any(
            taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or ()))
        return name

    def node_when(self, name: str, holds: Callable[[Object], object]) -> Object:
        return self.when(NODES.path("", name), holds)

    def when(self, path: str, holds: Callable[[Object], object]) -> Object:
        """Wait until something holds for one object, and return it."""
        collection, _, name = path.rpartition("/")
        found = self.until(collection, lambda objects: any(map(holds, objects)), fieldSelector=f"metadata.name={name}")
        return found[0]

    def gone(self, path: str) -> None:
        """Wait until an object is not there any more."""
        collection, _, name = path.rpartition("/")
        self.until(collection, lambda objects: not objects, fieldSelector=f"metadata.name={name}")

    def until(self, path: str, holds: Callable[[list[Object]], object], **query: Any) -> list[Object]:
        """Wait until something holds for the objects of a collection, looked at after each change; return them."""
        listed = self.get(path, **query).body
        objects = {one["metadata"]["uid"]: one for one in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        with self.server.watching(path, resourceVersion=version, timeoutSeconds=int(PATIENCE), **query) as seen:
            while not holds(list(objects.values())):
                event = seen.next()
                assert event["type"] not in ("END", "ERROR"), f"waited in vain at {path}; last seen: {list(objects.values())}"
                objects[event["object"]["metadata"]["uid"]] = event["object"]
                if event["type"] == "DELETED":
                    del objects[event["object"]["metadata"]["uid"]]
        return list(objects.values())

    def watching(self, path: str, **query: Any) -> Any:
        return self.server.watching(path, **query)

    def kubectl(self, *words: str, given: str | None = None, fails: bool = False, **environment: str) -> str:
        return self.server.kubectl(*words, given=given, fails=fails, namespace=self.ns, **environment)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
