"""Print with `pytest --weaknesses` which tests show that which weakness of NVIDIA's upgrade is gone, and play samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("kubesandbox") is None:
    pytest.exit("the tests need the sandbox: ./dev setup, or pip install 'gpuward[sandbox]'", returncode=1)

from tools.controlplane.controlplane import RELEASE
from tools.controlplane.programs import NEWEST, RELEASES

from tests.sampling import WHOLE, left_out
from tests.weaknesses import WEAKNESSES, WITHOUT_A_TEST

_COLLECTED = pytest.StashKey[dict[int, set[str]]]()
_SENT = "weaknesses"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--weaknesses`."""
    parser.addoption("--weaknesses", action="store_true", help="print which tests show which weakness of NVIDIA's to be gone")


def pytest_configure(config: pytest.Config) -> None:
    """Begin with nothing collected."""
    config.stash[_COLLECTED] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take a sample, and note the marks of all tests; a worker of pytest-xdist sends them to the process that prints."""
    for item in items:
        for mark in item.iter_markers("weakness"):
            _note(config, mark.args, item.nodeid.split("[")[0])
    if hasattr(config, "workeroutput"):
        config.workeroutput[_SENT] = {str(number): sorted(tests) for number, tests in config.stash[_COLLECTED].items()}
    if not WHOLE and not any("::" in each for each in config.args):  # whoever names a test wants all of it
        spared = left_out(item for item in items if "/journeys/" in item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if item in spared])
        items[:] = [item for item in items if item not in spared]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the release of Kubernetes that was chosen is too old for."""
    release = os.environ.get(RELEASE, NEWEST)
    since = item.get_closest_marker("since")
    if since and item.get_closest_marker("controlplane") and list(RELEASES).index(release) > list(RELEASES).index(since.args[0]):
        pytest.skip(f"Kubernetes {since.args[0]} answers so, and {release} does not")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker collected."""
    sent: Mapping[str, list[str]] = getattr(node, "workeroutput", {}).get(_SENT, {})
    for number, tests in sent.items():
        for test in tests:
            _note(node.config, [int(number)], test)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    if not config.getoption("--weaknesses"):
        return
    terminalreporter.section("weaknesses of NVIDIA's upgrade that are gone")
    for number, name in WEAKNESSES.items():
        terminalreporter.write_line(f"{number:2} {name}")
        tests = sorted(config.stash[_COLLECTED].get(number, ()))
        for line in tests or [WITHOUT_A_TEST.get(number, "none of the tests of this run")]:
            terminalreporter.write_line(f"     {line}")


def _note(config: pytest.Config, numbers: Iterable[int], test: str) -> None:
    for number in numbers:
        config.stash[_COLLECTED].setdefault(number, set()).add(test)
