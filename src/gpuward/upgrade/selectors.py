"""Label selectors in the text form of the API: `a=b,c!=d,e in (f,g),!h`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from gpuward.errors import PolicyError
from gpuward.model.selectors import Requirement, satisfied

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<values>[^=!\s]*)$")
_ORDER = re.compile(r"^(?P<key>[^<>\s]+)\s*(?P<op>[<>])\s*(?P<values>-?[0-9]{1,18})$")
_PRESENCE = re.compile(r"^(?P<op>!?)\s*(?P<key>[^=!<>\s()]+)$")
_COMMA = re.compile(r",(?![^(]*\))")


@lru_cache(maxsize=64)
def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Return the requirements of a selector.

    Raises:
        PolicyError: the text is not a label selector.
    """
    return tuple(_requirement(part.strip(), text) for part in _COMMA.split(text) if part.strip())


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy every requirement of a selector; the empty selector matches everything."""
    return satisfied(parse_selector(selector), labels)


def _requirement(part: str, whole: str) -> Requirement:
    for pattern in (_SET, _EQUALITY, _ORDER, _PRESENCE):
        if found := pattern.match(part):
            groups = found.groupdict()
            operator = {"==": "in", "=": "in", "!=": "notin", "": "exists", "!": "absent"}.get(groups["op"], groups["op"])
            values = groups.get("values")
            return groups["key"], operator, frozenset(v.strip() for v in values.split(",")) if values is not None else frozenset()
    raise PolicyError("podSelector", whole, "write a label selector such as app=training,tier!=low")
