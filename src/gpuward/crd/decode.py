"""Custom resources as JSON values <-> the types: where a decoding problem becomes a sentence about a field.

A status that cannot be read counts as absent: it is the operator's to write anew, and no reason to stop following the
spec. It can come from an operator of another version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gpuward.crd.check import violations
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.generate import Kind, schema_for_reading
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.crd.rolloutpolicy import RolloutPolicy
from gpuward.errors import PolicyError

if TYPE_CHECKING:
    from gpuward.crd.facts import KubeObject

Resource = TypeVar("Resource", ClusterPolicy, NVIDIADriver, RolloutPolicy)


def cluster_policy(obj: Mapping[str, Any]) -> ClusterPolicy:
    """Decode a ClusterPolicy object; unknown fields are ignored, absent ones get their defaults.

    Raises:
        PolicyError: it is no ClusterPolicy of the version that gpuward knows, or breaks the schema; the first
            violation if there are several, see `violations_of`.
    """
    return _decode(obj, ClusterPolicy)


def nvidia_driver(obj: Mapping[str, Any]) -> NVIDIADriver:
    """Decode an NVIDIADriver object; unknown fields are ignored, absent ones get their defaults.

    Raises:
        PolicyError: it is no NVIDIADriver of the version that gpuward knows, or breaks the schema; the first
            violation if there are several, see `violations_of`.
    """
    return _decode(obj, NVIDIADriver)


def rollout_policy(obj: Mapping[str, Any]) -> RolloutPolicy:
    """Decode a RolloutPolicy object; unknown fields are ignored, absent ones get their defaults.

    Raises:
        PolicyError: it is no RolloutPolicy of the version that gpuward knows, or breaks the schema; the first
            violation if there are several, see `violations_of`.
    """
    return _decode(obj, RolloutPolicy)


def typed(obj: Mapping[str, Any], kind: type[Resource]) -> tuple[Resource | None, list[PolicyError]]:
    """Return an object as this kind, or None and everything for which it cannot be decoded; the schema is walked once."""
    if problems := violations_of(obj, kind):
        return None, problems
    status = schema_for_reading(kind)["properties"]["status"]
    readable = not any(violations(obj.get("status"), status))
    return msgspec.convert(_without_nulls(obj if readable else _without_status(obj)), kind), []


def in_part(obj: Mapping[str, Any], problems: Sequence[PolicyError], kind: type[Resource]) -> Resource | None:
    """Return an object without the fields that it cannot be decoded for, so that what else is wrong is found at the same time."""
    rest = _without_nulls(_without_status(obj))
    for problem in problems:
        *parents, last = problem.field.partition("[")[0].split(".")
        inner = rest
        for key in parents:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
    return typed(rest, kind)[0]


def violations_of(obj: Mapping[str, Any], kind: Kind) -> list[PolicyError]:
    """Return everything for which an object cannot be decoded as this kind, in the order of its fields."""
    wrong_kind = [
        PolicyError(field, obj.get(field), f"write {wanted}")
        for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)) if obj.get(field) != wanted
    ]
    return wrong_kind or list(violations(_without_status(obj), schema_for_reading(kind)))


def to_object(resource: ClusterPolicy | NVIDIADriver | RolloutPolicy) -> KubeObject:
    """Encode a resource; what equals its default is left out."""
    body: KubeObject = msgspec.json.decode(msgspec.json.encode(resource))
    return {"apiVersion": resource.api_version, "kind": resource.kind} | body


def _decode(obj: Mapping[str, Any], kind: type[Resource]) -> Resource:
    resource, problems = typed(obj, kind)
    if resource is None:
        raise problems[0]
    return resource


def _without_status(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in obj.items() if field != "status"}


def _without_nulls(value: Any) -> Any:
    """Drop fields that are null, as the API server does for fields that are not nullable."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
