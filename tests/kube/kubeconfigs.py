"""Kubeconfig files for tests."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import yaml

from gpuward.kube.config.access import Access
from tests.kube.serving import DATA

CA_DATA = base64.b64encode((DATA / "ca.pem").read_bytes()).decode()


def kubeconfig(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, *, name: str = "main"
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user if user is not None else {"token": "t"}}],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def authorization(access: Access) -> str:
    return asyncio.run(access.credentials.current()).authorization
