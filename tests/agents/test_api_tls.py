"""The agents' client of the API over TLS: by which name it knows the server, and a cluster's authority that is replaced."""

from __future__ import annotations

import json
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuward import errors
from gpuward.agents.api import KubernetesApi, PodAccess, find_access
from tests.agents.test_api import NODE, Script
from tests.kube.serving import DATA, server_tls


@contextmanager
def secured() -> Iterator[int]:
    """Serve a node over TLS; yield the port. The certificate is one of kubernetes.test and localhost."""
    server = Script([(200, NODE)] * 10)
    server.socket = server_tls().wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def kubeconfig(folder: Path, port: int, name: str, proxy: str = "", host: str = "127.0.0.1") -> str:
    file = folder / "kubeconfig"
    file.write_text(json.dumps({
        "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": f"https://{host}:{port}", "tls-server-name": name,
                                               "certificate-authority": str(DATA / "ca.pem"),
                                               **({"proxy-url": proxy} if proxy else {})}}],
        "users": [{"name": "a", "user": {"token": "t"}}]}))
    return str(file)


@pytest.mark.parametrize(("name", "known"), [("kubernetes.test", True), ("other.test", False), ("", False)])
def test_a_server_is_known_by_the_name_that_a_kubeconfig_says(tmp_path: Path, name: str, known: bool) -> None:
    with secured() as port:
        api = KubernetesApi(find_access(kubeconfig(tmp_path, port, name)), patience=0.0)
        if known:
            assert api.get("/api/v1/nodes/gpu-1") == NODE
        else:
            with pytest.raises(errors.Unreachable, match="certificate verify failed"):
                api.get("/api/v1/nodes/gpu-1")
        api.close()


def test_a_clusters_authority_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes((DATA / "client.pem").read_bytes())

    def sleep(seconds: float) -> None:
        (tmp_path / "ca.crt").write_bytes((DATA / "ca.pem").read_bytes())

    with secured() as port:
        api = KubernetesApi(PodAccess(f"https://localhost:{port}", tmp_path), sleep=sleep)
        assert api.get("/api/v1/nodes/gpu-1") == NODE
        api.close()


class Proxy(socketserver.ThreadingTCPServer):
    """Be an HTTP proxy that leads to one server, whatever it is asked for, and keeps what that was."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.port, self.heads = port, [""][:0]


class Tunnel(socketserver.StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        """Pass on what comes from either side."""
        self.server.heads.append("".join(line.decode() for line in iter(self.rfile.readline, b"\r\n")))
        with socket.create_connection(("127.0.0.1", self.server.port)) as server:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there = {self.connection: server, server: self.connection}
            while data := (ready := select.select(list(there), [], [])[0][0]).recv(65536):
                there[ready].sendall(data)


def test_the_proxy_that_a_kubeconfig_names_is_used_and_not_that_of_the_environment(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with secured() as port, Proxy(port) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        file = kubeconfig(tmp_path, port, "kubernetes.test", f"http://me:secret@127.0.0.1:{proxy.server_address[1]}")
        api = KubernetesApi(find_access(file), patience=0.0)
        assert api.get("/api/v1/nodes/gpu-1") == NODE
        api.close()
        assert proxy.heads[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.")
        assert "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in proxy.heads[0]
        proxy.shutdown()


def test_a_proxy_is_asked_for_an_ipv6_address_in_brackets(tmp_path: Path) -> None:
    with secured() as port, Proxy(port) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_address[1]}"
        api = KubernetesApi(find_access(kubeconfig(tmp_path, port, "kubernetes.test", url, "[2001:db8::1]")), patience=0.0)
        assert api.get("/api/v1/nodes/gpu-1") == NODE
        api.close()
        assert proxy.heads[0].startswith(f"CONNECT [2001:db8::1]:{port} HTTP/1.")
        proxy.shutdown()


def test_a_proxy_that_speaks_tls_itself_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(errors.KubeconfigError) as error:
        find_access(kubeconfig(tmp_path, 1, "", "https://me:secret@proxy.example:3129"))
    assert "the proxy-url https://proxy.example:3129 cannot be used here: name one with http://" in str(error.value)


def test_a_proxy_that_is_away_is_named(tmp_path: Path) -> None:
    api = KubernetesApi(find_access(kubeconfig(tmp_path, 1, "", "http://me:secret@127.0.0.1:9")), patience=0.0)
    with pytest.raises(errors.Unreachable, match=r"^https://127.0.0.1:1 by the proxy http://127.0.0.1:9: .*refused$"):
        api.get("/api/v1/nodes/gpu-1")
