"""What the demo prints of plans where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from gpuward import names
from gpuward.cli.screen import Screen
from gpuward.cli.story import unwritten
from gpuward.cli.tally import ITS_TURN, Tally
from gpuward.cli.terminal import draws
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.views import Ref
from gpuward.model.waits import Limit
from tests.waits import held_by


def test_a_step_that_was_refused_is_not_told_and_the_one_after_it_is() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200), 2, 1.0)
    screen._quiet = False
    refused = [Outcome(PatchNode(Ref("", "gpu-1")), error="denied by a webhook"), Outcome(PatchNode(Ref("", "gpu-2")))]
    assert unwritten(refused) == {"gpu-1"}
    plan = Plan(nodes={name: NodeStatus(State.CORDON_REQUIRED, 0.0) for name in ("gpu-1", "gpu-2")})
    screen.planned(plan, unwritten(refused))
    assert "gpu-1" not in out.getvalue()
    assert "gpu-2  cordon-required" in out.getvalue()
    screen.planned(plan)
    assert out.getvalue().count("gpu-1  cordon-required") == 1


def test_a_terminal_that_cannot_draw_is_told_in_lines() -> None:
    assert draws(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"}))
    assert not draws(Console(file=io.StringIO(), _environ={"TERM": "xterm"}))
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200, force_terminal=True, _environ={"TERM": "dumb"}), 1, 1.0)
    screen._quiet = False
    screen.planned(Plan(nodes={"gpu-1": NodeStatus(State.CORDON_REQUIRED, 0.0)}))
    assert "gpu-1  cordon-required" in out.getvalue()


def test_a_done_node_is_not_told_to_wait_for_a_revision() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200), 1, 1.0)
    screen._quiet = False
    screen.planned(Plan(nodes={"gpu-1": NodeStatus(State.DONE, 0.0, held_by(Reason.TEMPLATE_SETTLING))}))
    assert out.getvalue() == ""


def test_a_wait_behind_one_node_after_the_other_names_none_of_them() -> None:
    tally = Tally()
    tally.begin()
    for moment, before in enumerate(("gpu-1", "gpu-2", "gpu-3")):
        hold = Hold(Limit(Reason.PARALLEL_LIMIT, 1, 1, (before,)))
        tally.planned(Plan(nodes={"gpu-8": NodeStatus(State.UPGRADE_REQUIRED, 0.0, hold)}), moment * 60.0)
    tally.finish(180.0)
    assert (tally.longest.node, tally.longest.of_that, tally.longest.reason) == ("gpu-8", 180.0, ITS_TURN)


def test_a_node_that_failed_is_not_counted_as_under_way() -> None:
    tally = Tally()
    tally.begin()
    for node, state in (("gpu-1", State.POD_RESTART_REQUIRED), ("gpu-1", State.FAILED), ("gpu-2", State.POD_RESTART_REQUIRED)):
        tally.node_changed({"metadata": {"name": node, "labels": {names.UPGRADE_STATE: str(state)}}})
    assert tally.most_under_way == 1
