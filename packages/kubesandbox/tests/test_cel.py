from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import cel

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


@pytest.mark.parametrize(("rule", "value", "holds"), [
    ("self.a == 1 || true", {}, True), ("true || self.a == 1", {}, True), ("self.a == 1 || self.b == 2 || true", {}, True),
    ("self.a == 1 && false", {}, False), ("false && self.a == 1", {}, False), ("true && self.a == 1 && false", {}, False),
    ("self < 1 || true", "x", True), ("!(self.a == 1 && false)", {}, True), ("(self.a == 1 || true) && true", {}, True),
    ("self.all(x, x.b == 1)", [{"b": 0}, {}], False), ("self.all(x, x.b == 1)", [{}, {"b": 0}], False),
    ("self.a || true", {"a": 1}, True), ("self.matches('(') || true", "a", True),
    ("self == [1]", [True], False), ("true in self", [1], False),
])
def test_an_operand_that_decides_alone_absorbs_errors(rule: str, value: Any, holds: bool) -> None:
    compiled = cel.compile_rule(rule)
    assert compiled is not None
    assert compiled({"self": value}) is holds


@pytest.mark.parametrize(("rule", "value", "told"), [
    ("self.a == 1 || false", {}, "no such key: a"), ("false || self.a == 1", {}, "no such key: a"),
    ("self.a == 1 && true", {}, "no such key: a"), ("self.a == 1 || self.b == 1", {}, "no such key: a"),
    ("self.all(x, x.b == 1)", [{"b": 1}, {}], "no such key: b"), ("self.a ? true : true", {}, "no such key: a"),
    ("self.a ? true : true", {"a": 1}, "no such overload"), ("!self.a", {"a": "x"}, "no such overload"),
    ("self.a || false", {"a": 1}, "no such overload"), ("self", 1, "no such overload"),
    ("self < 1", "x", "no such overload"), ("self < 2", True, "no such overload"), ("self <= self", [1], "no such overload"),
    ("'a' in self", "abc", "no such overload"), ("has(self.a.b)", {"a": "abc"}, "no such overload"),
    ("self.all(x, true)", "abc", "no such overload"), ("self.contains('a')", ["a"], "no such overload"),
    ("self.matches('(')", "a", "error parsing regexp"),
])
def test_errors_that_nothing_decides(rule: str, value: Any, told: str) -> None:
    compiled = cel.compile_rule(rule)
    assert compiled is not None
    with pytest.raises(cel.EvaluationError, match=told):
        compiled({"self": value})


@pytest.mark.parametrize("rule", [
    "self.exists(x, x > 1)", "self.all(x, x > y)", "self.all(x, x > 1) && x > 1",
    "self + 1 == 2", "self ==", "duration(self) > duration('1s')", "self == 'a\\'b'", "has(self)", "@",
])
def test_rules_that_are_beyond_it(rule: str) -> None:
    assert cel.compile_rule(rule) is None


def test_a_rule_that_asks_for_what_is_not_there() -> None:
    compiled = cel.compile_rule("self.a == 1")
    assert compiled is not None
    with pytest.raises(cel.EvaluationError, match="no such key: a"):
        compiled({"self": {}})
