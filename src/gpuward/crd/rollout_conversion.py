"""From a RolloutPolicy as people write it to the settings that the upgrade decision follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuward.crd.check import field_path
from gpuward.crd.decode import typed
from gpuward.crd.durations import parse_duration
from gpuward.crd.rolloutpolicy import DEADLINE_STATES, RolloutPolicy
from gpuward.crd.windows import followed, window_problems
from gpuward.errors import PolicyError
from gpuward.model.rollout import DeviceHolders, FailureBudget, RolloutSettings
from gpuward.model.states import State

DEADLINES_FIELD = "spec.deadlines"
WINDOWS_FIELD = "spec.windows"


def typed_rollout(obj: Mapping[str, Any]) -> tuple[RolloutPolicy | None, list[PolicyError]]:
    """Return a RolloutPolicy, if it can be decoded, and everything in it that cannot be followed, in the order of its fields."""
    policy, problems = typed(obj, RolloutPolicy)
    windows = policy.spec.windows if policy is not None else ()
    unusable = (problem for place, window in enumerate(windows) for problem in window_problems(window_field(place), window))
    return policy, [*problems, *_unknown_states(obj), *unusable]


def window_field(place: int) -> str:
    """Return the path of a window."""
    return f"{WINDOWS_FIELD}[{place}]"


def _unknown_states(obj: Mapping[str, Any]) -> Iterator[PolicyError]:
    spec = obj.get("spec")
    deadlines = spec.get("deadlines") if isinstance(spec, Mapping) else None
    for state in deadlines if isinstance(deadlines, Mapping) else ():
        if state not in DEADLINE_STATES:
            yield PolicyError(DEADLINES_FIELD, state, "name one of the states " + ", ".join(DEADLINE_STATES))


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
        windows=tuple(followed(window_field(place), window) for place, window in enumerate(spec.windows)),
    )


def _seconds(field: str, text: str) -> float:
    return parse_duration(field, text, PolicyError)
