"""Options of this folder's tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite-docs`."""
    parser.addoption("--rewrite-docs", action="store_true", help="write the generated sections of docs/ anew")


@pytest.fixture
def rewrite_docs(request: pytest.FixtureRequest) -> bool:
    """Tell whether the documentation is to be written anew."""
    return bool(request.config.getoption("--rewrite-docs", default=False))
