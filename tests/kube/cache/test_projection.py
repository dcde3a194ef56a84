"""Heads of objects, and projections that fail."""

from __future__ import annotations

import pytest

from gpuward import errors
from gpuward.kube.cache.projection import BY_NAME, Identity, Projection, Seen, project, read_head


@pytest.mark.parametrize(("meta", "terminating"), [
    ("{}", False),
    ('{"deletionTimestamp":"t"}', False),
    ('{"deletionTimestamp":"t","deletionGracePeriodSeconds":0}', False),
    ('{"deletionTimestamp":"t","deletionGracePeriodSeconds":30}', True),
    ('{"deletionTimestamp":"t","deletionGracePeriodSeconds":0,"finalizers":["f"]}', True),
    ('{"finalizers":["f"]}', False),
])
def test_what_still_terminates(meta: str, terminating: bool) -> None:
    assert read_head(f'{{"kind":"Pod","metadata":{meta}}}'.encode()).terminating is terminating


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"metadata":[]}', b"\xff"])
def test_an_object_without_a_head_is_the_servers_fault(raw: bytes) -> None:
    with pytest.raises(errors.ServerError, match="metadata cannot be read"):
        read_head(raw)


RAW = b'{"metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"5"}}'
IDENTITY = Identity("ns", "n", "u", "5")


@pytest.mark.parametrize("error", [errors.PolicyError("spec.x", 1, "write 2"), ValueError("bad"), ValueError()])
def test_an_object_that_cannot_be_read_still_has_its_identity(error: Exception) -> None:
    def view(raw: bytes) -> str:
        raise error

    seen = project(Projection(BY_NAME, view, lambda _: IDENTITY), RAW)
    assert seen == Seen(IDENTITY, None, str(error) or "ValueError")


def test_a_mistake_of_ours_is_not_hidden() -> None:
    def view(raw: bytes) -> str:
        raise AttributeError("a bug")

    with pytest.raises(AttributeError):
        project(Projection(BY_NAME, view, lambda _: IDENTITY), RAW)


def test_what_does_not_matter_keeps_its_identity() -> None:
    assert project(Projection(BY_NAME, lambda raw: None, lambda _: IDENTITY), RAW) == Seen(IDENTITY, None)
