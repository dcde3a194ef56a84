"""The agents' client of the API over TLS: by which name it knows the server, and a cluster's authority that is replaced."""

from __future__ import annotations

import json
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


def kubeconfig(folder: Path, port: int, name: str) -> str:
    file = folder / "kubeconfig"
    file.write_text(json.dumps({
        "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": f"https://127.0.0.1:{port}", "tls-server-name": name,
                                               "certificate-authority": str(DATA / "ca.pem")}}],
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
