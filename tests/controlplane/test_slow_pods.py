"""Upgrades of a fleet whose drivers and validators take their time: limits hold while everybody waits for pods."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.controlplane.conftest import started
from tests.controlplane.plane import NodeWatch, Plane, in_progress
from tests.controlplane.steps import NODES, check_limit, protect, upgrade

pytestmark = pytest.mark.controlplane

DRIVER_SECONDS = 1.0
VALIDATOR_SECONDS = 0.5


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Start a control plane whose driver and validator pods are not ready at once."""
    delays = ("--driver-seconds", str(DRIVER_SECONDS), "--validator-seconds", str(VALIDATOR_SECONDS))
    with started(tmp_path_factory.mktemp("slow") / "run", *delays) as plane:
        yield plane


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
