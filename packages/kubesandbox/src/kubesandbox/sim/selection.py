"""Does this match that: label selectors, node selectors, taints and tolerations.

The operators are those of the Kubernetes API: In, NotIn, Exists, DoesNotExist, and Gt and Lt for node selectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kubesandbox.sim.objects import Object

BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"


def _compares(value: str | None, wanted: str, larger: bool) -> bool:
    try:
        number, limit = int(value or ""), int(wanted)
    except ValueError:
        return False
    return number > limit if larger else number < limit


_OPERATORS: Final[Mapping[str, Callable[[str | None, list[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: len(values) == 1 and _compares(value, values[0], True),
    "Lt": lambda value, values: len(values) == 1 and _compares(value, values[0], False),
}


def expressions_match(expressions: Iterable[Object], labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy every expression; an unknown operator is satisfied by nothing."""
    for expression in expressions:
        satisfied = _OPERATORS.get(expression.get("operator", ""))
        if satisfied is None or not satisfied(labels.get(expression["key"]), expression.get("values") or []):
            return False
    return True


def selector_matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector selects labels; an absent one selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return expressions_match(selector.get("matchExpressions") or (), labels)


def node_terms_match(terms: Iterable[Object], node: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a node satisfies one of the terms of a required node affinity."""
    fields = {"metadata.name": node}
    for term in terms:
        by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
        if not by_label and not by_field:
            continue
        if expressions_match(by_label, labels) and expressions_match(by_field, fields):
            return True
    return False


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Tell whether one of the tolerations covers a taint, for however long."""
    return any(covers(toleration, taint) for toleration in tolerations)


def covers(toleration: Object, taint: Object) -> bool:
    """Tell whether a toleration covers a taint; an empty effect covers all effects, no key with Exists all keys."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return bool(toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or ""))


def untolerated(node: Object, tolerations: list[Object], effects: Iterable[str]) -> Object | None:
    """Return the first taint with one of the effects that nothing tolerates; a cordon counts as its taint."""
    taints = list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable") and not any(taint["key"] == UNSCHEDULABLE_TAINT for taint in taints):
        taints.append({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"})
    for taint in taints:
        if taint["effect"] in effects and not tolerates(tolerations, taint):
            found: Object = taint
            return found
    return None
