"""Options of this folder's tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--regold`: run `pytest tests/operands --regold` after an intended change, and read the difference."""
    parser.addoption("--regold", action="store_true", help="rewrite the golden files of tests/operands from what is rendered now")


@pytest.fixture
def regold(request: pytest.FixtureRequest) -> bool:
    """Tell whether golden files are to be rewritten; a run of all tests does not know the option."""
    return bool(request.config.getoption("--regold", default=False))
