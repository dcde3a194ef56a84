"""The table of what is followed."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.kube import followed, resources
from gpuward.kube.followed import Followed

TABLE: list[Followed[Any, Any]] = [each for each in vars(followed).values() if isinstance(each, Followed)]
TABLE += followed.OWNED


def test_every_resource_is_in_it_once() -> None:
    assert len({each.resource for each in TABLE}) == len({each.kind for each in TABLE}) == len(TABLE)


@pytest.mark.parametrize("each", TABLE, ids=lambda each: each.kind)
def test_kinds_are_those_of_their_resources(each: Followed[Any, Any]) -> None:
    assert resources.KINDS[each.resource.api_version, each.kind] == each.resource
    assert each.selection("ns").namespace == ("ns" if each.own_namespace else "")
    assert each.resource.namespaced or not each.own_namespace


def test_what_is_required_is_never_missed_in_silence() -> None:
    assert not any(each.required and (each.acted_on or each.only_denied or not each.awaited) for each in TABLE)
