from __future__ import annotations

import pytest

from kubesandbox.sim.objects import Object
from kubesandbox.sim.selection import covers, node_terms_match, selector_matches, untolerated


def expression(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(("selector", "matches"), [
    (None, False), ({}, True), ({"matchLabels": {"app": "web"}}, True), ({"matchLabels": {"app": "db"}}, False),
    ({"matchExpressions": [expression("app", "In", "web", "db")]}, True),
    ({"matchExpressions": [expression("app", "NotIn", "web")]}, False),
    ({"matchExpressions": [expression("zone", "NotIn", "a")]}, True),
    ({"matchExpressions": [expression("app", "Exists")]}, True),
    ({"matchExpressions": [expression("zone", "DoesNotExist")]}, True),
    ({"matchExpressions": [expression("app", "Exists")], "matchLabels": {"zone": "a"}}, False),
    ({"matchExpressions": [expression("app", "Near", "web")]}, False),
])
def test_label_selectors(selector: Object | None, matches: bool) -> None:
    assert selector_matches(selector, {"app": "web", "generation": "8"}) is matches


@pytest.mark.parametrize(("terms", "matches"), [
    ([], False), ([{}], False),
    ([{"matchExpressions": [expression("disks", "Gt", "4")]}], True),
    ([{"matchExpressions": [expression("disks", "Lt", "4")]}], False),
    ([{"matchExpressions": [expression("disks", "Gt", "many")]}], False),
    ([{"matchFields": [expression("metadata.name", "In", "node-1")]}], True),
    ([{"matchFields": [expression("metadata.name", "In", "node-2")]},
      {"matchExpressions": [expression("disks", "Exists")]}], True),
    ([{"matchFields": [expression("metadata.name", "In", "node-1")], "matchExpressions": [expression("x", "Exists")]}], False),
])
def test_node_terms(terms: list[Object], matches: bool) -> None:
    assert node_terms_match(terms, "node-1", {"disks": "8"}) is matches


@pytest.mark.parametrize(("toleration", "covered"), [
    ({"operator": "Exists"}, True), ({"key": "k", "operator": "Exists"}, True), ({"key": "k", "value": "v"}, True),
    ({"key": "k", "value": "w"}, False), ({"key": "other", "operator": "Exists"}, False),
    ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False), ({"key": "k"}, False)])
def test_tolerations(toleration: Object, covered: bool) -> None:
    assert covers(toleration, {"key": "k", "value": "v", "effect": "NoSchedule"}) is covered


def test_a_cordon_counts_as_its_taint_even_before_the_taint_is_there() -> None:
    node = {"spec": {"unschedulable": True}}
    assert untolerated(node, [], ("NoSchedule",)) is not None
    assert untolerated(node, [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], ("NoSchedule",)) is None
    assert untolerated(node, [], ("NoExecute",)) is None
