"""What the states of a policy wait for, and how often the words of a status are written."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.actions import Action, PatchStatus
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PolicyView
from gpuward.operands.state import OperandState
from gpuward.operands.status import Verdict, status_of
from gpuward.operands.statuses import Worded, status_write, waiting_states
from tests.policy.test_clusterpolicy import view

NOW = 10_000.0


@pytest.mark.parametrize(("later", "written"), [(1.0, False), (29.9, False), (30.0, True), (-3600.0, True)])
def test_words_alone_wait_for_half_a_minute_and_not_for_a_clock_that_is_set_back(later: float, written: bool) -> None:
    worded, policy = Worded(), view()
    (first,) = write(policy, "2 of 3", NOW, worded)
    assert isinstance(first, PatchStatus)
    told = msgspec.structs.replace(policy, body={**policy.body, "status": first.status})
    assert bool(write(told, "1 of 3", NOW + later, worded)) is written


@pytest.mark.parametrize(("later", "written"), [(0.0, False), (29.9, False), (30.0, True)])
def test_words_of_the_operator_before_stand_while_this_one_learns_what_it_knew(later: float, written: bool) -> None:
    (first,) = write(view(), "a b", NOW, Worded())
    assert isinstance(first, PatchStatus)
    told, worded = msgspec.structs.replace(view(), body={**view().body, "status": first.status}), Worded()
    assert write(told, "b", NOW, worded) == ()
    assert bool(write(told, "b", NOW + later, worded)) is written


@pytest.mark.parametrize(("before", "after", "sooner"), [
    ("1 of 3 nodes up to date, 2 in progress", "2 of 3 nodes up to date, 1 in progress", False),
    ("2 of 3 nodes up to date, 1 in progress", "3 of 3 nodes up to date, 0 in progress", True),
    ("1 pending; held: 1 DriverNotReady (n1)", "1 pending", True),
    ("1 pending; held: 1 DriverNotReady (n1), 1 Blocked (n2)", "1 pending; held: 1 DriverNotReady (n1)", True),
    ("1 pending; held: 1 DriverNotReady (n1)", "1 pending; held: 2 DriverNotReady (n2, n3)", False),
    ("1 pending; waiting: 1 Starting (n1)", "1 pending; waiting: 1 Validating (n2)", False),
    ("[state-driver state-toolkit]", "[state-toolkit]", True),
    ("state-driver: drv: 1 of 2 pods are unavailable (n1: init container m (1 of 4), ErrImagePull)",
     "state-driver: drv: 2 of 2 pods are unavailable (n2: init container m (1 of 4), ImagePullBackOff)", False),
    ("drv: 1 of 2 pods are unavailable (n1: ImagePullBackOff)", "drv: 1 of 2 pods are unavailable", True),
])
def test_a_phase_that_is_over_is_told_sooner_than_progress(before: str, after: str, *, sooner: bool) -> None:
    worded, policy = Worded(), view()
    (first,) = write(policy, before, NOW, worded)
    assert isinstance(first, PatchStatus)
    told = msgspec.structs.replace(policy, body={**policy.body, "status": first.status})
    assert not write(told, after, NOW + 9.9, worded), "one that flickers is bounded, too"
    assert bool(write(told, after, NOW + 10.0, worded)) is sooner


def write(policy: PolicyView, states: str, now: float, worded: Worded) -> tuple[Action, ...]:
    """Return the write of a status that says which states are not ready."""
    verdict = waiting(states)
    wanted = status_of(verdict, policy.body.get("status") or {}, "ns", now)
    return status_write(policy, "ClusterPolicy", verdict, wanted, now, worded).actions


def waiting(states: str) -> Verdict:
    return Verdict("notReady", "OperandNotReady", f"not ready: {states}", ready=False)


def test_a_state_waits_until_its_daemon_set_counts_a_node_that_was_labelled() -> None:
    labels = {"nvidia.com/gpu.deploy.driver": "true"}
    state = OperandState("state-driver", enabled=True, objects=(
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "drv", "namespace": "ns"}},))
    lagging = DaemonSetView("ns", "drv", uid="d", generation=1, observed_generation=1, on_delete=True, node_selector=labels,
                            tolerations=())
    snapshot = Snapshot("ns", {"n": NodeView("n", labels=labels, ready=True)}, daemonsets=(lagging,))
    assert waiting_states([state], snapshot) == {"state-driver": "drv: the DaemonSet controller has counted 0 of 1 nodes"}
    before = msgspec.structs.replace(snapshot, nodes={"n": NodeView("n", ready=True)})
    assert waiting_states([state], before) == {}
