"""Whether the analysis of a wave lets later ones start: what is unknown does not, and what passed or failed is about its time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.analysis import Analysis, Check, FailWhen, Measured, Promql, Result, Verdict
from gpuward.model.reasons import Reason
from gpuward.model.waves import Wave
from gpuward.upgrade.analysis import GateAnalysis, Seen, analysis_of, noted
from gpuward.upgrade.wave_nodes import WaveNode
from tests import build

CHECK = Check("slo", promql=Promql("http://p", "up", FailWhen(">", 0.0)), lasts=60.0, failures=2)
WAVE = Wave("canary", analysis=(CHECK,))
NODES = [WaveNode("n1", done=True, serves=True), WaveNode("n2", done=True), WaveNode("n3")]
SEEN = Seen(build.policy(), Analysis(("t",)), {}, 1000.0, "UTC", 0.0, ended=False)
KEY = f"/{CHECK.key}/100.0"


def stands(finished: float = 100.0, *, soaks: bool = False, **changes: Any) -> GateAnalysis:
    return analysis_of(WAVE, NODES, finished, msgspec.structs.replace(SEEN, **changes), soaks=soaks)


def reason(found: GateAnalysis) -> Reason | None:
    return found.waits.reason if found.waits is not None else None


@pytest.mark.parametrize(("measured", "expected"), [
    (None, Reason.ANALYSIS_RUNNING),
    (Measured(Result.PASSED, "", 159.0, 100.0), Reason.ANALYSIS_RUNNING),
    (Measured(Result.PASSED, "", 160.0, 100.0), None),
    (Measured(Result.PASSED, "", 160.0, 100.0, failures=1), None),
    (Measured(Result.FAILED, "", 160.0, failures=1), Reason.ANALYSIS_RUNNING),
    (Measured(Result.FAILED, "", 160.0, failures=2), Reason.ANALYSIS_FAILED),
    (Measured(Result.UNKNOWN, "", 9999.0), Reason.ANALYSIS_UNKNOWN),
])
def test_what_was_measured_lets_later_waves_go_or_not(measured: Measured | None, expected: Reason | None) -> None:
    found = stands(measured={KEY: measured} if measured is not None else {})
    assert reason(found) is expected
    assert [run.nodes for run in found.runs] in ([], [("n1",)]), "only nodes that serve are judged"


def test_that_waves_passed_is_about_those_that_were_done_by_then() -> None:
    known = Analysis(("t",), passed=150.0)
    assert stands(100.0, known=known) == GateAnalysis()
    assert reason(stands(151.0, known=known)) is Reason.ANALYSIS_RUNNING
    assert stands(100.0, promoted=100.0) == GateAnalysis()


def test_a_failure_is_about_its_check_and_lasts_until_it_is_forgiven() -> None:
    known = Analysis(("t",), failed=Verdict(CHECK.key, 150.0, "3"))
    good = {KEY: Measured(Result.PASSED, "", 9000.0, 160.0)}
    assert reason(stands(known=known, measured=good)) is Reason.ANALYSIS_FAILED
    assert reason(stands(151.0, known=known)) is Reason.ANALYSIS_RUNNING
    assert reason(stands(known=Analysis(("t",), failed=Verdict("other", 150.0, "3")), measured=good)) is None
    rollout = msgspec.structs.replace(SEEN.policy.rollout, resumed_at=150.0)
    assert reason(stands(known=known, policy=msgspec.structs.replace(SEEN.policy, rollout=rollout))) is Reason.ANALYSIS_RUNNING


def test_nothing_has_passed_while_a_wave_soaks_or_another_that_is_done_has_not() -> None:
    good = {KEY: Measured(Result.PASSED, "", 160.0, 100.0)}
    seen = msgspec.structs.replace(SEEN, measured=good)
    one, other = stands(measured=good), stands(120.0, measured=good)
    assert noted([one], seen, ("t",)) == Analysis(("t",), 1000.0)
    for found in ([one, other], [stands(soaks=True, measured=good)]):
        note = noted(found, seen, ("t",))
        assert note is not None
        assert not note.passed


def test_only_news_is_noted() -> None:
    known = Analysis(("t",), last={CHECK.key: Measured(Result.PASSED, "0", 110.0, 110.0)})
    seen = msgspec.structs.replace(SEEN, known=known, measured={KEY: Measured(Result.PASSED, "0", 140.0, 110.0)})
    assert noted([analysis_of(WAVE, NODES, 100.0, seen, soaks=False)], seen, ("t",)) is None
