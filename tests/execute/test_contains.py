"""When a live object needs no write."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.execute.contains import contains


@pytest.mark.parametrize(("live", "wanted", "same"), [
    ({"a": 1, "b": 2}, {"a": 1}, True),
    ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": 1}, {"a": 1, "b": {}}, True),
    ({"a": 1}, {"a": 1, "b": []}, True),
    ({"a": 1}, {"a": 1, "b": ""}, True),
    ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
    ({"a": [1, 2]}, {"a": [1]}, False),
    ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ({"data": {"x": "1", "added": "2"}}, {"data": {"x": "1"}}, False),
    ({"nodeSelector": {"x": "1", "added": "2"}}, {"nodeSelector": {"x": "1"}}, False),
    ({"metadata": {"labels": {"x": "1", "added": "2"}}}, {"metadata": {"labels": {"x": "1"}}}, True),
    ({"affinity": {"podAntiAffinity": {}, "nodeAffinity": {"x": 1}}}, {"affinity": {"podAntiAffinity": {}}}, False),
    ({"containers": [], "affinity": {"nodeAffinity": {"x": 1}}}, {"containers": []}, False),
    ({"containers": [], "nodeName": "gpu-1"}, {"containers": []}, False),
    ({"containers": [], "schedulerName": "default-scheduler", "affinity": {}}, {"containers": []}, True),
    ({"a": "text"}, {"a": ["text"]}, False),
    ({"a": None}, {"a": {"b": 1}}, False),
])
def test_contains(live: Any, wanted: Any, same: bool) -> None:
    assert contains(live, wanted) is same
