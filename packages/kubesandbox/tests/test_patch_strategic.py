from __future__ import annotations

import copy
from typing import Any

import pytest

from kubesandbox import errors, patch_strategic


def spec(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": "old"} for name in names]}}


@pytest.mark.parametrize(("type_name", "original", "change", "expected"), [
    pytest.param("core.v1.Pod", spec("a", "b"), {"spec": {"containers": [{"name": "b", "image": "new"}]}},
                 {"spec": {"containers": [{"name": "a", "image": "old"}, {"name": "b", "image": "new"}]}}, id="by merge key"),
    pytest.param("core.v1.Pod", spec("a"), {"spec": {"containers": [{"name": "z", "image": "x"}]}},
                 {"spec": {"containers": [{"name": "z", "image": "x"}, {"name": "a", "image": "old"}]}}, id="new ones first"),
    pytest.param("core.v1.Pod", spec("a", "b"), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
                 {"spec": {"containers": [{"name": "b", "image": "old"}]}}, id="delete directive"),
    pytest.param("core.v1.Pod", spec("a", "b"), {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}},
                 {"spec": {"containers": [{"name": "c"}]}}, id="replace list"),
    pytest.param("core.v1.Pod", spec("a", "b"),
                 {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                           "containers": [{"name": "a", "image": "n"}]}},
                 {"spec": {"containers": [{"name": "b", "image": "old"}, {"name": "a", "image": "n"}]}}, id="element order"),
    pytest.param("core.v1.Node", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
                 {"spec": {"taints": [{"key": "b"}]}},
                 {"spec": {"taints": [{"key": "b"}]}}, id="taints are replaced"),
    pytest.param("core.v1.Node", {"status": {"conditions": [{"type": "Ready", "status": "True"},
                                                            {"type": "X", "status": "False"}]}},
                 {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
                 {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "X", "status": "False"}]}},
                 id="conditions by type"),
    pytest.param("core.v1.Node", {"metadata": {"labels": {"a": "1", "b": "2"}}}, {"metadata": {"labels": {"a": None, "c": "3"}}},
                 {"metadata": {"labels": {"b": "2", "c": "3"}}}, id="null deletes"),
    pytest.param("core.v1.Node", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c"]}},
                 {"metadata": {"finalizers": ["c", "a", "b"]}}, id="primitive lists unite"),
    pytest.param("core.v1.Node", {"metadata": {"finalizers": ["a", "b"]}},
                 {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, {"metadata": {"finalizers": ["b"]}},
                 id="delete from primitive list"),
    pytest.param("core.v1.Pod", {"metadata": {"ownerReferences": [{"uid": "1", "name": "x"}]}},
                 {"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}, {"metadata": {"ownerReferences": []}},
                 id="owner references by uid"),
    pytest.param("core.v1.Pod", {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}},
                 {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}]}]}},
                 {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}]}]}},
                 id="nested lists"),
    pytest.param("core.v1.Pod", {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
                 {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
                 {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}, id="retain keys"),
    pytest.param("core.v1.Pod", {"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}},
                 {"spec": {"tolerations": [{"key": "b"}]}}, id="tolerations are replaced"),
    pytest.param("core.v1.Pod", {"spec": {"nodeSelector": {"a": "b"}}},
                 {"spec": {"nodeSelector": {"$patch": "replace", "c": "d"}}},
                 {"spec": {"nodeSelector": {"c": "d"}}}, id="replace map"),
])
def test_strategic_merge(type_name: str, original: Any, change: Any, expected: Any) -> None:
    before = copy.deepcopy(original)
    assert patch_strategic.apply(type_name, original, change) == expected
    assert original == before


@pytest.mark.parametrize("change", [
    [], {"spec": {"containers": [{"image": "no name"}]}}, {"spec": {"$patch": "frobnicate"}},
])
def test_malformed_patches_are_refused(change: Any) -> None:
    with pytest.raises(errors.BadRequest):
        patch_strategic.apply("core.v1.Pod", spec("a"), change)
