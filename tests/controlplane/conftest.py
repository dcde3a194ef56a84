"""One control plane for all tests of this folder, which run one after the other: they share its nodes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from tools.controlplane import lent

from tests.controlplane.plane import NodeWatch, Plane
from tests.controlplane.steps import NODES

WANTED = "GPUWARD_CONTROLPLANE"


@pytest.fixture(scope="session")
def wanted() -> None:
    """Skip tests on a real control plane where nobody asked for them, or kubectl is missing."""
    if os.environ.get(WANTED) != "1":
        pytest.skip(f"a real control plane is started only with {WANTED}=1, as ./dev test does")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")


@pytest.fixture(scope="session")
def plane(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a control plane with a fleet of GPU nodes running, furnished as the README says."""
    state = tmp_path_factory.mktemp("controlplane") / "run"
    with lent.running(state, "--nodes", str(NODES)):
        plane = Plane(state)
        plane.furnish()
        yield plane


@pytest.fixture(scope="module")
def installed(plane: Plane) -> Iterator[Plane]:
    """Keep the operator running, with its stack ready on every node."""
    with plane.operator():
        plane.policy_ready()
        yield plane


@pytest.fixture
def watch(installed: Plane) -> Iterator[NodeWatch]:
    """Record every change of a node during the test."""
    with NodeWatch(installed) as recording:
        yield recording
