"""The tree of exceptions that errors.py draws is the one that the code has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import gpuward
from gpuward import errors

_LINE = re.compile(r" {4}(?P<branches>[│├└─ ]*)(?P<name>[\w.]+)")


def drawn(text: str) -> dict[str, str]:
    """Return the parent of every class in a drawing; that of a root is empty."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in text.splitlines():
        if (found := _LINE.match(line)) is not None:
            depth = len(found["branches"]) // 4
            del above[depth:]
            assert found["name"] not in parents, line
            parents[found["name"]] = above[-1] if above else ""
            above.append(found["name"])
    return parents


def raised() -> list[type[BaseException]]:
    """Return the exception classes of all modules."""
    modules = (importlib.import_module(found.name) for found in pkgutil.walk_packages(gpuward.__path__, "gpuward."))
    return [kind for module in modules for kind in vars(module).values()
            if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == module.__name__]


def name(kind: type[BaseException]) -> str:
    """Return the name that a class has in the drawing."""
    module = kind.__module__.removeprefix("gpuward.")
    return kind.__qualname__ if module in ("errors", "builtins") else f"{module}.{kind.__qualname__}"


def test_the_tree_of_exceptions_is_drawn_as_it_is() -> None:
    real = {name(kind): name(kind.__bases__[0]) for kind in raised()}
    assert all(len(kind.__bases__) == 1 for kind in raised())
    builtins = {parent: name(Exception) for parent in real.values() if parent not in real} | {name(Exception): ""}
    assert drawn(errors.__doc__ or "") == real | builtins


def test_a_drawing_is_read_as_it_looks() -> None:
    assert drawn("Text.\n\n    A\n    ├── B   of a kind\n    │   └── x.C\n    └── D") == {"A": "", "B": "A", "x.C": "B", "D": "A"}
