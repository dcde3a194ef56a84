"""How often the words of a status are written."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.controllers.statuses import StatusWriter
from gpuward.model.actions import PatchStatus
from gpuward.operands.status import Verdict
from tests.policy.test_clusterpolicy import view

NOW = 10_000.0


@pytest.mark.parametrize(("later", "written"), [(1.0, False), (29.9, False), (30.0, True), (-3600.0, True)])
def test_words_alone_wait_for_half_a_minute_and_not_for_a_clock_that_is_set_back(later: float, written: bool) -> None:
    writer, policy = StatusWriter("ClusterPolicy"), view()
    (first,) = writer.write(policy, waiting("a b"), "ns", NOW)
    assert isinstance(first, PatchStatus)
    told = msgspec.structs.replace(policy, body={**policy.body, "status": first.status})
    assert bool(writer.write(told, waiting("b"), "ns", NOW + later)) is written


@pytest.mark.parametrize(("later", "written"), [(0.0, False), (29.9, False), (30.0, True)])
def test_words_of_the_operator_before_stand_while_this_one_learns_what_it_knew(later: float, written: bool) -> None:
    (first,) = StatusWriter("ClusterPolicy").write(view(), waiting("a b"), "ns", NOW)
    assert isinstance(first, PatchStatus)
    told, writer = msgspec.structs.replace(view(), body={**view().body, "status": first.status}), StatusWriter("ClusterPolicy")
    assert writer.write(told, waiting("b"), "ns", NOW) == []
    assert bool(writer.write(told, waiting("b"), "ns", NOW + later)) is written


def waiting(states: str) -> Verdict:
    return Verdict("notReady", "OperandNotReady", f"not ready: {states}", ready=False)
