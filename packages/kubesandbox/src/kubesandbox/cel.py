"""A part of CEL, the language of the rules in CustomResourceDefinitions: what the rules of operators are written in.

Known are `self`, `oldSelf`, fields, literals, `has`, `size`, the operators `! && || == != < <= > >= in ?:`, parentheses, list
literals, on strings `startsWith`, `endsWith`, `contains` and `matches`, on lists and maps `all`. Whatever else a rule uses makes
it unknown: `compile_rule` then returns None, and nothing is checked.

A value that is not there, or of a type that an operator does not take, is an error, and so is what is made of it. But `||`, `&&`
and `all` are decided by any operand that decides them alone, on whichever side of an error it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

_TOKEN: Final = re.compile(r"""\s*(?:(?P<number>\d+)|(?P<string>"[^"\\]*"|'[^'\\]*')|(?P<name>[A-Za-z_]\w*)|"""
                           r"""(?P<sign>\|\||&&|==|!=|<=|>=|[-<>!?:().,\[\]]))""")
_CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
_ORDERED: Final[Mapping[type, str]] = {bool: "bool", int: "number", float: "number", str: "string"}
_NO_OVERLOAD: Final = "no such overload"
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": lambda one, other: bool(_typed(one) == _typed(other)), "!=": lambda one, other: bool(_typed(one) != _typed(other)),
    "<": lambda one, other: _ordered(one, other) < 0, "<=": lambda one, other: _ordered(one, other) <= 0,
    ">": lambda one, other: _ordered(one, other) > 0, ">=": lambda one, other: _ordered(one, other) >= 0,
    "in": lambda one, other: _typed(one) in [_typed(item) for item in _collection(other)],
}
_METHODS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "startsWith": str.startswith, "endsWith": str.endswith, "contains": str.__contains__,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
}


class EvaluationError(Exception):
    """Say that a rule asks for a field that is not there, or gives an operator what it does not take."""


class _Unknown(Exception):
    """Stop the reading of a rule that uses more than is known here."""


_FOREIGN: Final = (EvaluationError, KeyError, TypeError, re.error)
"""What Python raises where CEL has an error."""


def _typed(value: Any) -> Any:
    """Keep true apart from 1, which are equal in Python, also inside of lists and maps."""
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return ("bool", value) if isinstance(value, bool) else value


def _ordered(one: Any, other: Any) -> int:
    """Return which of two is less, as a number below, at or above zero."""
    kind = _ORDERED.get(type(one))
    if kind is None or kind != _ORDERED.get(type(other)):
        raise EvaluationError(_NO_OVERLOAD)
    return int(one > other) - int(one < other)


def _collection(value: Any) -> Any:
    if not isinstance(value, (list, dict)):
        raise EvaluationError(_NO_OVERLOAD)
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(_NO_OVERLOAD)
    return value


def _decided(by: bool, results: Iterable[Callable[[], Any]]) -> bool:
    """Return `by` where any result is that, whatever the others are, and else raise the first error among them."""
    error: EvaluationError | None = None
    for result in results:
        try:
            if _truth(result()) is by:
                return by
        except _FOREIGN as problem:
            error = error or _error(problem)
    if error is not None:
        raise error
    return not by


def _error(problem: Exception) -> EvaluationError:
    match problem:
        case EvaluationError():
            return problem
        case KeyError():
            return EvaluationError(f"no such key: {problem.args[0]}")
        case re.error():
            return EvaluationError(f"error parsing regexp: {problem}")
        case _:
            return EvaluationError(_NO_OVERLOAD)


@lru_cache(maxsize=512)
def compile_rule(text: str) -> Callable[[Scope], bool] | None:
    """Return what tells whether a rule holds in a scope (`self`, `oldSelf`), or None for a rule that is beyond this part of CEL.

    The function raises `EvaluationError` where CEL would end with an error.
    """
    try:
        node = _Reader(text).whole()
    except _Unknown:
        return None

    def holds(scope: Scope) -> bool:
        try:
            return _truth(node(scope))
        except _FOREIGN as problem:
            raise _error(problem) from None

    return holds


