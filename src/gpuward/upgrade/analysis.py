"""Whether what was measured of a wave lets later ones start: it follows from the measurements, and what is remembered of them.

No wave is known by its name. That one has passed, or failed, is remembered as a time: it is about waves whose nodes were all
done by then, like what people say. A check that somebody writes anew has not failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuward.model.analysis import Analysis, Check, CheckRun, Measured, Result, Verdict, WaveAnalysis
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reading import format_time
from gpuward.model.reasons import Reason
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.waves import CheckStatus, Wave
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.wave_nodes import WaveNode
from gpuward.upgrade.words import is_about, rollout_aborted, runs_all, runs_any

replace = msgspec.structs.replace


class Seen(msgspec.Struct, frozen=True):
    """Hold what the analyses of all waves of a rollout go by."""

    policy: UpgradePolicy
    known: Analysis
    """What is remembered of the drivers that nodes are to get."""
    measured: Mapping[str, Measured]
    now: float
    zone: str
    promoted: float
    """When somebody promoted the rollout last; 0 where nobody did."""
    ended: bool
    """Whether nothing is measured, as no node is to get another driver, or the rollout was aborted or paused."""


class GateAnalysis(msgspec.Struct, frozen=True):
    """Hold how the analysis of one wave stands."""

    waits: WaveAnalysis | None = None
    """What later waves wait for, whatever people said of it."""
    checks: tuple[CheckStatus, ...] = ()
    runs: tuple[CheckRun, ...] = ()
    verdict: Verdict | None = None
    """That it has failed."""
    passes: bool = True


NO_ANALYSIS = GateAnalysis()


def seen_of(
    policy: UpgradePolicy, late: Sequence[NodeFacts], measured: Mapping[str, Measured], now: float, zone: str
) -> Seen:
    """Return what analyses go by. What is remembered of other drivers, or from a time to come, counts for nothing. A failure
    stays when a node is to get one more, as one that starts with another kernel does where drivers are precompiled.
    """
    rollout = policy.rollout
    known, promoted = rollout.analysis, rollout.promoted
    if not any(runs_any(known.targets, node) for node in late) or known.passed > now + CLOCKS_DIFFER:
        known = Analysis()
    elif not runs_all(known.targets, late):
        known = Analysis(failed=known.failed)
    word = promoted.at if promoted is not None and late and is_about(promoted, late) else 0.0
    ended = not late or not policy.auto_upgrade or rollout_aborted(late, policy) is not None
    return Seen(policy, known, measured, now, zone, word, ended)


def analysis_of(wave: Wave, nodes: Sequence[WaveNode], finished: float, seen: Seen, *, soaks: bool) -> GateAnalysis:
    """Return how the analysis of a wave stands whose nodes are done."""
    if not wave.analysis or not finished or finished <= max(seen.known.passed, seen.promoted):
        return NO_ANALYSIS
    if (failed := _failed_before(wave, finished, seen)) is not None:
        return failed
    if seen.ended:
        return NO_ANALYSIS
    serving = tuple(sorted(node.name for node in nodes if node.serves))
    since = max(finished, seen.policy.rollout.resumed_at)
    runs = tuple(CheckRun(seen.policy.driver, wave.name, check, since, serving) for check in wave.analysis)
    found = [(run.check, _measured(run, seen)) for run in runs]
    checks = tuple(CheckStatus(check.name, measured) for check, measured in found)
    for check, measured in found:
        if measured is not None and measured.failed(check):
            verdict = Verdict(check.key, measured.at, measured.told, measured.failures)
            return GateAnalysis(_has_failed(wave, check, verdict, seen), checks, (), verdict, passes=False)
    open_ones = [_waiting(wave, check, measured, seen) for check, measured in found
                 if measured is None or not measured.lasted(check)]
    waits = min(open_ones, key=lambda one: one.reason is not Reason.ANALYSIS_UNKNOWN, default=None)
    return GateAnalysis(waits, checks, runs, passes=waits is None and not soaks)


def _failed_before(wave: Wave, finished: float, seen: Seen) -> GateAnalysis | None:
    """Return that a check of a wave failed after its nodes were done, unless somebody has forgiven it since."""
    verdict = seen.known.failed
    if verdict is None or not max(finished, seen.policy.rollout.resumed_at) < verdict.at:
        return None
    check = next((one for one in wave.analysis if one.key == verdict.check), None)
    if check is None:
        return None
    measured = Measured(Result.FAILED, verdict.told, verdict.at, failures=verdict.failures)
    return GateAnalysis(_has_failed(wave, check, verdict, seen), (CheckStatus(check.name, measured),), passes=False)


def _measured(run: CheckRun, seen: Seen) -> Measured | None:
    """Return what was measured last: by this process or, for one that only looks, as it is remembered."""
    if (found := seen.measured.get(run.key)) is not None:
        return found
    before = seen.known.last.get(run.check.key)
    # What it passed for ends with the process that measured it: the next one begins anew.
    return None if before is None or before.at < run.since else replace(before, at=before.good or before.at)


def _has_failed(wave: Wave, check: Check, verdict: Verdict, seen: Seen) -> WaveAnalysis:
    return WaveAnalysis(Reason.ANALYSIS_FAILED, wave.name, check.name, verdict.told, failures=verdict.failures,
                        limit=check.failures, zone=seen.zone, driver=seen.policy.driver, at=verdict.at)


def _waiting(wave: Wave, check: Check, measured: Measured | None, seen: Seen) -> WaveAnalysis:
    told = measured if measured is not None else Measured(Result.PASSED, "", 0.0)
    found = WaveAnalysis(Reason.ANALYSIS_RUNNING, wave.name, check.name, told.told, told.good, check.lasts, told.failures,
                         check.failures, seen.zone, seen.policy.driver)
    return replace(found, reason=Reason.ANALYSIS_UNKNOWN) if told.result is Result.UNKNOWN else found


def noted(found: Sequence[GateAnalysis], seen: Seen, targets: tuple[str, ...]) -> Analysis | None:
    """Return what is to be remembered from now on; None where that is what is remembered already.

    Waves that are done are measured together: they have passed once all of them have.
    """
    measured = [one for one in found if one.runs]
    failed = next((one.verdict for one in found if one.verdict is not None), None)
    if not measured and failed is None:
        return None
    last = {run.check.key: news for one in measured for run in one.runs if (news := _news(run, seen)) is not None}
    known = seen.known
    if failed is not None:
        after = replace(known, targets=targets, failed=failed, last=last)
    elif all(one.passes for one in found):
        after = Analysis(targets, seen.now)
    else:
        after = replace(known, targets=targets, last=last)
    return None if after == known or (not known.targets and not last and failed is None) else after


def _news(run: CheckRun, seen: Seen) -> Measured | None:
    """Return what was measured, or what is remembered of it where only time has passed since."""
    now, before = seen.measured.get(run.key), seen.known.last.get(run.check.key)
    before = before if before is not None and before.at >= run.since else None
    return before if now is None or (before is not None and _gist(before) == _gist(now)) else now


def _gist(one: Measured) -> tuple[object, ...]:
    return one.result, one.told, format_time(one.good), one.failures
