"""What `gpuward status` shows: the cluster as it is, by the cluster's own clock."""

from __future__ import annotations

import asyncio
import io
from unittest.mock import AsyncMock, Mock

import pytest
from rich.console import Console

from gpuward.cli.look import latest, shown
from gpuward.cli.status import Choice, _Status
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from tests.build import ADMITTED, cluster, driver_pod, policy, under_way, validator


def test_a_deadline_that_has_passed_only_by_this_machines_clock_is_no_failure() -> None:
    node = under_way(State.VALIDATION_REQUIRED)
    snapshot = cluster([node], [driver_pod(driver="560"), validator(ready=False)])
    assert latest(snapshot) == ADMITTED
    late = decide(snapshot, policy(), ADMITTED + 3600)
    assert late.nodes["n0"].state is State.FAILED
    status = shown(decide(snapshot, policy(), latest(snapshot)), snapshot).nodes["n0"]
    assert status.state is State.VALIDATION_REQUIRED
    assert status.hold is not None


def test_a_node_is_shown_in_the_state_of_its_label() -> None:
    snapshot = cluster([under_way(State.CORDON_REQUIRED)], [driver_pod()])
    plan = decide(snapshot, policy(), latest(snapshot))
    assert plan.nodes["n0"].state is not State.CORDON_REQUIRED
    assert shown(plan, snapshot).nodes["n0"].state is State.CORDON_REQUIRED


def test_a_terminal_that_cannot_draw_is_shown_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    status = _Status(Mock(), Choice())
    status.console = Console(file=out, force_terminal=True, _environ={"TERM": "dumb"})
    monkeypatch.setattr(status, "_ask", AsyncMock())
    monkeypatch.setattr(status.look, "picture", Mock())
    monkeypatch.setattr(status, "_screen", Mock(side_effect=[["first"], ["second"]]))
    with pytest.raises(StopAsyncIteration):
        asyncio.run(status.show(Mock(changed=AsyncMock(side_effect=[None])), watch=True))
    assert out.getvalue().splitlines() == ["first", "second"]
