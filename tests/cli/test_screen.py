"""What the demo prints of plans where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from gpuward.cli.screen import Screen
from gpuward.cli.story import unwritten
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.states import State
from gpuward.model.views import Ref


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
