"""From a RolloutPolicy as people write it to the settings that the upgrade decision follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from gpuward import names
from gpuward.crd.check import field_path
from gpuward.crd.decode import typed
from gpuward.crd.durations import parse_duration
from gpuward.crd.rolloutpolicy import (
    DEADLINE_STATES,
    RolloutDomains,
    RolloutGangs,
    RolloutNotice,
    RolloutOpportunities,
    RolloutPolicy,
)
from gpuward.crd.waves import followed_growth, followed_wave, wave_problems
from gpuward.crd.windows import followed, moment, window_problems
from gpuward.errors import PolicyError
from gpuward.model.domains import DomainMode, DomainSettings
from gpuward.model.gangs import LONGEST_UNTIL as LONGEST_SPARED
from gpuward.model.gangs import GangSettings
from gpuward.model.maintenance import MaintenanceMode
from gpuward.model.marks import Interop
from gpuward.model.notice import LONGEST_BEFORE, Acknowledge, NoticeSettings
from gpuward.model.opportunities import OpportunisticSettings
from gpuward.model.rollout import DeviceHolders, FailureBudget, RolloutSettings
from gpuward.model.selectors import is_label_key
from gpuward.model.staging import OnFailure, Prestage, PrestageMode
from gpuward.model.states import State
from gpuward.model.undrainable import Behaviour, UndrainableSettings
from gpuward.model.windows import WindowFit

DEADLINES_FIELD = "spec.deadlines"
WINDOWS_FIELD = "spec.windows"
OPPORTUNITIES_FIELD = "spec.opportunistic"
UNTIL_FIELD = f"{OPPORTUNITIES_FIELD}.until"
LONGEST_UNTIL = 366 * 24 * 3600.0
GANGS_FIELD = "spec.gangs.until"
DOMAINS_KEY_FIELD = "spec.domains.key"
_CHANGING = frozenset({names.UPGRADE_STATE, names.UPGRADE_SKIP, names.DRIVER_OWNER, names.VGPU_HOST_DRIVER})
WAVES_FIELD = "spec.waves"
FINISH_FIELD = "spec.finishBy"
NOTICE_FIELD = "spec.notice.before"


def typed_rollout(obj: Mapping[str, Any]) -> tuple[RolloutPolicy | None, list[PolicyError]]:
    """Return a RolloutPolicy, if it can be decoded, and everything in it that cannot be followed, in the order of its fields."""
    policy, problems = typed(obj, RolloutPolicy)
    windows = policy.spec.windows if policy is not None else ()
    unusable = (problem for place, window in enumerate(windows) for problem in window_problems(window_field(place), window))
    domains = _domain_problems(policy.spec.domains) if policy is not None else ()
    finish = _finish_problems(policy.spec.finish_by) if policy is not None else ()
    spared = _gang_problems(policy.spec.gangs) if policy is not None else ()
    chances = _opportunity_problems(policy.spec.opportunistic) if policy is not None else ()
    unordered = wave_problems(WAVES_FIELD, policy.spec.waves if policy is not None else ())
    notice = _notice_problems(policy.spec.notice) if policy is not None else ()
    return policy, [*problems, *_unknown_states(obj), *domains, *spared, *chances, *unusable, *finish, *unordered, *notice]


def window_field(place: int) -> str:
    """Return the path of a window."""
    return f"{WINDOWS_FIELD}[{place}]"


def _unknown_states(obj: Mapping[str, Any]) -> Iterator[PolicyError]:
    spec = obj.get("spec")
    deadlines = spec.get("deadlines") if isinstance(spec, Mapping) else None
    for state in deadlines if isinstance(deadlines, Mapping) else ():
        if state not in DEADLINE_STATES:
            yield PolicyError(DEADLINES_FIELD, state, "name one of the states " + ", ".join(DEADLINE_STATES))


def _domain_problems(domains: RolloutDomains | None) -> Iterator[PolicyError]:
    key = domains.key if domains is not None else ""
    wish = "write the key of a node label, such as topology.kubernetes.io/zone or nvidia.com/gpu.clique"
    if domains is not None and not is_label_key(key):
        yield PolicyError(DOMAINS_KEY_FIELD, key, wish)
    elif key in _CHANGING or key.startswith((names.OWN_PREFIX, names.DRIVER_VERSION_PREFIX, names.DEPLOY_PREFIX)):
        yield PolicyError(DOMAINS_KEY_FIELD, key, f"{wish}: this one changes as nodes are upgraded")


def _finish_problems(text: str | None) -> Iterator[PolicyError]:
    try:
        if text is not None:
            moment(FINISH_FIELD, text, UTC)
    except PolicyError as problem:
        yield problem


def _opportunity_problems(found: RolloutOpportunities | None) -> Iterator[PolicyError]:
    try:
        if found is not None:
            _opportunities(found)
    except PolicyError as problem:
        yield problem


def _opportunities(found: RolloutOpportunities) -> OpportunisticSettings:
    idle, until = _seconds(f"{OPPORTUNITIES_FIELD}.idleFor", found.idle_for), _seconds(UNTIL_FIELD, found.until)
    if not 0 < until <= LONGEST_UNTIL:
        raise PolicyError(UNTIL_FIELD, found.until, "write a duration between 1s and 8784h, from when a node begins to wait")
    if idle >= until:
        raise PolicyError(f"{OPPORTUNITIES_FIELD}.idleFor", found.idle_for, f"write one shorter than until, {found.until}")
    return OpportunisticSettings(idle, until)


def _gang_problems(found: RolloutGangs | None) -> Iterator[PolicyError]:
    try:
        _gangs(found)
    except PolicyError as problem:
        yield problem


def _gangs(found: RolloutGangs | None) -> GangSettings | None:
    if found is None:
        return None
    until = _seconds(GANGS_FIELD, found.until)
    if until > LONGEST_SPARED:
        raise PolicyError(GANGS_FIELD, found.until, "write a duration of at most 8784h, from when a gang had to leave")
    return GangSettings(until) if found.mode == "Together" else None


def _notice_problems(found: RolloutNotice | None) -> Iterator[PolicyError]:
    try:
        if found is not None:
            _notice(found)
    except PolicyError as problem:
        yield problem


def _notice(found: RolloutNotice) -> NoticeSettings:
    before = _seconds(NOTICE_FIELD, found.before)
    if not 1 <= before <= LONGEST_BEFORE:
        raise PolicyError(NOTICE_FIELD, found.before, "write a duration between 1s and 168h, or leave notice out")
    return NoticeSettings(before, Acknowledge(found.acknowledge))


def rollout_settings(policy: RolloutPolicy) -> RolloutSettings:
    """Return the settings of a RolloutPolicy without problems.

    Raises:
        PolicyError: it has one after all; see `typed_rollout`.
    """
    spec = policy.spec
    return RolloutSettings(
        failure_budget=FailureBudget(spec.failure_budget.nodes, spec.failure_budget.percent),
        deadlines={State(state): _seconds(field_path(DEADLINES_FIELD, state), text) for state, text in spec.deadlines.items()},
        retries=spec.retries,
        retry_backoff=_seconds("spec.retryBackoff", spec.retry_backoff),
        discovery_grace=_seconds("spec.discoveryGrace", spec.discovery_grace),
        device_holders=DeviceHolders(spec.device_holders),
        kill_at_deadline=spec.kill_at_deadline,
        remove_at_once=spec.remove_at_once,
        gangs=_gangs(spec.gangs),
        opportunistic=None if spec.opportunistic is None else _opportunities(spec.opportunistic),
        undrainable=None if spec.undrainable is None else UndrainableSettings(
            Behaviour(spec.undrainable.behaviour), _seconds("spec.undrainable.after", spec.undrainable.after),
            spec.undrainable.max_quarantined),
        domains=None if spec.domains is None else DomainSettings(
            spec.domains.key, DomainMode(spec.domains.mode), spec.domains.max),
        windows=tuple(followed(window_field(place), window) for place, window in enumerate(spec.windows)),
        window_fit=WindowFit(spec.window_fit),
        finish_by=moment(FINISH_FIELD, spec.finish_by, UTC) if spec.finish_by is not None else 0.0,
        waves=tuple(followed_wave(f"{WAVES_FIELD}[{place}]", wave) for place, wave in enumerate(spec.waves)),
        growth=followed_growth(spec.growth),
        prestage=Prestage(PrestageMode(spec.prestage.mode), spec.prestage.parallel, OnFailure(spec.prestage.on_failure)),
        notice=None if spec.notice is None else _notice(spec.notice),
        interop=Interop(spec.interop.nvsentinel, spec.interop.slurm, spec.interop.node_conditions,
                        MaintenanceMode(spec.interop.node_maintenance)),
    )


def _seconds(field: str, text: str) -> float:
    return parse_duration(field, text, PolicyError)
