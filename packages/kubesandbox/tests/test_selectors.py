from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors, selectors
from kubesandbox.resources import REGISTRY


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}}


@pytest.mark.parametrize(("text", "fits"), [
    ("", True), ("app=x", True), ("app==x", True), ("app=y", False), ("app!=y", True), ("app!=x", False), ("missing!=x", True),
    ("app", True), ("missing", False), ("!app", False), ("!missing", True), ("app in (x,y)", True), ("app in (y, z)", False),
    ("app notin (y)", True), ("missing notin (y)", True), ("app notin (x)", False), ("missing in (x)", False),
    ("app=x,tier=2", True), ("app=x,tier=3", False), ("app in (x),!missing,tier!=3", True), ("tier>1", True), ("tier<2", False),
    ("empty=", True), ("app=", False), ("example.com/present", False),
])
def test_label_selectors(text: str, fits: bool) -> None:
    assert selectors.match_labels(selectors.parse_labels(text), labelled(app="x", tier="2", empty="")) is fits


@pytest.mark.parametrize("text", ["a=b=c", "a in b", ",", "a,,b", "a in (b", "=b", "a b"])
def test_broken_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(errors.BadRequest):
        selectors.parse_labels(text)


@pytest.mark.parametrize(("selector", "fits"), [
    (None, False), ({}, True), ({"matchLabels": {"app": "x"}}, True),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, False),
    ({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "z", "operator": "DoesNotExist"}]}, True),
])
def test_label_selector_objects(selector: Any, fits: bool) -> None:
    assert selectors.match_labels(selectors.from_label_selector(selector), labelled(app="x")) is fits


POD = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(("key", "obj", "text", "fits"), [
    ("pods", POD, "spec.nodeName=n1", True), ("pods", POD, "spec.nodeName!=n1", False),
    ("pods", POD, "status.phase=Running,metadata.name=p", True), ("pods", POD, "metadata.namespace=e", False),
    ("pods", POD, "status.podIP=", True),
    ("nodes", {"metadata": {"name": "n"}, "spec": {}}, "spec.unschedulable=false", True),
    ("nodes", {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}, "spec.unschedulable=true", True),
    ("events", {"metadata": {"name": "e"}, "involvedObject": {"name": "n", "kind": "Node"}, "type": "Normal"},
     "involvedObject.name=n,involvedObject.kind=Node,type!=Warning", True),
])
def test_field_selectors(key: str, obj: Any, text: str, fits: bool) -> None:
    resource = REGISTRY[key]
    assert selectors.match_fields(resource, selectors.parse_fields(resource, text), obj) is fits


@pytest.mark.parametrize(("key", "text", "message"), [
    ("pods", "spec.foo=1", "field label not supported: spec.foo"),
    ("configmaps", "data.x=1", "\"data.x\" is not a known field selector: only"),
    ("pods", "nonsense", "invalid selector"),
])
def test_unsupported_fields_are_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(errors.BadRequest, match=message):
        selectors.parse_fields(REGISTRY[key], text)
