from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite-goldens`."""
    parser.addoption("--rewrite-goldens", action="store_true", help="write what the Helm chart renders anew")


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether goldens are to be written, and not compared."""
    return bool(request.config.getoption("--rewrite-goldens", default=False))
