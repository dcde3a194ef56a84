"""Label selectors: the text that people write, by the rules of Kubernetes' apimachinery, and the requirements it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

Requirement = tuple[str, str, frozenset[str]]
"""A label's key, an operator (in, notin, exists, absent, < or >) and the values that it compares with."""

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_KEY: Final = rf"(?:{_PREFIX}/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_LIST: Final = rf"{_VALUE}(?:\s*,\s*{_VALUE})*"

_LABEL_KEY: Final = re.compile(_KEY)
_LABEL_VALUE: Final = re.compile(_VALUE)
_FORMS: Final = (
    re.compile(rf"(?P<op>!?)\s*(?P<key>{_KEY})"),
    re.compile(rf"(?P<key>{_KEY})\s*(?P<op>==|=|!=)\s*(?P<values>{_VALUE})"),
    re.compile(rf"(?P<key>{_KEY})\s*(?P<op>[<>])\s*(?P<values>-?[0-9]{{1,18}})"),
    re.compile(rf"(?P<key>{_KEY})\s+(?P<op>in|notin)\s*\(\s*(?P<values>{_LIST})\s*\)"),
)
_OPERATORS: Final = {
    "": "exists", "!": "absent", "=": "in", "==": "in", "!=": "notin",
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent",
}
"""As selectors are written as text, and in objects."""
_COMMA: Final = re.compile(r",(?![^(]*\))")
_NUMBER: Final = re.compile(r"-?[0-9]+")


def is_label_key(text: str) -> bool:
    """Tell whether a text can be the key of a label or an annotation: a name of up to 63 characters, maybe prefixed."""
    return _LABEL_KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Tell whether a text can be the value of a label."""
    return _LABEL_VALUE.fullmatch(text) is not None


@lru_cache(maxsize=64)
def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Return the requirements of a selector such as `app=train,tier in (a,b),!keep`; an empty one has none.

    Raises:
        ValueError: the text is not a label selector.
    """
    return tuple(_requirement(part.strip()) for part in _COMMA.split(text)) if text.strip() else ()


def read_selector(
    labels: Mapping[str, str], expressions: Iterable[tuple[str, str, Iterable[str]]] = ()
) -> tuple[Requirement, ...]:
    """Return the requirements of a LabelSelector: its matchLabels, and key, operator and values of its matchExpressions."""
    equal = [(key, "in", frozenset({value})) for key, value in sorted(labels.items())]
    return (*equal, *((key, _OPERATORS.get(operator, operator), frozenset(values)) for key, operator, values in expressions))


def _requirement(part: str) -> Requirement:
    for form in _FORMS:
        if found := form.fullmatch(part):
            values = found.groupdict().get("values")
            compared = frozenset() if values is None else frozenset(value.strip() for value in values.split(","))
            return found["key"], _OPERATORS.get(found["op"], found["op"]), compared
    raise ValueError(f"{part!r} is not a requirement on labels")


def is_selector(text: str) -> bool:
    """Tell whether a text is a label selector."""
    try:
        parse_selector(text)
    except ValueError:
        return False
    return True


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy every requirement of a selector; raise ValueError for a text that is none."""
    return satisfied(parse_selector(selector), labels)


def satisfied(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy every requirement; without requirements they do."""
    return all(_holds(requirement, labels) for requirement in requirements)


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
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


class PodSelection(msgspec.Struct, frozen=True, order=True):
    """Say which pods matter to an upgrade policy besides GPU pods and ours."""

    finishing: str = ""
    """The label selector of pods that may finish first; empty for none."""
    drained: bool = False
    """Whether all pods of a node do that a drain evicts."""
    holders: bool = True
    """Whether those that hold the driver without asking for a GPU do."""
