"""A sample of the cases of a test has each value of each parameter, and is the same each time."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

from tests.sampling import left_out

MODES, GAPS = ("clusterpolicy", "nvidiadriver", "precompiled"), (0.1, 0.5, 1.0, 2.0, 5.0)


def cases(test: str, **parameters: tuple[object, ...]) -> list[Any]:
    def case(values: tuple[object, ...]) -> Any:
        given = dict(zip(parameters, values, strict=True))
        return Case(f"{test}[{'-'.join(map(str, values))}]", **given)

    return list(map(case, product(*parameters.values())))


class Case:
    """Stand for what pytest has collected."""

    def __init__(self, nodeid: str, **params: object) -> None:
        self.nodeid = nodeid
        self.callspec = SimpleNamespace(params=params)


def test_each_value_of_each_parameter_is_played() -> None:
    every = cases("test_a", mode=MODES, gap=GAPS)
    played = [case for case in every if case not in left_out(every)]
    assert {case.callspec.params["mode"] for case in played} == set(MODES)
    assert {case.callspec.params["gap"] for case in played} == set(GAPS)
    assert len(played) == len(GAPS)
    assert [case.nodeid for case in played] == [case.nodeid for case in every if case not in left_out(reversed(every))]


def test_nothing_is_left_out_of_a_test_with_one_parameter_or_none() -> None:
    assert left_out(cases("test_b", gap=GAPS)) == set()
    assert left_out([cast(Any, Case("test_c"))]) == set()
