"""An operator that begins where another one has ended: what both agree on is not written again."""

from __future__ import annotations

import time

import pytest

from tests.controlplane.plane import OPERATOR, PATIENCE, WRITES, Plane

pytestmark = pytest.mark.controlplane


def test_a_restarted_operator_writes_nothing_but_its_lease(plane: Plane) -> None:
    with plane.operator():
        plane.policy_ready()
        plane.kubectl("wait", "clusterpolicy/cluster-policy", "--for=condition=DriverUpgrade", f"--timeout={PATIENCE:.0f}s")
        _rests(plane)
    with plane.audited() as requests:
        plane.first_verdict()
    asked = [entry for entry in requests if entry["user"]["username"] == OPERATOR]
    assert {"get", "list", "watch"} <= {entry["verb"] for entry in asked}
    assert [entry["requestURI"] for entry in asked if entry["verb"] in WRITES and "/leases" not in entry["requestURI"]] == []


def _rests(plane: Plane) -> None:
    """Wait until the status says what the last change came to: on a busy machine that takes some seconds."""
    seen, deadline = "", time.monotonic() + PATIENCE
    while (version := plane.kubectl("get", "clusterpolicy/cluster-policy", "-o=jsonpath={.metadata.resourceVersion}")) != seen:
        assert time.monotonic() < deadline, "the status does not come to rest"
        seen = version
        time.sleep(5)
