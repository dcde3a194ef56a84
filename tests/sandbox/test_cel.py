from __future__ import annotations

from typing import Any

import pytest

from gpuward.sandbox import cel

DEFAULT = "has(self.default) && self.default ? !has(self.nodeSelector) || size(self.nodeSelector) == 0 : true"


@pytest.mark.parametrize(("rule", "value", "old", "holds"), [
    ("self == oldSelf", "a", "a", True), ("self == oldSelf", "a", "b", False), ("self == oldSelf", True, 1, False),
    (DEFAULT, {}, None, True), (DEFAULT, {"default": True}, None, True),
    (DEFAULT, {"default": True, "nodeSelector": {}}, None, True),
    (DEFAULT, {"default": True, "nodeSelector": {"a": "b"}}, None, False),
    (DEFAULT, {"default": False, "nodeSelector": {"a": "b"}}, None, True),
    ("self.size > 1 && self.size <= 3", {"size": 3}, None, True), ("self.size > 1 && self.size <= 3", {"size": 4}, None, False),
    ("self.a.b == 'x' || has(self.a.c)", {"a": {"b": "y", "c": 1}}, None, True), ("!(self in ['a', \"b\"])", "b", None, False),
    ("self.startsWith('a') && self.endsWith('z') && self.contains('m')", "amz", None, True),
    ("self.matches('^a+$')", "aab", None, False),
    ("self.size() == 2", [1, 2], None, True), ("self.n == -1", {"n": -1}, None, True), ("self != null", "a", None, True),
    ("self.all(x, x in ['a', 'b'])", {"a": 1}, None, True), ("self.all(x, x in ['a', 'b'])", {"a": 1, "c": 2}, None, False),
    ("self.all(x, x.all(y, y < x.size()))", [[0, 1], [2]], None, False), ("self.all(x, x > 1)", [], None, True),
])
def test_rules(rule: str, value: Any, old: Any, holds: bool) -> None:
    compiled = cel.compile_rule(rule)
    assert compiled is not None
    assert compiled({"self": value, "oldSelf": old}) is holds


@pytest.mark.parametrize("rule", [
    "self.exists(x, x > 1)", "self.all(x, x > y)", "self.all(x, x > 1) && x > 1",
    "self + 1 == 2", "self ==", "duration(self) > duration('1s')", "self == 'a\\'b'", "has(self)", "@",
])
def test_rules_that_are_beyond_it(rule: str) -> None:
    assert cel.compile_rule(rule) is None


def test_a_rule_that_asks_for_what_is_not_there() -> None:
    compiled = cel.compile_rule("self.a == 1")
    assert compiled is not None
    with pytest.raises(cel.EvaluationError, match="no such key: 'a'"):
        compiled({"self": {}})
