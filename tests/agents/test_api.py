"""The agents' client of the API, against a server on loopback: what it sends, what it tries again, what it gives up."""

from __future__ import annotations

import json
import socket
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuward import errors
from gpuward.agents import answers
from gpuward.agents.api import KubernetesApi, PodAccess, find_access

Answer = tuple[int, dict[str, Any] | str]


NODE = {"kind": "Node", "metadata": {"name": "gpu-1"}}


class Script(ThreadingHTTPServer):
    """Serve answers in turn, and keep what was asked."""

    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.script = iter(answers)
        self.asked: list[tuple[str, str, str, str]] = []
        self.tokens: list[str] = []


class Scripted(BaseHTTPRequestHandler):
    """Answer as the script says; keep connections as an API server does."""

    protocol_version = "HTTP/1.1"
    server: Script

    def do(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.asked.append((self.command, self.path, self.headers.get("Content-Type", ""), body))
        self.server.tokens.append(self.headers["Authorization"].removeprefix("Bearer "))
        status, answer = next(self.server.script)
        if status == 0:
            self.close_connection = True
            return
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = do

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def scripted(folder: Path, *answers: Answer) -> Iterator[tuple[KubernetesApi, Script]]:
    """Yield a client and the server that it talks to; no time passes in its pauses."""
    server = Script(list(answers))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    time = [0.0]

    def sleep(seconds: float) -> None:
        time[0] += seconds
        (folder / "token").write_text("second\n")  # as the kubelet does from time to time

    (folder / "token").write_text("first\n")
    api = KubernetesApi(PodAccess(f"http://127.0.0.1:{server.server_port}", folder),
                        patience=4.0, sleep=sleep, monotonic=lambda: time[0])
    try:
        yield api, server
    finally:
        api.close()
        server.shutdown()
        server.server_close()


def refused(code: int, reason: str) -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": f"no: {reason}"}


def test_lists_are_read_to_their_end(tmp_path: Path) -> None:
    first = {"metadata": {"continue": "a b"}, "items": [{"metadata": {"name": "1"}}]}
    with scripted(tmp_path, (200, first), (200, {"metadata": {}, "items": [{"metadata": {"name": "2"}}]})) as (api, server):
        found = api.list("/api/v1/pods", labels="app=x", fields="spec.nodeName=gpu-1")
    assert [each["metadata"]["name"] for each in found] == ["1", "2"]
    assert [path for _, path, _, _ in server.asked] == [
        "/api/v1/pods?labelSelector=app%3Dx&fieldSelector=spec.nodeName%3Dgpu-1&limit=125",
        "/api/v1/pods?labelSelector=app%3Dx&fieldSelector=spec.nodeName%3Dgpu-1&limit=125&continue=a+b"]


def test_a_patch_says_what_it_is_and_who_made_it(tmp_path: Path) -> None:
    with scripted(tmp_path, (200, {"kind": "Node"})) as (api, server):
        assert api.patch("/api/v1/nodes/gpu 1", {"metadata": {"labels": {"a": "b"}}}) == {"kind": "Node"}
    assert server.asked == [("PATCH", "/api/v1/nodes/gpu%201?fieldManager=gpuward", "application/merge-patch+json",
                             '{"metadata":{"labels":{"a":"b"}}}')]


@pytest.mark.parametrize(
    "trouble", [refused(500, "InternalError"), refused(429, "TooManyRequests"), (0, ""), (503, "<html>busy</html>")])
def test_what_passes_is_tried_again(tmp_path: Path, trouble: Answer) -> None:
    with scripted(tmp_path, trouble, trouble, (200, NODE)) as (api, server):
        assert api.get("/api/v1/nodes/gpu-1") == NODE
    assert len(server.asked) == 3
    assert server.tokens == ["first", "second", "second"]


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
def test_a_server_that_has_just_started_may_refuse_what_it_allows(tmp_path: Path, code: int, reason: str) -> None:
    trouble = refused(code, reason)
    with scripted(tmp_path, trouble, trouble, (200, NODE)) as (api, server):
        assert api.get("/api/v1/nodes/gpu-1") == NODE
    assert server.tokens == ["first", "second", "second"]
    with scripted(tmp_path, *[trouble] * 9) as (api, server), pytest.raises(errors.ApiError, match=f"no: {reason}"):
        api.patch("/api/v1/nodes/gpu-1", {})
    assert len(server.asked) == 5


def test_credentials_that_nobody_is_known_by_are_called_so(tmp_path: Path) -> None:
    """Such as those of a pod that was deleted by force and runs on. The server says "Unauthorized", and nothing more."""
    with scripted(tmp_path, *[refused(401, "Unauthorized")] * 9) as (api, _), pytest.raises(errors.Unauthorized) as caught:
        api.get("/api/v1/nodes/gpu-1")
    assert str(caught.value).endswith(
        "knows nobody by these credentials (no: Unauthorized): "
        "they have expired, or the service account, or the pod that they are for, was deleted")


def test_what_nobody_reads_of_a_list_takes_no_memory(tmp_path: Path) -> None:
    """managedFields are many small objects: of 100 pods they took as much memory as all else that the driver manager has."""
    fields: dict[str, Any] = {"f:metadata": {f"f:{each}": {".": {}} for each in range(300)}}
    pods = [{"metadata": {"name": f"{each}", "managedFields": [{"manager": "kubelet", "fieldsV1": fields}]},
             "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}} for each in range(100)]
    with scripted(tmp_path, (200, {"metadata": {}, "items": pods})) as (api, _):
        tracemalloc.start()
        found = api.list("/api/v1/pods")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found[0] == {"metadata": {"name": "0"}, "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}
    assert peak < 4e6, "the answer itself has half a megabyte, and the server of this test has it three times"


ODD: tuple[Any, ...] = ({}, {"metadata": None, "items": {}}, {"metadata": [], "items": "pods"}, {"kind": "Status"})


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_object_and_no_list_is_no_answer(tmp_path: Path, odd: Any) -> None:
    """A broken proxy may say that all is well, and nothing more. That a node has no pods would unload the driver under them."""
    with scripted(tmp_path, (200, odd), (200, NODE), (200, odd), (200, {"items": None})) as (api, server):
        assert api.get("/api/v1/nodes/gpu-1") == NODE
        assert api.list("/api/v1/pods") == []
    assert len(server.asked) == 4
    with scripted(tmp_path, *[(200, odd)] * 9) as (api, server), pytest.raises(
            errors.ServerError, match=r"^the answer of \S+/api/v1/pods has no items: something between"):
        api.list("/api/v1/pods")


def test_what_may_not_be_created_is_said_at_once(tmp_path: Path) -> None:
    with scripted(tmp_path, refused(403, "Forbidden")) as (api, _), pytest.raises(errors.Forbidden):
        api.create("/api/v1/namespaces/default/events", {})


def test_a_list_whose_next_page_is_gone_is_begun_anew(tmp_path: Path) -> None:
    page = (200, {"metadata": {"continue": "a"}, "items": [{"metadata": {"name": "1"}}]})
    last: Answer = (200, {"metadata": {}, "items": [{"metadata": {"name": "2"}}]})
    with scripted(tmp_path, page, refused(410, "Expired"), page, last) as (api, server):
        assert [each["metadata"]["name"] for each in api.list("/api/v1/pods")] == ["1", "2"]
    assert [path.partition("&")[2] for _, path, _, _ in server.asked] == ["", "continue=a", "", "continue=a"]
    with scripted(tmp_path, *[refused(410, "Expired")] * 9) as (api, server), pytest.raises(errors.Gone):
        api.list("/api/v1/pods")
    assert len(server.asked) == 3


def pages(token: Callable[[int], str], size: int = 1) -> Iterator[Answer]:
    """Yield pages without end."""
    for number in count():
        yield 200, {"metadata": {"continue": token(number)}, "items": [{"metadata": {"name": "1"}}] * size}


@pytest.mark.parametrize(("token", "size", "asked", "why"), [
    (lambda number: "a", 1, range(2, 3), r"page 2 leads to a page that was read before"),
    (lambda number: "ab"[number % 2], 1, range(3, 4), r"page 3 leads to a page that was read before"),
    (str, 1, range(3, 200), r"it was not at its end after 120 s and \d+ pages"),
    (str, 500, range(41, 42), r"it has more than 20000 objects"),
], ids=["the same token", "two in turn", "always another one", "always another page of objects"])
def test_a_list_without_end_is_given_up(
        tmp_path: Path, token: Callable[[int], str], size: int, asked: range, why: str) -> None:
    with scripted(tmp_path) as (api, server):
        server.script = pages(token, size)
        api.monotonic = count(0.0, 1.0 if size == 1 else 0.01).__next__
        with pytest.raises(errors.ServerError, match=rf"^the list of /api/v1/pods cannot be read to its end: {why}: "
                                                     r"something between the API server and this program may be broken$"):
            api.list("/api/v1/pods")
    assert len(server.asked) in asked


def test_what_does_not_pass_ends_when_patience_does(tmp_path: Path) -> None:
    busy = [refused(503, "Unavailable")] * 9
    with scripted(tmp_path, *busy) as (api, server), pytest.raises(errors.ServerError, match="no: Unavailable"):
        api.get("/api/v1/nodes/gpu-1")
    assert len(server.asked) == 5, "0.2 + 0.5 + 1 + 2 s, and no more than 4"


def test_a_refused_eviction_is_its_callers_matter(tmp_path: Path) -> None:
    with scripted(tmp_path, refused(429, "TooManyRequests")) as (api, _), pytest.raises(errors.TooManyRequests):
        api.create("/api/v1/namespaces/a/pods/p/eviction", {})


@pytest.mark.parametrize(("answer", "kind"), [
    (refused(403, "Forbidden"), errors.Forbidden), (refused(404, "NotFound"), errors.NotFound),
    (refused(409, "Conflict"), errors.Conflict)])
def test_a_refusal_is_no_matter_of_patience(tmp_path: Path, answer: Answer, kind: type[errors.ApiError]) -> None:
    with scripted(tmp_path, answer) as (api, _), pytest.raises(kind):
        api.delete("/api/v1/nodes/gpu-1")


def test_garbage_is_a_servers_error_that_names_it(tmp_path: Path) -> None:
    with scripted(tmp_path, *[(200, "{")] * 5) as (api, _), pytest.raises(errors.ServerError, match="cannot be read"):
        api.get("/version")


@contextmanager
def speaking(first: bytes, byte: bytes, every: float) -> Iterator[str]:
    """Yield the address of a server that says something, and then one byte after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def speak(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(first)
                while byte:
                    connection.sendall(byte)
                    time.sleep(every)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=speak, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_an_answer_that_comes_byte_by_byte_does_not_hold_anybody_up(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.5)
    (tmp_path / "token").write_text("t")
    with speaking(first, b"a", 0.05) as address:
        begun = time.monotonic()
        with pytest.raises(errors.Unreachable, match=r"the answer was not there in 0\.5 s|timed out"):
            KubernetesApi(PodAccess(address, tmp_path), patience=0.0).get("/version")
        assert time.monotonic() - begun < 5.0


def test_an_answer_ends_with_its_connection(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with speaking(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"metadata": {}}', b"", 0.0) as address:
        assert KubernetesApi(PodAccess(address, tmp_path), patience=0.0).get("/version") == {"metadata": {}}


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with scripted(tmp_path) as (api, server):
        pass
    with pytest.raises(errors.Unreachable, match=f"^http://127.0.0.1:{server.server_port}: .*refused"):
        api.get("/version")


def test_a_pod_is_let_in_by_its_service_account_and_others_by_a_kubeconfig(tmp_path: Path) -> None:
    there = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert find_access(environ=there).server == "https://[fd00::1]:6443"
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({
        "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://10.0.0.1:8080"}}],
        "users": [{"name": "a", "user": {"token": "t"}}]}))
    found = find_access(str(file))
    assert (found.server, found.headers()) == ("http://10.0.0.1:8080", {"Authorization": "Bearer t"})
    with pytest.raises(errors.KubeconfigError, match=r"token cannot be read: .*No such file"):
        PodAccess("https://10.0.0.1", tmp_path).headers()
    with pytest.raises(errors.KubeconfigError, match=r"ca\.crt cannot be used: .*No such file"):
        PodAccess("https://10.0.0.1", tmp_path).context()


@pytest.mark.parametrize("port", ["abc", "tcp://10.0.0.1:443", "99999", "\udcff"])
def test_a_port_that_is_none_is_named(port: str) -> None:
    with pytest.raises(errors.KubeconfigError, match=r"^KUBERNETES_SERVICE_PORT: .* is no port$"):
        find_access(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": port})


def test_a_token_that_cannot_be_sent_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\nof mine\n")
    with speaking(b"", b"", 0.0) as address, pytest.raises(errors.KubeconfigError) as caught:
        KubernetesApi(PodAccess(address, tmp_path), patience=0.0).get("/version")
    assert "characters that none may have" in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("asked", "pause"), [(7, 7.0), (3600, 10.0), (0, 0.2)])
def test_a_server_is_left_alone_for_as_long_as_it_asks_within_bounds(tmp_path: Path, asked: int, pause: float) -> None:
    busy: Answer = (429, {"kind": "Status", "code": 429, "message": "too many", "details": {"retryAfterSeconds": asked}})
    with scripted(tmp_path, busy, (200, NODE)) as (api, _):
        api.patience = 60.0
        assert api.get("/api/v1/nodes/gpu-1") == NODE
        assert api.monotonic() == pause
