"""How the waves of rollouts stand, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.plan import Plan
from gpuward.model.record import format_time
from gpuward.model.waves import RolloutWaves, WavePhase, WaveStatus, command_for
from gpuward.model.windows import moment_in


def wave_lines(plan: Plan) -> list[str]:
    """Return a line for each rollout with waves in which nodes are to get another driver."""
    return [line for each in plan.waves if each.targets for line in _lines(each)]


def _lines(rollout: RolloutWaves) -> Iterator[str]:
    whose = f" of NVIDIADriver {rollout.driver}" if rollout.driver else ""
    told = "; ".join(f"{wave.name}: {wave.done} of {wave.total} done{_phase(wave, rollout)}" for wave in rollout.waves)
    yield f"waves{whose or '    '} {told}"


def _phase(wave: WaveStatus, rollout: RolloutWaves) -> str:
    match wave.phase:
        case WavePhase.SOAKS if wave.soaks is not None:
            then = f", then{_approval(rollout)}" if wave.approval else ""
            return f", soaks until {moment_in(wave.soaks, rollout.zone)}{then}"
        case WavePhase.APPROVAL:
            return f",{_approval(rollout)}"
        case WavePhase.FAILED:
            return f", {len(wave.failed)} failed ({listed(wave.failed, MOST_NAMED)})"
        case WavePhase.GOES:
            return ", goes now"
        case WavePhase.WAITS:
            return ", waits"
    return ""


def _approval(rollout: RolloutWaves) -> str:
    return f" waits for approval: {command_for('approve', rollout.driver)}"


def wave_documents(plan: Plan) -> list[dict[str, Any]]:
    """Return the same for programs, of every rollout with waves."""
    return [{"driver": each.driver or None, "targets": list(each.targets), "waves": [_wave(wave) for wave in each.waves]}
            for each in plan.waves]


def _wave(wave: WaveStatus) -> dict[str, Any]:
    return {"name": wave.name, "state": str(wave.phase), "nodes": wave.total, "done": wave.done, "failed": list(wave.failed),
            "notDone": list(wave.waiting), "soaksUntil": format_time(wave.soaks) if wave.soaks is not None else None}
