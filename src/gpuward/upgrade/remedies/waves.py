"""What helps a node that waits for a wave, for an approval, or because its rollout was aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.analysis import CheckRun, Measured, Result, WaveAnalysis
from gpuward.model.rollout import RolloutSettings
from gpuward.model.waves import WaveFailed, WaveNotDone, WaveSoaking, WaveStatus, Word, command_for
from gpuward.upgrade.remedies import fixes, policy_fixes
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.planned import planned_driver
from gpuward.upgrade.remedies.question import Candidate, Question
from gpuward.upgrade.remedies.rollback import take_back, take_back_untried

replace = msgspec.structs.replace
MOST_SKIPPED = 2
"""Nodes that a person is told to skip."""


def approve(question: Question) -> Iterator[Fix]:
    """Approve of the waves that are done."""
    yield _said(question, "approve", "approve of the waves that are done", approved=_word(question))


def promote(question: Question) -> Iterator[Fix]:
    """Let the next wave go."""
    yield _said(question, "promote", "let the next wave go now", promoted=_word(question, *_waiting(question)))


def another_plan(question: Question) -> Iterator[Candidate]:
    """Ask for the driver of the plan again, approve of the rollout as it would go now, or of no plan any more."""
    case = question.case
    yield from planned_driver(question)
    rollout = replace(case.policy.rollout, approved_plan=None)
    change = partial(policy_fixes.under, before=case.policy, after=replace(case.policy, rollout=rollout))
    risk = "nodes start as the rollout would go now, with all that differs"
    again = command_for("approve --plan new-plan.json", case.policy.driver)
    yield Fix("approve of the rollout as it would go now", change, again, risk, ("gpuward plan --save new-plan.json",))
    yield Fix("keep to no plan any more", change, f"kubectl annotate {policy_fixes.driver_source(case)} {names.APPROVED_PLAN}-",
              "nodes start however the rollout goes, also when it is changed later")


def end_soak(question: Question) -> Iterator[Candidate]:
    """End the soak and, where somebody has to approve then, approve as well."""
    ends = list(promote(question))
    yield from ends
    if isinstance(question.hold.what, WaveSoaking) and question.hold.what.approval:
        yield from (one.followed_by(other) for one in ends for other in approve(question))


def resume(question: Question) -> Iterator[Candidate]:
    """Take an abort back, or the driver that was given up by it: a node may have been left without any."""
    yield from take_back(question)
    yield from take_back_untried(question, given_up=True)
    case = question.case
    # Whoever takes an abort back forgives what failed before, too: the command does both.
    after = replace(case.policy, rollout=replace(case.policy.rollout, aborted=None, resumed_at=question.now))
    change = partial(policy_fixes.under, before=case.policy, after=after)
    yield Fix("let the rollout go on, and failures so far count no more", change, command_for("resume", case.policy.driver))


def look_at_failures(question: Question) -> Iterator[Candidate]:
    """Mend what failed in a wave, or go on without it."""
    yield from take_back(question)
    yield policy_fixes.resume(question.case, question.now)
    yield from promote(question)


def after_analysis(question: Question) -> Iterator[Candidate]:
    """Go back to the driver before, have the check measured anew, or go on although it failed."""
    yield from take_back(question)
    what = question.hold.what
    at = max(question.now, what.at) if isinstance(what, WaveAnalysis) else question.now
    yield policy_fixes.resume(question.case, at).told("have the check measured anew, once what is wrong is mended")
    yield from (fix.risking("the check has failed: later waves get this driver all the same") for fix in promote(question))


def without_analysis(question: Question) -> Iterator[Candidate]:
    """Get something known of a check, go on although nothing is, or end the rollout."""
    yield from _measurable(question)
    yield from (fix.risking("nobody knows whether the check would pass") for fix in promote(question))
    yield from take_back(question)


def _measurable(question: Question) -> Iterator[Fix]:
    """Repair what keeps a check from being measured, or correct the check."""
    what, case = question.hold.what, question.case
    if not isinstance(what, WaveAnalysis):
        return
    runs = [run for each in question.plan.waves if each.driver == case.policy.driver for run in each.runs
            if (run.wave, run.check.name) == (what.wave, what.check)]
    for run in runs[:1]:
        asked = run.check.promql
        who = asked.server if asked is not None else f"each of its nodes report {', '.join(map(str, run.check.conditions))}"
        do = f"have {who}{' answer it' if asked is not None else ''}, or correct check {what.check} of wave {what.wave}"
        yield replace(_settings(question, do, case.policy.rollout), change=partial(_passing, runs=runs, now=question.now))


def _passing(case: DecisionFacts, runs: Sequence[CheckRun], now: float) -> DecisionFacts:
    """Return the facts as if checks were measured and passed for the first time."""
    passed = {run.key: Measured(Result.PASSED, "", now, good=now) for run in runs}
    return replace(case, snapshot=replace(case.snapshot, measured={**case.snapshot.measured, **passed}))


def go_on_without_a_wave(question: Question) -> Iterator[Candidate]:
    """Go on although nobody has seen the driver run on a node of the wave."""
    yield from (fix.risking("nobody has seen this driver run on a node of the wave") for fix in promote(question))
    yield from take_back(question)


def go_without(question: Question) -> Iterator[Candidate]:
    """Wait no longer for nodes of a wave that need somebody."""
    what = question.hold.what
    nodes = question.case.snapshot.nodes
    held = [name for name in (what.nodes if isinstance(what, WaveNotDone) else ()) if _needs_person(question, name)]
    for name in [name for name in held if name in nodes][:MOST_SKIPPED]:
        skip = fixes.label_node(nodes[name], names.UPGRADE_SKIP, "true",
                                f"see what node {name} waits for and mend that, or leave it out of the rollout")
        yield replace(skip, looks=(f"gpuward explain {quote(name)}",))
    yield from promote(question)


def widen(question: Question) -> Iterator[Candidate]:
    """Have the limits of the rollout alone in all waves."""
    rollout = question.case.policy.rollout
    waves = tuple(replace(wave, max_unavailable=None) for wave in rollout.waves)
    yield _settings(question, "take maxUnavailable from the waves", replace(rollout, waves=waves))


def take_windows(question: Question, wave: str) -> Fix:
    """Return the fix by which a wave has no windows any more, and no window holds its nodes."""
    rollout = question.case.policy.rollout
    without = tuple(replace(each, windows=()) if each.name == wave else each for each in rollout.waves)
    fix = _settings(question, f"take the windows from wave {wave}", replace(rollout, waves=without))
    return fix.risking("its nodes start, node after node, when the windows of the RolloutPolicy are open")


def grow(question: Question) -> Iterator[Candidate]:
    """Have the limits of the rollout from the start."""
    rollout = question.case.policy.rollout
    if rollout.growth is not None:
        do = "take the growth from the RolloutPolicy"
        yield policy_fixes.change_rollout(question.case, do, {"growth": None}, replace(rollout, growth=None))


def _needs_person(question: Question, name: str) -> bool:
    hold = question.plan.holds.get(name)
    return hold is not None and hold.reason.needs_person


def _waiting(question: Question) -> tuple[str, ...]:
    """Return the nodes of the waves up to that which is waited for that are not done."""
    what, driver = question.hold.what, question.case.policy.driver
    name = what.wave if isinstance(what, WaveNotDone | WaveFailed) else ""
    told: tuple[WaveStatus, ...] = next((each.waves for each in question.plan.waves if each.driver == driver), ())
    return next((wave.waiting for wave in told if wave.name == name), ())


def _word(question: Question, *nodes: str) -> Word:
    own = [each for each in question.plan.waves if each.driver == question.case.policy.driver]
    finished = (wave.finished for each in own for wave in each.waves)
    targets = {question.node.target, *(target for each in own for target in each.every)}
    return Word(max(question.now, *finished), "", tuple(sorted(targets)), nodes)


def _said(question: Question, verb: str, do: str, **word: Word) -> Fix:
    """Return the fix that is somebody's word."""
    case = question.case
    after = replace(case.policy, rollout=replace(case.policy.rollout, **word))
    return Fix(do, partial(policy_fixes.under, before=case.policy, after=after), command_for(verb, case.policy.driver))


def _settings(question: Question, do: str, rollout: RolloutSettings) -> Fix:
    case = question.case
    change = partial(policy_fixes.under, before=case.policy, after=replace(case.policy, rollout=rollout))
    view = next((each for each in case.snapshot.rollout_policies if not each.deleting), None)
    target = quote(view.name) if view is not None else policy_fixes.ROLLOUT_POLICY
    return Fix(do, change, f"kubectl edit rolloutpolicy {target}")
