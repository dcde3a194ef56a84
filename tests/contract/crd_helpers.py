"""Waiting for what an API server makes known by no watch."""

from __future__ import annotations

import time

from tests.contract.api import PATIENCE, Server


def until_served(server: Server, path: str) -> None:
    """Wait until a path is served: an established definition is accepted, and serving begins a moment later."""
    until = time.monotonic() + PATIENCE
    while server.request("GET", path).status != 200:
        assert time.monotonic() < until, f"{path} is not served"
