"""What people are told to do about each reason."""

from __future__ import annotations

import re

import pytest

from gpuward.model.acts import Act
from gpuward.model.advice import ADVICE
from gpuward.model.reasons import Reason


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_says_what_it_means_and_what_to_do(reason: Reason) -> None:
    advice = ADVICE[reason]
    sentences = re.findall(r"[.!](?= |$)", f"{advice.means} {advice.do}")
    assert len(sentences) >= 2
    assert advice.means.endswith(".")
    assert advice.do.endswith(".")


def test_somebody_has_to_act_where_events_warn_of_it() -> None:
    assert {reason for reason in Reason if reason.needs_person} <= {
        reason for reason, advice in ADVICE.items() if advice.act is Act.YES}
    of_fleet = {reason for reason, advice in ADVICE.items() if advice.act is Act.ROLLOUT}
    assert {Reason.FAILURE_BUDGET, Reason.NEW_DRIVER_FAILS} <= of_fleet <= {reason for reason in Reason if reason.concerns_fleet}


def test_nobody_has_to_act_where_nodes_are_said_to_wait() -> None:
    waits = {reason for reason in Reason if reason.is_waited_for}
    assert {reason for reason in waits if ADVICE[reason].act in (Act.YES, Act.ROLLOUT)} == set()
    by_itself = {reason for reason in Reason if ADVICE[reason].act in (Act.NO, Act.LATER)}
    assert by_itself - waits == {Reason.DRIVER_POD_MISSING}, "such a node is not ready, and `--held` shows it"
