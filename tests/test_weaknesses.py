"""No weakness of NVIDIA's upgrade is forgotten: each is shown to be gone by a test, or it is written down why none can."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.weaknesses import WEAKNESSES, WITHOUT_A_TEST

HERE = Path(__file__).parent


def marked() -> dict[int, list[str]]:
    """Return the tests with the mark, by number, from their source: a run of some tests only must not miss the others."""
    found: dict[int, list[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in (number for decorator in function.decorator_list for number in numbers_of(decorator)):
                    found.setdefault(number, []).append(f"{path.name}::{function.name}")
    return found


def numbers_of(decorator: ast.expr) -> list[int]:
    if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.func.attr == "weakness":
        return [int(ast.literal_eval(argument)) for argument in decorator.args]
    return []


def test_every_weakness_has_a_test_or_a_reason_why_not() -> None:
    assert set(WEAKNESSES) == set(range(1, 49))
    assert set(WEAKNESSES) - set(marked()) - set(WITHOUT_A_TEST) == set(), "nothing shows that these are gone"


def test_no_weakness_has_both_and_no_mark_has_a_number_that_nobody_knows() -> None:
    assert set(marked()) & set(WITHOUT_A_TEST) == set()
    assert set(marked()) - set(WEAKNESSES) == set()
