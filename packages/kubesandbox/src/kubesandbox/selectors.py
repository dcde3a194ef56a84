"""Label selectors and field selectors as query strings, read and worded as the API server does.

Label selectors know `=`, `==`, `!=`, `in`, `notin`, `key` and `!key`. Field selectors know `=`, `==` and `!=` on the fields
that each type offers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubesandbox.resources import Resource

Object = dict[str, Any]

_PART: Final = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET: Final = re.compile(rf"\s*(?P<key>{_PART})\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*(?P<key>{_PART})\s*(?P<op>==?|!=|>|<)\s*(?P<values>[-A-Za-z0-9_.]*)\s*")
_EXISTS: Final = re.compile(rf"\s*(?P<op>!?)\s*(?P<key>{_PART})\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """Ask one thing of an object's labels; `op` is `in`, `notin`, `exists`, `absent`, `>` or `<`."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels satisfy the requirement."""
        value = labels.get(self.key)
        if self.op in ("exists", "absent"):
            return (value is not None) == (self.op == "exists")
        if self.op == "notin":
            return value not in self.values
        if value is None or self.op == "in":
            return value in self.values
        return _compare(self.op, value, next(iter(self.values)))


def _compare(op: str, value: str, bound: str) -> bool:
    try:
        return int(value) > int(bound) if op == ">" else int(value) < int(bound)
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Read a label selector; raise `errors.BadRequest` when it is none."""
    found: list[Requirement] = []
    at = 0
    while at < len(text):
        match = _SET.match(text, at) or _EQUAL.match(text, at) or _EXISTS.match(text, at)
        end = match.end() if match else at
        if match is None or (end < len(text) and text[end] != ","):
            rest = text[end:].strip()
            raise errors.BadRequest(f"unable to parse requirement: found '{rest}', expected: ',' or 'end of string'")
        found.append(_requirement(match))
        at = end + 1
        if at == len(text):
            raise errors.BadRequest("found '', expected: identifier after ','")
    return tuple(found)


def _requirement(match: re.Match[str]) -> Requirement:
    op = match["op"]
    if op in ("", "!"):
        return Requirement(match["key"], "absent" if op else "exists")
    if op in ("in", "notin"):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], op, values)
    if op in ("<", ">") and not match["values"].isdigit():
        raise errors.BadRequest(f'unable to parse requirement: values[0]: Invalid value: "{match["values"]}": for \'Gt\', '
                                "'Lt' operators, the value must be an integer")
    name = {"=": "in", "==": "in", "!=": "notin"}.get(op, op)
    return Requirement(match["key"], name, frozenset({match["values"]}))


def from_label_selector(selector: Object | None) -> tuple[Requirement, ...] | None:
    """Read a LabelSelector object; None, which selects nothing, stays None."""
    if selector is None:
        return None
    found = [Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for wanted in selector.get("matchExpressions") or ():
        found.append(Requirement(wanted["key"], names[wanted["operator"]], frozenset(wanted.get("values") or ())))
    return tuple(found)


def match_labels(requirements: tuple[Requirement, ...] | None, obj: Object) -> bool:
    """Tell whether an object's labels satisfy a selector; None satisfies nothing, an empty one everything."""
    if requirements is None:
        return False
    labels = obj["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in requirements)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """Ask that a field has, or has not, a value."""

    field: str
    value: str
    equal: bool


def parse_fields(resource: Resource, text: str) -> tuple[FieldRequirement, ...]:
    """Read a field selector; raise `errors.BadRequest` for a field that the type does not offer."""
    found = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)\s*(.*?)\s*", term)
        if match is None:
            raise errors.BadRequest(f"invalid selector: '{term}'; can't understand '{term}'")
        if match[1] not in supported_fields(resource):
            raise _unsupported(resource, match[1])
        found.append(FieldRequirement(match[1], match[3], match[2] != "!="))
    return tuple(found)


def _unsupported(resource: Resource, field: str) -> errors.BadRequest:
    if resource.key in _FIELDS or resource.custom:
        return errors.BadRequest(f"field label not supported: {field}")
    known = ", ".join(f'"{name}"' for name in supported_fields(resource))
    return errors.BadRequest(f'"{field}" is not a known field selector: only {known}')


def supported_fields(resource: Resource) -> dict[str, Callable[[Object], str]]:
    """Return the fields that a type's objects can be selected by."""
    common: dict[str, Callable[[Object], str]] = {"metadata.name": _at("metadata.name")}
    if resource.namespaced:
        common["metadata.namespace"] = _at("metadata.namespace")
    return common | _FIELDS.get(resource.key, {})


def match_fields(resource: Resource, requirements: tuple[FieldRequirement, ...], obj: Object) -> bool:
    """Tell whether an object has what a field selector asks for."""
    if not requirements:
        return True
    known = supported_fields(resource)
    return all((known[wanted.field](obj) == wanted.value) == wanted.equal for wanted in requirements)


def _at(path: str) -> Callable[[Object], str]:
    steps = path.split(".")

    def read(obj: Object) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def _flag(path: str) -> Callable[[Object], str]:
    read = _at(path)
    return lambda obj: read(obj) or "false"


def _paths(*paths: str) -> dict[str, Callable[[Object], str]]:
    return {path: _at(path) for path in paths}


def _event_source(obj: Object) -> str:
    return _at("source.component")(obj) or _at("reportingComponent")(obj)


_FIELDS: Final[dict[str, dict[str, Callable[[Object], str]]]] = {
    "pods": _paths("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
                   "status.podIP", "status.nominatedNodeName") | {"spec.hostNetwork": _flag("spec.hostNetwork")},
    "nodes": {"spec.unschedulable": _flag("spec.unschedulable")},
    "namespaces": _paths("status.phase"),
    "secrets": _paths("type"),
    "jobs.batch": _paths("status.successful"),
    "replicasets.apps": _paths("status.replicas"),
    "services": _paths("spec.clusterIP", "spec.type"),
    "events": _paths(*(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion",
                                                             "resourceVersion", "fieldPath")),
                     "reason", "reportingComponent", "type") | {"source": _event_source},
}
