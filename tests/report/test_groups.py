"""In which group a node is: whether people are told that it goes on by itself."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.plan import NodeStatus
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.report.groups import Group, group_of
from gpuward.report.held import is_held
from gpuward.report.nodes import NodeReport, group_reports
from tests.waits import held_by


@pytest.mark.parametrize(("state", "reason", "group", "held"), [
    (State.UPGRADE_REQUIRED, Reason.PARALLEL_LIMIT, Group.WAITING, False),
    # No deadline ends it before the node's turn, as under a taint that the DaemonSet does not tolerate.
    (State.UPGRADE_REQUIRED, Reason.DRIVER_POD_MISSING, Group.NOT_READY, True),
    (State.POD_RESTART_REQUIRED, Reason.DRIVER_POD_MISSING, Group.UNDER_WAY, False),
])
def test_a_node_goes_on_by_itself_or_is_held(state: State, reason: Reason, group: Group, held: bool) -> None:
    assert group_of(NodeStatus(state, 0.0, held_by(reason))) is group
    assert is_held(NodeReport("gpu-1", group, str(state), reason=str(reason))) is held


@pytest.mark.parametrize(("reason", "told"), [
    ("DriverFailing", "2 waiting for nodes under way, of which 1 needs somebody to look at it (2 UnavailableLimit)"),
    ("DriverStarting", "2 waiting: they go on by themselves (2 UnavailableLimit)"),
])
def test_nodes_that_wait_for_one_that_needs_somebody_do_not_go_on_by_themselves(reason: str, told: str) -> None:
    reports = [NodeReport("n0", Group.UNDER_WAY, "pod-restart-required", reason=reason), *(
        NodeReport(name, Group.WAITING, "upgrade-required", reason="UnavailableLimit") for name in ("n1", "n2"))]
    assert str(group_reports(reports)[-1]) == told


@pytest.mark.parametrize(("pool", "note"), [("NVIDIADriver a", "for nodes under way, of which 1 needs somebody to look at it"),
                                            ("NVIDIADriver b", "")])
def test_nodes_of_one_nvidia_driver_do_not_wait_for_those_of_another(pool: str, note: str) -> None:
    reports = [NodeReport("n0", Group.UNDER_WAY, "pod-restart-required", reason="DriverFailing", pool="NVIDIADriver a"),
               NodeReport("n1", Group.WAITING, "upgrade-required", reason="UnavailableLimit", pool=pool)]
    assert group_reports(reports)[-1].note == note


@pytest.mark.parametrize(("group", "nodes", "told"), [
    (Group.WAITING, 1, "1 waiting: it goes on by itself (1 Skipped)"),
    (Group.WAITING, 2, "2 waiting: they go on by themselves (2 Skipped)"),
    (Group.HELD, 1, "1 held: somebody needs to look at it (1 Skipped)"),
    (Group.HELD, 2, "2 held: each needs somebody to look at it (2 Skipped)"),
    (Group.STOPPED, 1, "1 stopped (1 Skipped)"),
])
def test_one_node_is_told_of_in_the_singular(group: Group, nodes: int, told: str) -> None:
    """Nor is it one of several."""
    reports = [NodeReport(f"n{number}", group, "upgrade-required", reason="Skipped") for number in range(nodes)]
    assert str(group_reports(reports)[-1]) == told
    reports = [msgspec.structs.replace(report, cordoned=True) for report in reports]
    assert str(group_reports(reports)[-1]) == f"{told}, {'2 of them ' if nodes == 2 else ''}cordoned by somebody else"
