"""Label selectors as requirements: what the API's two notations, text and object, both come down to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Requirement = tuple[str, str, frozenset[str]]
"""A label's key, an operator (in, notin, exists, absent, < or >) and the values that it compares with."""

_NUMBER = re.compile(r"-?[0-9]+")


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
