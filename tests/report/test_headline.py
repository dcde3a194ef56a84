"""The first line about a cluster says that a rollout has stopped, and why."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.approved_plan import PlanDiffers
from gpuward.model.denials import EvictionForbidden, RefusedElsewhere
from gpuward.model.edits import TemplateEdited
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import Ref
from gpuward.model.waits import FailureBudgetSpent, Limit, NewDriverFails, WaitsFor
from gpuward.model.windows import WindowShut
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.report.headline import headline
from gpuward.wire.policies import policy_view
from tests.journeys.stage import policy
from tests.journeys.test_nvidiadriver import nvidia_driver

VIEW = policy_view(msgspec.Raw(msgspec.json.encode(policy())))
TURN = Limit(Reason.PARALLEL_LIMIT, 1, 1, ("gpu-1",))


def told(*holds: WaitsFor, drivers: bool = False) -> str:
    """Return what is said after the number of nodes."""
    snapshot = Snapshot("gpu-operator", policies=(VIEW,))
    if drivers:
        left = policy()
        left["spec"]["driver"]["useNvidiaDriverCRD"] = True
        made = tuple(policy_view(msgspec.Raw(msgspec.json.encode(nvidia_driver(name)))) for name in "ab")
        snapshot = Snapshot("gpu-operator", policies=(policy_view(msgspec.Raw(msgspec.json.encode(left))),), drivers=made)
    nodes = {f"gpu-{number}": NodeStatus(State.UPGRADE_REQUIRED, 1.0, Hold(what, 1.0), "upgrade-required")
             for number, what in enumerate(holds, 2)}
    plan = Plan(nodes=nodes, auto_upgrade=True, counts=Counts(total=len(nodes)))
    line = headline(plan, snapshot, PolicyReader().read(snapshot))
    return line.removeprefix(f"ClusterPolicy cluster-policy: 0 of {len(nodes)} nodes up to date")


@pytest.mark.parametrize(("what", "why"), [
    (FailureBudgetSpent(3, 2, 6, ("a",)), "3 of 6 nodes failed"),
    (NewDriverFails("gpu-1", "x"), "the new driver does not come up on gpu-1"),
    (RefusedElsewhere(Ref("a", "b"), "gpu-1", "no"), "the driver pod of gpu-1 may not be replaced"),
    (EvictionForbidden("ml", "gpu-1", "no"), "the operator has no right to evict pods of namespace ml"),
    (TemplateEdited("driver", "kubectl"), "kubectl edits DaemonSet driver"),
    (PlanDiffers("node n1 is not in it"), "it is not the one of the plan that was approved of"),
    (Limit(Reason.NO_NODE_MAY_START, 0, 0, ()), "maxUnavailable lets no node go"),
    (Limit(Reason.NO_NODE_MAY_START, 2, 2, ("a", "b")), "nodes that are out of service use up maxUnavailable"),
    (WindowShut(None, "UTC"), "its windows never open"),
])
def test_a_rollout_that_has_stopped_is_said_to_have_and_why(what: WaitsFor, why: str) -> None:
    assert told(TURN, what) == f"; the rollout has stopped: {why}"
    assert told(what, TURN, drivers=True) == f"; a rollout has stopped: {why}"


@pytest.mark.parametrize("what", [TURN, WindowShut(9.0, "UTC")])
def test_a_rollout_that_goes_on_in_time_has_not_stopped(what: WaitsFor) -> None:
    assert told(what) == ""


def test_the_most_important_reason_comes_first() -> None:
    assert told(WindowShut(None, "UTC"), FailureBudgetSpent(3, 2, 6, ("a",))) == "; the rollout has stopped: 3 of 6 nodes failed"


def test_the_images_that_are_there_are_no_part_of_why_it_has_stopped() -> None:
    nodes = {"gpu-1": NodeStatus(State.UPGRADE_REQUIRED, 1.0, Hold(FailureBudgetSpent(3, 2, 6, ("a",)), 1.0), "upgrade-required")}
    snapshot = Snapshot("gpu-operator", policies=(VIEW,))
    plan = Plan(nodes=nodes, auto_upgrade=True, counts=Counts(total=1, staging=1, staged=1))
    assert headline(plan, snapshot, PolicyReader().read(snapshot)).endswith(
        "0 of 1 nodes up to date, 1 of 1 waiting nodes have the next driver's images; the rollout has stopped: 3 of 6 nodes "
        "failed")
