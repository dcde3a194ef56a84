"""Responses."""

from __future__ import annotations

import pytest

from gpuward.kube.http.transport import Response


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_headers_have_no_case(name: str) -> None:
    assert Response(429, {"retry-After": "3"}, b"").header(name) == "3"
    assert Response(200, {}, b"").header(name) is None
