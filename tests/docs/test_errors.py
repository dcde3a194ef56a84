"""The tree of exceptions that an errors.py draws is the one that the code has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

import gpuward
import kubesandbox

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


def raised(package: ModuleType) -> list[type[BaseException]]:
    """Return the exception classes of all modules of a package."""
    modules = (importlib.import_module(found.name) for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."))
    return [kind for module in modules for kind in vars(module).values()
            if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == module.__name__]


def name(kind: type[BaseException], package: ModuleType) -> str:
    """Return the name that a class has in the drawing."""
    module = kind.__module__.removeprefix(package.__name__ + ".")
    return kind.__qualname__ if module in ("errors", "builtins") else f"{module}.{kind.__qualname__}"


@pytest.mark.parametrize("package", [gpuward, kubesandbox], ids=lambda package: package.__name__)
def test_the_tree_of_exceptions_is_drawn_as_it_is(package: ModuleType) -> None:
    kinds = raised(package)
    real = {name(kind, package): name(kind.__bases__[0], package) for kind in kinds}
    assert all(len(kind.__bases__) == 1 for kind in kinds)
    builtins = {parent: "Exception" for parent in real.values() if parent not in real} | {"Exception": ""}
    assert drawn(importlib.import_module(package.__name__ + ".errors").__doc__ or "") == real | builtins


def test_a_drawing_is_read_as_it_looks() -> None:
    assert drawn("Text.\n\n    A\n    ├── B   of a kind\n    │   └── x.C\n    └── D") == {"A": "", "B": "A", "x.C": "B", "D": "A"}
