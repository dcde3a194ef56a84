"""Counting requests."""

from __future__ import annotations

import asyncio

import pytest

from gpuward import errors
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response
from gpuward.kube.resources import NODES, PODS
from tests.kube.scripted import Asked, ScriptedTransport, ok, refused


def test_requests_are_counted_by_verb_resource_and_status() -> None:
    answers = iter([ok({}), ok({}), refused(429, "TooManyRequests"), ok({}, 201)])

    def next_answer(asked: Asked) -> Response:
        try:
            return next(answers)
        except StopIteration:
            raise errors.Unreachable("gone") from None

    async def run() -> Client:
        client = Client(ScriptedTransport(next_answer))
        await client.get(NODES, "n1")
        await client.patch_merge(NODES, "n1", {})
        with pytest.raises(errors.TooManyRequests):
            await client.evict("p", "ns")
        await client.evict("p", "ns")
        with pytest.raises(errors.Unreachable):
            await client.delete(PODS, "p", "ns")
        return client

    stats = asyncio.run(run()).stats
    assert dict(stats.requests) == {
        ("get", "nodes", 200): 1, ("patch", "nodes", 200): 1, ("create", "pods/eviction", 429): 1,
        ("create", "pods/eviction", 201): 1, ("delete", "pods", 0): 1,
    }
    assert stats.writes() == 4
    assert stats.total(resource="pods/eviction") == 2
