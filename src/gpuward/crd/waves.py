"""The waves and the growth of a RolloutPolicy, as people write them, and what the upgrade decision follows of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from gpuward.crd.analysis import CHECKS_DIFFER, MOST_CHECKS, ONE_KIND, WaveCheck, analysis_problems, followed_check
from gpuward.crd.durations import Duration, parse_duration
from gpuward.crd.facts import DEFAULTED, NonNegative, Spec, cel, schema, shape
from gpuward.crd.windows import ONE_FORM, RolloutWindow, followed, window_problems
from gpuward.errors import PolicyError
from gpuward.model.selectors import is_label_key, is_label_value
from gpuward.model.waves import REST, Growth, Share, Tolerance, Wave

MOST_WAVES: Final = 16
MOST_OF_WAVE: Final = 8
"""Windows that a wave may have."""
LONGEST_SOAK: Final = 31 * 24 * 3600.0
"""Seconds that a wave may soak."""
_PERCENT: Final = r"^(?:[1-9][0-9]?|100)%$"

Approval = Literal["Required", "NotRequired"]
NodeShare: TypeAlias = Annotated[int | str, shape(
    {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True, "pattern": _PERCENT})]
NAMES_DIFFER: Final = cel(
    "self.all(one, self.exists_one(other, other.name == one.name))", "two waves have the same name")


class WaveFailureBudget(Spec, frozen=True, kw_only=True):
    """Hold later waves when more nodes of a wave have failed than the larger of these two allows."""

    nodes: Annotated[NonNegative, DEFAULTED] = 0
    percent: Annotated[int, DEFAULTED, Meta(ge=0, le=100)] = 0


class RolloutWave(Spec, frozen=True, kw_only=True):
    """Say which nodes go before all that are in no earlier wave, and what has to be before those follow."""

    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    node_selector: dict[str, str] = field(default_factory=dict)
    nodes: NodeShare | None = None
    max_unavailable: NodeShare | None = None
    soak: Annotated[Duration, DEFAULTED] = "0"
    approval: Annotated[Approval, DEFAULTED] = "NotRequired"
    failure_budget: Annotated[WaveFailureBudget, DEFAULTED] = WaveFailureBudget()
    analysis: Annotated[
        tuple[Annotated[WaveCheck, ONE_KIND], ...], schema(maxItems=MOST_CHECKS), CHECKS_DIFFER] = ()
    windows: Annotated[tuple[Annotated[RolloutWindow, ONE_FORM], ...], schema(maxItems=MOST_OF_WAVE)] = ()


class RolloutGrowth(Spec, frozen=True, kw_only=True):
    """Let few nodes be under way at first, and more with every set that is done."""

    start: Annotated[int, DEFAULTED, Meta(ge=1, le=10_000)] = 1
    factor: Annotated[int, DEFAULTED, Meta(ge=1, le=100)] = 2


def wave_problems(path: str, waves: Sequence[RolloutWave]) -> Iterator[PolicyError]:
    """Yield everything in waves that cannot be followed; `path` is where they are written."""
    names: set[str] = set()
    for place, wave in enumerate(waves):
        if wave.name in names:
            yield PolicyError(f"{path}[{place}].name", wave.name, "give each wave a name of its own")
        names.add(wave.name)
        try:
            followed_wave(f"{path}[{place}]", msgspec.structs.replace(wave, analysis=(), windows=()))
        except PolicyError as problem:
            yield problem
        for number, window in enumerate(wave.windows):
            yield from window_problems(f"{path}[{place}].windows[{number}]", window)
        yield from analysis_problems(f"{path}[{place}].analysis", wave.analysis)
    if len(waves) > MOST_WAVES:
        yield PolicyError(path, f"{len(waves)} waves", f"write up to {MOST_WAVES}; {REST} are the last one in any case")


def followed_wave(path: str, wave: RolloutWave) -> Wave:
    """Return a wave as it is followed.

    Raises:
        PolicyError: it cannot be.
    """
    soak = parse_duration(f"{path}.soak", wave.soak, PolicyError)
    if soak > LONGEST_SOAK:
        raise PolicyError(f"{path}.soak", wave.soak, "write a duration of up to 744h")
    return Wave(
        wave.name,
        _selector(f"{path}.nodeSelector", wave.node_selector),
        _share(f"{path}.nodes", wave.nodes),
        _share(f"{path}.maxUnavailable", wave.max_unavailable),
        soak,
        wave.approval == "Required",
        Tolerance(wave.failure_budget.nodes, wave.failure_budget.percent),
        tuple(followed_check(f"{path}.analysis[{place}]", check) for place, check in enumerate(wave.analysis)),
        tuple(followed(f"{path}.windows[{place}]", window) for place, window in enumerate(wave.windows)),
    )


def followed_growth(growth: RolloutGrowth | None) -> Growth | None:
    """Return the growth of a rollout, None where it has all its limits from the start."""
    return None if growth is None else Growth(growth.start, growth.factor)


def _selector(path: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in labels.items():
        if not is_label_key(key):
            raise PolicyError(path, key, "write the key of a label, such as pool")
        if not is_label_value(value):
            raise PolicyError(f"{path}[{key}]", value, "write a label's value: up to 63 letters, digits, '-', '_' and '.'")
    return labels


def _share(path: str, value: int | str | None) -> Share | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return Share(count=value)
    if isinstance(value, str) and re.fullmatch(_PERCENT, value):
        return Share(percent=int(value[:-1]))
    raise PolicyError(path, value, 'write a number of nodes from 1 on without quotes, or a percentage such as "10%"')
