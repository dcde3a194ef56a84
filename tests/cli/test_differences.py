"""What `gpuward diff` prints of a difference."""

from __future__ import annotations

from gpuward.cli.differences import Difference
from gpuward.model.views import Ref


def test_the_order_of_keys_is_no_difference() -> None:
    before = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1", "y": "2", "z": [{"b": 1, "a": 2}]}}
    after = {"data": {"z": [{"a": 2, "b": 3}], "y": "2", "x": "1"}, "metadata": {"name": "a"}, "kind": "ConfigMap"}
    told = list(Difference("ConfigMap", Ref("", "a"), before, after).lines())
    assert [line for line in told[2:] if line[0] in "+-"] == ["-    b: 1", "+    b: 3"]
