"""What is said of operands adds up."""

from __future__ import annotations

import msgspec

from gpuward.model.stuck import stuck_pod
from gpuward.report.operands import operand_reports
from tests.build import driver_pod
from tests.report.fleets import rollout


def test_pods_that_their_daemonset_no_longer_wants_are_counted_as_long_as_they_are_waited_for() -> None:
    fleet = rollout(9)
    fewer = [msgspec.structs.replace(ds, desired=3) if ds.on_delete else ds for ds in fleet.snapshot.daemonsets]
    snapshot = msgspec.structs.replace(fleet.snapshot, daemonsets=fewer)
    (driver,) = [one for one in operand_reports(snapshot, fleet.policies) if one.name == "driver"]
    assert driver.desired == 9
    assert driver.ready < 9, "a pod is starting"
    assert f" of {driver.desired} pods" in driver.waits


def test_a_pod_of_a_node_that_is_not_ready_is_said_to_be_that() -> None:
    stuck = stuck_pod([driver_pod(ready=False, unheard=True)])
    assert stuck is not None
    assert str(stuck) == "n0: its node is not Ready"
