"""The analysis of a wave of a RolloutPolicy, as people write it, and what the upgrade decision follows of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from gpuward.crd.durations import Duration, parse_duration
from gpuward.crd.facts import DEFAULTED, Spec, cel
from gpuward.errors import PolicyError
from gpuward.model.analysis import Check, FailWhen, NodeCondition, Promql

MOST_CHECKS: Final = 8
MOST_CONDITIONS: Final = 16
SHORTEST_INTERVAL: Final = 10.0
LONGEST_INTERVAL: Final = 3600.0
LONGEST_FOR: Final = 24 * 3600.0
"""Seconds. A new operator begins anew with them, so that what is to last for days is a soak."""
MOST_FAILURES: Final = 1000
_NUMBER: Final = r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?"
FAIL_WHEN: Final = rf"^(==|!=|>=|<=|>|<) ?({_NUMBER})$"
_SERVER: Final = r"^https?://[A-Za-z0-9.:_\[\]-]+(/[A-Za-z0-9._~/-]*)?$"

OnNoData = Literal["Hold"]
ConditionStatus = Literal["True", "False", "Unknown"]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]

CHECKS_DIFFER: Final = cel("self.all(one, self.exists_one(other, other.name == one.name))", "two checks have the same name")
ONE_KIND: Final = cel("has(self.nodeConditions) != has(self.promql)", "a check has nodeConditions or promql")
TOKENS_BY_TLS: Final = cel(
    "!has(self.secretRef) || self.server.startsWith('https://')", "what is in a Secret is sent to a server with https alone")


class AnalysisCondition(Spec, frozen=True, kw_only=True):
    """Hold a condition that no node of the wave may have."""

    type: Annotated[str, Meta(min_length=1, max_length=316)]
    status: Annotated[ConditionStatus, DEFAULTED] = "True"


class AnalysisSecret(Spec, frozen=True, kw_only=True):
    """Name a Secret in the operator's namespace."""

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]


class AnalysisPromql(Spec, frozen=True, kw_only=True):
    """Ask a Prometheus, or what speaks its HTTP API, for the samples of now."""

    server: Annotated[str, Meta(min_length=8, max_length=512, pattern=_SERVER)]
    query: Annotated[str, Meta(min_length=1, max_length=4096)]
    fail_when: Annotated[str, Meta(min_length=2, max_length=40, pattern=FAIL_WHEN)]
    secret_ref: AnalysisSecret | None = None


class WaveCheck(Spec, frozen=True, kw_only=True):
    """Say what has to be seen of a wave before later ones start."""

    name: Name
    node_conditions: Annotated[tuple[AnalysisCondition, ...], Meta(min_length=1, max_length=MOST_CONDITIONS)] | None = None
    promql: Annotated[AnalysisPromql, TOKENS_BY_TLS] | None = None
    interval: Annotated[Duration, DEFAULTED] = "1m"
    for_: Annotated[Duration, DEFAULTED] = field(default="5m", name="for")
    failures: Annotated[int, DEFAULTED, Meta(ge=1, le=MOST_FAILURES)] = 1
    on_no_data: Annotated[OnNoData, DEFAULTED] = "Hold"


def analysis_problems(path: str, checks: Sequence[WaveCheck]) -> Iterator[PolicyError]:
    """Yield everything in an analysis that cannot be followed; `path` is where it is written."""
    names: set[str] = set()
    for place, check in enumerate(checks):
        if check.name in names:
            yield PolicyError(f"{path}[{place}].name", check.name, "give each check of a wave a name of its own")
        names.add(check.name)
        try:
            followed_check(f"{path}[{place}]", check)
        except PolicyError as problem:
            yield problem
    if len(checks) > MOST_CHECKS:
        yield PolicyError(path, f"{len(checks)} checks", f"write up to {MOST_CHECKS} for a wave")


def followed_check(path: str, check: WaveCheck) -> Check:
    """Return a check as it is followed.

    Raises:
        PolicyError: it cannot be.
    """
    if (check.node_conditions is None) == (check.promql is None):
        there = "both" if check.promql is not None else "neither"
        raise PolicyError(path, f"with {there}", "write nodeConditions or promql")
    interval = _between(f"{path}.interval", check.interval, SHORTEST_INTERVAL, LONGEST_INTERVAL, "10s and 1h")
    lasts = _between(f"{path}.for", check.for_, 0.0, LONGEST_FOR, "0s and 24h: what is to last longer is a soak")
    conditions = tuple(NodeCondition(one.type, one.status) for one in check.node_conditions or ())
    if any(one.type == "Ready" for one in conditions):
        raise PolicyError(f"{path}.nodeConditions", "Ready", "name another condition: nodes that are not Ready are not judged")
    promql = _promql(f"{path}.promql", check.promql) if check.promql is not None else None
    return Check(check.name, conditions, promql, interval, lasts, check.failures)


def _between(path: str, text: str, least: float, most: float, told: str) -> float:
    seconds = parse_duration(path, text, PolicyError)
    if not least <= seconds <= most:
        raise PolicyError(path, text, f"write a duration between {told}")
    return seconds


def _promql(path: str, found: AnalysisPromql) -> Promql:
    _check_server(f"{path}.server", found.server)
    secret = found.secret_ref.name if found.secret_ref is not None else ""
    if secret and not found.server.startswith("https://"):
        raise PolicyError(f"{path}.server", found.server, "write an https:// server, as what is in the Secret is sent to it")
    if not found.query.strip():
        raise PolicyError(f"{path}.query", found.query, "write an instant query in PromQL")
    return Promql(found.server.rstrip("/"), found.query, _fail_when(f"{path}.failWhen", found.fail_when), secret)


def _check_server(path: str, text: str) -> None:
    wish = "write where the Prometheus is, such as http://prometheus.monitoring.svc:9090, without a user or a query"
    try:
        parts = urlsplit(text)
        fine = re.fullmatch(_SERVER, text) and parts.hostname and parts.port != 0
    except ValueError:  # no such port, or half an IPv6 address
        fine = False
    if not fine:
        raise PolicyError(path, text, wish)


def _fail_when(path: str, text: str) -> FailWhen:
    found = re.fullmatch(FAIL_WHEN, text)
    if found is None:
        raise PolicyError(path, text, 'write a comparison with a number, such as "> 0" or ">= 0.05"')
    return FailWhen(found[1], float(found[2]))
