"""The JSON patch that a change of a node becomes."""

from __future__ import annotations

import pytest

from gpuward.execute.nodes import operations
from gpuward.model.actions import PatchNode
from gpuward.model.views import Ref

NODE = Ref("", "n0", "uid-1")
LABEL = "nvidia.com/state"
PATH = "/metadata/labels/nvidia.com~1state"


@pytest.mark.weakness(13)
def test_every_patch_tests_the_uid_first() -> None:
    assert operations(PatchNode(NODE))[0] == {"op": "test", "path": "/metadata/uid", "value": "uid-1"}


def test_tests_come_before_changes() -> None:
    action = PatchNode(NODE, labels={LABEL: "new"}, annotations={"a": "1"}, expect_labels={LABEL: "old"},
                       unschedulable=True, expect_unschedulable=False)
    kinds = [operation["op"] for operation in operations(action)]
    assert kinds == sorted(kinds, key=lambda kind: kind != "test")
    assert {"op": "test", "path": PATH, "value": "old"} in operations(action)
    assert {"op": "add", "path": PATH, "value": "new"} in operations(action)


def test_an_absent_label_is_tested_as_null() -> None:
    action = PatchNode(NODE, labels={LABEL: "new"}, expect_labels={LABEL: None})
    assert {"op": "test", "path": PATH, "value": None} in operations(action)


def test_a_key_that_may_be_absent_is_set_before_it_is_removed() -> None:
    known = operations(PatchNode(NODE, labels={LABEL: None}, expect_labels={LABEL: "old"}))
    assert known[-1] == {"op": "remove", "path": PATH}
    assert not [operation for operation in known if operation["op"] == "add"]
    unknown = operations(PatchNode(NODE, annotations={"a": None}))
    assert [operation["op"] for operation in unknown[1:]] == ["add", "remove"]


def test_annotations_of_a_node_without_any_come_as_one_map() -> None:
    action = PatchNode(NODE, annotations={"a": "1", "b": None}, expect_annotations={"a": None}, has_annotations=False)
    assert operations(action)[1:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}},
    ]


def test_a_cordon_is_tested_and_lifted_as_the_field_it_is() -> None:
    lifted = operations(PatchNode(NODE, unschedulable=False, expect_unschedulable=True))
    assert lifted[1:] == [
        {"op": "test", "path": "/spec/unschedulable", "value": True}, {"op": "remove", "path": "/spec/unschedulable"},
    ]
    made = operations(PatchNode(NODE, unschedulable=True, expect_unschedulable=False))
    assert made[1]["value"] is None, "a node that is schedulable has no such field"
