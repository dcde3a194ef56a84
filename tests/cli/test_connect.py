"""How the API server is asked: together for what does not hang together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus

import pytest

from gpuward.cli.connect import check_access
from gpuward.cli.rollouts import read_rollouts
from gpuward.errors import Forbidden
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response

EMPTY = b'{"metadata":{"resourceVersion":"1"},"items":[]}'


class Together:
    """Answer no request before so many wait for an answer; refuse paths with 403, or say that they are not there."""

    def __init__(self, awaited: int, *, forbidden: tuple[str, ...] = (), absent: tuple[str, ...] = ()) -> None:
        self._refused = dict.fromkeys(forbidden, HTTPStatus.FORBIDDEN) | dict.fromkeys(absent, HTTPStatus.NOT_FOUND)
        self._awaited = awaited
        self._there = asyncio.Event()
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json", timeout: float | None = None) -> Response:
        self.asked.append(path)
        if len(self.asked) == self._awaited:
            self._there.set()
        async with asyncio.timeout(5):
            await self._there.wait()
        kind = path.rpartition("/")[2]
        status = self._refused.get(kind, HTTPStatus.OK)
        told = b'{"kind":"Status","status":"Failure","message":"' + kind.encode() + b'"}'
        return Response(status, {}, EMPTY if status is HTTPStatus.OK else told)

    def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        raise AssertionError(path)

    async def close(self) -> None:
        pass


class OneAtATime(Together):
    """Refuse what is asked while another request waits, as an API server does that lets few through."""

    def __init__(self) -> None:
        super().__init__(1)
        self._busy = False

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json", timeout: float | None = None) -> Response:
        assert not self._busy, path
        self._busy = True
        await asyncio.sleep(0.01)
        self._busy = False
        return await super().request(method, path)


@pytest.mark.parametrize(("namespace", "asked"), [("", 3), ("gpu-operator", 5)])
def test_what_may_be_read_is_asked_one_after_the_other(namespace: str, asked: int) -> None:
    """The operator begins so, also where the API server is overloaded."""
    transport = OneAtATime()
    assert asyncio.run(check_access(Client(transport), namespace)) == []
    assert len(transport.asked) == asked


def test_what_is_not_installed_is_told_in_its_order_and_the_first_refusal_counts() -> None:
    missing = asyncio.run(check_access(Client(Together(1, absent=("clusterpolicies", "pods")))))
    assert missing == ["pods", "clusterpolicies.nvidia.com"]
    with pytest.raises(Forbidden, match="nodes"):
        asyncio.run(check_access(Client(Together(1, forbidden=("pods", "nodes")))))


def test_rollouts_are_read_together() -> None:
    assert asyncio.run(read_rollouts(Client(Together(2)))).policy is None


def test_nvidiadrivers_that_may_not_be_listed_matter_only_where_drivers_are_theirs() -> None:
    assert asyncio.run(read_rollouts(Client(Together(2, forbidden=("nvidiadrivers",))))).drivers == ()
