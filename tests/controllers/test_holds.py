"""The events that say why nodes are held: one whenever a node's own reason changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import pytest

from gpuward import names
from gpuward.controllers.holds import HoldEvents
from gpuward.kube.events import EventRecorder
from gpuward.kube.http.client import Client
from gpuward.model.passes import Pass
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import Ref
from gpuward.model.waits import Plain
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.api import ApiServer
from kubesandbox.store import Store
from kubesandbox.timeloop import run_virtual
from tests import build
from tests.waits import held_by

HERE = Snapshot("gpu-operator", nodes={"n0": build.node("n0")})
GOING = Plan(nodes={"n0": NodeStatus(State.DONE, 0.0)})


def held(reason: Reason, state: State = State.UPGRADE_REQUIRED, *, pod: str = "") -> Plan:
    about = {"pod": Ref("ml", pod)} if pod else {}
    return Plan(nodes={"n0": NodeStatus(state, 0.0, held_by(reason, **about))})


def said(plans: Iterable[Plan], first: Plan = GOING) -> list[tuple[str, str]]:
    """Return type and code of the events that plans lead to after a first one, equal ones as often as they were counted."""
    store = Store(lambda: 0.0)

    async def main() -> None:
        recorder = EventRecorder(Client(InProcessTransport(ApiServer(store))), now=lambda: 1.0, random=Random(0))
        writing = asyncio.create_task(recorder.run())
        holds = HoldEvents(recorder)
        for plan in (first, *plans):
            holds(Pass(HERE, PoliciesInForce(ActivePolicy()), 0.0, plan))
        await recorder.flush()
        writing.cancel()

    run_virtual(main)
    events = sorted(store.list("events", "default"), key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert {(event["reason"], event["involvedObject"]["uid"]) for event in events} <= {(names.HELD_EVENT_REASON, "uid-n0")}
    return [(event["type"], event["message"].split(":")[0]) for event in events for _ in range(event["count"])]


def test_each_change_of_the_reason_is_one_event() -> None:
    plans = [held(Reason.SKIPPED), held(Reason.SKIPPED), held(Reason.PROTECTED_PODS)]
    assert said(plans) == [("Normal", "Skipped"), ("Warning", "ProtectedPods")]


def test_a_reason_that_gives_way_to_one_of_the_fleet_is_not_said_again() -> None:
    assert said([held(Reason.BUDGET_USED_UP), held(Reason.PARALLEL_LIMIT), held(Reason.BUDGET_USED_UP)]) == [
        ("Normal", "BudgetUsedUp")]


def test_a_reason_is_said_again_once_the_node_has_moved_on() -> None:
    moved = Plan(nodes={"n0": NodeStatus(State.CORDON_REQUIRED, 0.0)})
    plans = [held(Reason.NODE_NOT_READY), moved, held(Reason.NODE_NOT_READY, State.DRAIN_REQUIRED)]
    assert said(plans) == [("Warning", "NodeNotReady")] * 2


def test_each_pod_that_a_node_waits_for_is_said_once() -> None:
    refused = [held(Reason.PROTECTED_PODS, pod=pod) for pod in ("a", "b", "a", "b")]
    assert said(refused) == [("Warning", "ProtectedPods")] * 2


def test_another_cause_is_said_after_a_reason_in_passing() -> None:
    under_way = State.POD_DELETION_REQUIRED
    plans = [held(Reason.EVICTION_REFUSED, under_way, pod="a"), held(Reason.EVICTING, under_way),
             held(Reason.EVICTION_REFUSED, under_way, pod="b")]
    assert said(plans) == [("Normal", "EvictionRefused")] * 2


def test_trouble_that_was_over_is_said_again() -> None:
    failing = held(Reason.DRIVER_FAILING, State.DONE)
    assert said([failing, GOING, failing]) == [("Warning", "DriverFailing")] * 2


def test_a_pod_whose_eviction_the_former_leader_was_refused_is_not_said_again() -> None:
    under_way = State.POD_DELETION_REQUIRED
    refused = held(Reason.EVICTION_REFUSED, under_way, pod="b")
    assert said([refused], first=held(Reason.EVICTING, under_way, pod="a")) == []


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.concerns_fleet or reason.in_passing])
def test_what_holds_the_fleet_or_every_node_for_a_moment_is_not_said(reason: Reason) -> None:
    assert said([held(reason)]) == []


def test_a_node_between_two_driver_pods_is_not_spoken_of() -> None:
    assert said([held(Reason.DRIVER_POD_MISSING, State.POD_RESTART_REQUIRED)]) == []
    lasts = Plan(nodes={"n0": NodeStatus(State.POD_RESTART_REQUIRED, 0.0, Hold(Plain(Reason.DRIVER_POD_MISSING, lasts=True)))})
    assert said([held(Reason.DRIVER_POD_MISSING, State.POD_RESTART_REQUIRED), lasts, lasts]) == [("Normal", "DriverPodMissing")]
    assert said([held(Reason.DRIVER_POD_MISSING)]) == [("Normal", "DriverPodMissing")]


def test_what_was_there_before_the_start_counts_as_said() -> None:
    assert said([held(Reason.SKIPPED), held(Reason.PROTECTED_PODS)], first=held(Reason.SKIPPED)) == [("Warning", "ProtectedPods")]


def test_a_plan_without_nodes_is_no_beginning() -> None:
    assert said([held(Reason.SKIPPED), held(Reason.SKIPPED)], first=Plan()) == []