class _Reader:
    """Read a rule by recursive descent; every method returns the function that evaluates what it has read."""

    def __init__(self, text: str) -> None:
        self._tokens = self._split(text)
        self._at = 0
        self._bound: list[str] = []

    @staticmethod
    def _split(text: str) -> list[str]:
        found, at = [], 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Unknown
            found.append(match[0].strip())
            at = match.end()
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._peek()
        if wanted and token not in wanted:
            raise _Unknown
        self._at += 1
        return token

    def whole(self) -> Node:
        """Read everything."""
        node = self._choice()
        if self._peek():
            raise _Unknown
        return node

    def _choice(self) -> Node:
        condition = self._or()
        if self._peek() != "?":
            return condition
        self._take()
        yes = self._choice()
        self._take(":")
        no = self._choice()
        return lambda scope: yes(scope) if _truth(condition(scope)) else no(scope)

    def _or(self) -> Node:
        parts = [self._and()]
        while self._peek() == "||":
            self._take()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else lambda scope: _decided(True, (partial(part, scope) for part in parts))

    def _and(self) -> Node:
        parts = [self._comparison()]
        while self._peek() == "&&":
            self._take()
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else lambda scope: _decided(False, (partial(part, scope) for part in parts))

    def _comparison(self) -> Node:
        left = self._unary()
        if self._peek() not in _COMPARE:
            return left
        compare = _COMPARE[self._take()]
        right = self._unary()
        return lambda scope: compare(left(scope), right(scope))

    def _unary(self) -> Node:
        if self._peek() == "!":
            self._take()
            inner = self._unary()
            return lambda scope: not _truth(inner(scope))
        if self._peek() == "-":
            self._take()
            number = self._unary()
            return lambda scope: -number(scope)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while self._peek() == ".":
            self._take()
            name = self._take()
            node = self._method(node, name) if self._peek() == "(" else self._field(node, name)
        return node

    @staticmethod
    def _field(node: Node, name: str) -> Node:
        return lambda scope: node(scope)[name]

    def _method(self, node: Node, name: str) -> Node:
        self._take("(")
        if name == "size":
            self._take(")")
            return lambda scope: len(node(scope))
        if name == "all":
            return self._all(node)
        if name not in _METHODS:
            raise _Unknown
        method, argument = _METHODS[name], self._choice()
        self._take(")")
        return lambda scope: method(node(scope), argument(scope))

    def _all(self, node: Node) -> Node:
        """Read the rest of `all(x, condition)`: of a map, x is each of the keys."""
        variable = self._take()
        self._take(",")
        self._bound.append(variable)
        condition = self._choice()
        self._bound.pop()
        self._take(")")
        return lambda scope: _decided(
            False, (partial(condition, {**scope, variable: item}) for item in _collection(node(scope))))

    def _primary(self) -> Node:
        token = self._take()
        if token == "(":
            inner = self._choice()
            self._take(")")
            return inner
        if token == "[":
            return self._list()
        if token[:1] in "\"'" and token:
            return lambda _: token[1:-1]
        if token.isdigit():
            return lambda _: int(token)
        if token in ("has", "size"):
            return self._function(token)
        if token in _CONSTANTS:
            return lambda _: _CONSTANTS[token]
        if token in ("self", "oldSelf", *self._bound):
            return lambda scope: scope[token]
        raise _Unknown

    def _list(self) -> Node:
        items: list[Node] = []
        while self._peek() != "]":
            items.append(self._choice())
            if self._peek() != "]":
                self._take(",")
        self._take("]")
        return lambda scope: [item(scope) for item in items]

    def _function(self, name: str) -> Node:
        self._take("(")
        start = self._at
        node = self._choice()
        last = self._tokens[self._at - 1]
        self._take(")")
        if name == "size":
            return lambda scope: len(node(scope))
        if self._at - start < 4:
            raise _Unknown
        # What is looked for is the last field; what it is looked for in is all before the last dot.
        holder = _Reader.__new__(_Reader)
        holder._tokens, holder._at, holder._bound = self._tokens[start:self._at - 3], 0, self._bound
        inside = holder.whole()
        return lambda scope: last in _collection(inside(scope))
