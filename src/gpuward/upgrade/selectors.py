"""Label selectors in the text form of the API: `a=b,c!=d,e in (f,g),!h`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from gpuward.errors import PolicyError

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<values>[^=!\s]*)$")
_ORDER = re.compile(r"^(?P<key>[^<>\s]+)\s*(?P<op>[<>])\s*(?P<values>-?[0-9]{1,18})$")
_NUMBER = re.compile(r"-?[0-9]+")
_PRESENCE = re.compile(r"^(?P<op>!?)\s*(?P<key>[^=!<>\s()]+)$")
_COMMA = re.compile(r",(?![^(]*\))")

_Requirement = tuple[str, str, frozenset[str]]


@lru_cache(maxsize=64)
def parse_selector(text: str) -> tuple[_Requirement, ...]:
    """Return the requirements of a selector.

    Raises:
        PolicyError: the text is not a label selector.
    """
    return tuple(_requirement(part.strip(), text) for part in _COMMA.split(text) if part.strip())


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy every requirement of a selector; the empty selector matches everything."""
    return all(_holds(requirement, labels) for requirement in parse_selector(selector))


def _requirement(part: str, whole: str) -> _Requirement:
    for pattern in (_SET, _EQUALITY, _ORDER, _PRESENCE):
        if found := pattern.match(part):
            groups = found.groupdict()
            operator = {"==": "in", "=": "in", "!=": "notin", "": "exists", "!": "absent"}.get(groups["op"], groups["op"])
            values = groups.get("values")
            return groups["key"], operator, frozenset(v.strip() for v in values.split(",")) if values is not None else frozenset()
    raise PolicyError("podSelector", whole, "write a label selector such as app=training,tier!=low")


def _holds(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    if operator == "exists":
        return key in labels
    if operator == "absent":
        return key not in labels
    if operator in "<>":
        return _compares(operator, labels.get(key, ""), int(next(iter(values))))
    if operator == "in":
        return key in labels and labels[key] in values
    return key not in labels or labels[key] not in values


def _compares(operator: str, text: str, bound: int) -> bool:
    if not _NUMBER.fullmatch(text):
        return False
    return int(text) < bound if operator == "<" else int(text) > bound
