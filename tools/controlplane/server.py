"""The few requests that bringing a control plane up needs."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpuward.sandbox.fleet import fleet
from tools.controlplane.processes import ProcessFailed

GPUS = "8"


class Server:
    """Speak to an API server as the current context of a kubeconfig says. Every method raises OSError when nobody answers."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        token = {user["name"]: user["user"]["token"] for user in config["users"]}[config["current-context"]]
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.address = urlsplit(cluster["server"])
        self.certificate = cluster["certificate-authority"]

    def is_ready(self) -> bool:
        """Tell whether the API server serves."""
        try:
            connection = self._connect()
            connection.request("GET", "/readyz", headers=self.headers)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """Create objects over one connection; one that exists already is left as it is."""
        connection = self._connect()
        for body in objects:
            connection.request("POST", path, json.dumps(body), self.headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status not in (201, 409):
                why = text.decode(errors="replace")
                raise ProcessFailed(f"{body['kind']} {body['metadata']['name']} cannot be created: {why}")

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an object or a list; None where there is none."""
        connection = self._connect()
        connection.request("GET", path, headers=self.headers)
        answer = connection.getresponse()
        body = answer.read()
        return json.loads(body) if answer.status == 200 else None

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        connection = self._connect()
        connection.request("DELETE", path, headers=self.headers)
        if (status := connection.getresponse().status) not in (200, 202, 404):
            raise ProcessFailed(f"{path} cannot be deleted: the answer is {status}")

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.certificate)
        return http.client.HTTPSConnection(self.address.hostname or "", self.address.port, timeout=30, context=context)


def create_nodes(server: Server, count: int) -> None:
    """Create nodes with GPUs that no GPU operator has touched; whether they are Ready is for kwok to say."""
    nodes = fleet(count, 0)
    for node in nodes:
        del node["status"]["conditions"]
        for resources in (node["status"]["capacity"], node["status"]["allocatable"]):
            resources["nvidia.com/gpu"] = GPUS
    server.create("/api/v1/nodes", nodes)


def nodes_ready(server: Server) -> int:
    """Return how many nodes are Ready and may be scheduled to."""
    found = server.get("/api/v1/nodes") or {"items": []}
    return sum(_is_ready(node) and not node["spec"].get("taints") for node in found["items"])


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
