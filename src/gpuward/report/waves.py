"""How the waves of rollouts stand, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gpuward.model.analysis import Measured, Result
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS
from gpuward.model.waves import REST, CheckStatus, RolloutWaves, WavePhase, WaveStatus, command_for
from gpuward.model.windows import moment_in


def wave_lines(plan: Plan) -> list[str]:
    """Return a line for each rollout with waves in which nodes are to get another driver."""
    return [line for each in plan.waves if each.targets for line in _lines(each, plan)]


def wave_items(plan: Plan) -> list[str]:
    """Return the same in one line for each wave."""
    return [f"{f'NVIDIADriver {each.driver}, ' if each.driver else ''}{line}"
            for each in plan.waves if each.targets for line in (*_waves(each, plan), *filter(None, [_aborted(each)]))]


def _lines(rollout: RolloutWaves, plan: Plan) -> Iterator[str]:
    whose = f" of NVIDIADriver {rollout.driver}" if rollout.driver else ""
    yield f"waves{whose or '    '} {'; '.join((*_waves(rollout, plan), *filter(None, [_aborted(rollout)])))}"


def _waves(rollout: RolloutWaves, plan: Plan) -> list[str]:
    waves = [wave for wave in rollout.waves if wave.total or wave.left or wave.name != REST]
    return [f"{wave.name}: {_count(wave)}{_phase(wave, rollout, plan)}" for wave in waves]


def _count(wave: WaveStatus) -> str:
    left = f"{len(wave.left)} left out"
    if wave.left and not wave.total:
        return left
    return f"{wave.done} of {wave.total} done" + (f", {left}" if wave.left else "")


def _aborted(rollout: RolloutWaves) -> str:
    if rollout.aborted is None:
        return ""
    return f"aborted by {rollout.aborted.by or 'somebody'}, and `{command_for('resume', rollout.driver)}` lets it go on"


def _phase(wave: WaveStatus, rollout: RolloutWaves, plan: Plan) -> str:
    match wave.phase:
        case WavePhase.SOAKS if wave.soaks is not None:
            then = f", then{_approval(rollout)}" if wave.approval else ""
            return f", soaks until {moment_in(wave.soaks, rollout.zone)}{then}{_checks(wave)}"
        case WavePhase.ANALYSIS | WavePhase.ANALYSIS_FAILED:
            return _checks(wave)
        case WavePhase.APPROVAL:
            return f",{_approval(rollout)}"
        case WavePhase.FAILED:
            return f", {len(wave.failed)} failed ({listed(wave.failed, MOST_NAMED)})"
        case WavePhase.EMPTY:
            return ", has no node any more"
        case WavePhase.GOES:
            held = _held(wave, plan)
            return f", waits ({', '.join(f'{count} {reason}' for reason, count in held.items())})" if held else ", goes now"
        case WavePhase.WAITS:
            return ", waits"
    return ""


def _checks(wave: WaveStatus) -> str:
    """Say what was measured last of its checks."""
    return "".join(f", check {one.name} {_result(one.measured)}" for one in wave.checks)


def _result(measured: Measured | None) -> str:
    if measured is None:
        return "is not measured yet"
    if measured.result is Result.PASSED:
        return f"passes ({measured.told})"
    return f"is not known ({measured.told})" if measured.result is Result.UNKNOWN else f"fails ({measured.told})"


def _check(one: CheckStatus) -> dict[str, Any]:
    found = one.measured
    return {"name": one.name, "result": str(found.result) if found is not None else None,
            "told": found.told if found is not None else "", "failures": found.failures if found is not None else 0,
            "passesSince": format_time(found.good) if found is not None and found.good else None}


def _approval(rollout: RolloutWaves) -> str:
    return f" waits for approval: {command_for('approve', rollout.driver)}"


def _held(wave: WaveStatus, plan: Plan) -> dict[str, int]:
    """Return what the nodes of a wave wait for whose turn it is, the most frequent first; nothing where some go on."""
    found = [plan.nodes[name] for name in wave.waiting if name in plan.nodes]
    holds = [status.hold for status in found if status.state not in IN_PROGRESS and status.hold is not None]
    if len(holds) < len(found) or any(hold.reason.is_turn for hold in holds):
        return {}
    return dict(Counter(str(hold.reason) for hold in holds).most_common())


def approvals_to_come(plan: Plan, upgrades: Iterable[UpgradePolicy]) -> list[tuple[str, str]]:
    """Return the waves, by driver and name, that are going to ask for an approval which nobody has given yet."""
    rollouts = {policy.driver: policy.rollout for policy in upgrades if policy.rollout.waves}
    found = []
    for each in plan.waves:
        rollout = rollouts.get(each.driver)
        wants = {wave.name for wave in rollout.waves if wave.approval} if rollout is not None and each.targets else set()
        word = rollout.approved if rollout is not None else None
        for wave in each.waves[:-1]:
            given = word is not None and wave.phase in (WavePhase.SOAKS, WavePhase.ANALYSIS) and word.at >= wave.finished and (
                set(each.targets) <= set(word.targets))
            if wave.name in wants and not given and wave.phase not in (WavePhase.DONE, WavePhase.APPROVAL):
                found.append((each.driver, wave.name))
    return found


def wave_documents(plan: Plan) -> list[dict[str, Any]]:
    """Return the same for programs, of every rollout with waves."""
    return [{"driver": each.driver or None, "targets": list(each.targets), "waves": [_wave(wave, plan) for wave in each.waves]}
            for each in plan.waves]


def _wave(wave: WaveStatus, plan: Plan) -> dict[str, Any]:
    phase = WavePhase.WAITS if wave.phase is WavePhase.GOES and _held(wave, plan) else wave.phase
    return {"name": wave.name, "state": str(phase), "nodes": wave.total, "done": wave.done, "failed": list(wave.failed),
            "notDone": list(wave.waiting), "leftOut": list(wave.left),
            "soaksUntil": format_time(wave.soaks) if wave.soaks is not None else None,
            "checks": [_check(one) for one in wave.checks]}
