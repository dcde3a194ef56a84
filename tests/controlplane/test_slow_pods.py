"""Upgrades of a fleet whose drivers and validators take their time: limits hold while everybody waits for pods."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.controlplane.plane import NodeWatch, Plane, in_progress
from tests.controlplane.steps import NODES, check_limit, protect, upgrade

pytestmark = pytest.mark.controlplane

DRIVER_SECONDS = 0.6
VALIDATOR_SECONDS = 0.4


@pytest.fixture(scope="module", autouse=True)
def slow(installed: Plane) -> Iterator[None]:
    """Let driver and validator pods not be ready at once."""
    installed.slow_pods(DRIVER_SECONDS, VALIDATOR_SECONDS)
    yield
    installed.slow_pods(0.0, 0.0)


def test_no_more_unavailable_nodes_than_allowed(installed: Plane, watch: NodeWatch) -> None:
    """A tenth of fifty nodes may be unavailable: all of them take at least ten times as long as one."""
    protect(installed, "100%")
    begun = time.monotonic()
    upgrade(installed, watch, "580.95.05", maxParallelUpgrades=0, maxUnavailable="10%")
    check_limit(watch, 5)
    assert time.monotonic() - begun >= NODES / 5 * (DRIVER_SECONDS + VALIDATOR_SECONDS)


def test_all_nodes_at_once(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    upgrade(installed, watch, "580.105.08", maxParallelUpgrades=0, maxUnavailable="100%")
    assert watch.most(in_progress) == NODES
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())
