"""Server URLs."""

from __future__ import annotations

import pytest

from gpuward.errors import KubeconfigError
from gpuward.kube.config.access import checked_server


@pytest.mark.parametrize(("server", "expected"), [
    ("https://h:6443", "https://h:6443"),
    ("https://h/k8s/clusters/c-1/", "https://h/k8s/clusters/c-1"),
    ("http://[::1]:8001", "http://[::1]:8001"),
])
def test_a_url_loses_its_last_slash(server: str, expected: str) -> None:
    assert checked_server(server, "x") == expected


@pytest.mark.parametrize("server", ["", "h:6443", "ftp://h", "https://", "https://h:port", "https://[::1", "https://h:99999"])
def test_what_is_no_url_is_told_with_its_place_and_the_fix(server: str) -> None:
    with pytest.raises(KubeconfigError, match=r"^/c: cluster 'x': server .*: write https://host:port$"):
        checked_server(server, "/c: cluster 'x'")
