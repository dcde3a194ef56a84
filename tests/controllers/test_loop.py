"""The loop itself: what wakes it, what a bug does to it, and what it does while another process leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
import structlog

from gpuward.controllers.loop import Loop, Shared
from gpuward.controllers.metrics import Metrics
from gpuward.model.actions import Action, DeletePod
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import Ref
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from kubesandbox.timeloop import EPOCH, LoopClock, run_virtual

ACTION = DeletePod(Ref("ns", "pod", "uid"), "n1")


class Seen:
    """Observe an empty cluster that changes when told to."""

    def __init__(self) -> None:
        self.change = asyncio.Event()

    def observe(self) -> Snapshot:
        self.change.clear()
        return Snapshot("ns")

    async def changed(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self.change.wait()
        except TimeoutError:
            return False
        return True


class Done:
    """Perform actions with the outcome wanted, and note when."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.at: list[float] = []

    async def execute(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        self.at += [asyncio.get_running_loop().time() - EPOCH for _ in actions]
        return [Outcome(action, error=self.error) for action in actions]


class Always:
    """Decide the same at every pass, or fail."""

    name = "controllers.Test"

    def __init__(self, plan: Plan, bug: Exception | None = None) -> None:
        self.plan = plan
        self.bug = bug
        self.asked: list[float] = []
        self.passes: list[Pass[PoliciesInForce, Plan]] = []

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Plan:
        self.asked.append(now - EPOCH)
        if self.bug:
            raise self.bug
        return self.plan

    def heard(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        self.passes.append(seen)


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def play(controller: Always, executor: Done, seconds: float, acting: Callable[[], bool] = lambda: True,
         meanwhile: Callable[[Seen], Coroutine[Any, Any, None]] | None = None, metrics: Metrics | None = None) -> None:
    async def main() -> None:
        seen = Seen()
        shared = Shared(PolicyReader().read, executor, LoopClock(), acting, passed=(metrics or Metrics()).passed)
        loop = Loop(controller, seen, shared, controller.heard)
        task = asyncio.create_task(loop.run())
        if meanwhile:
            await meanwhile(seen)
        await asyncio.sleep(seconds)
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main)


def test_without_a_change_or_a_time_to_wake_nothing_happens_again() -> None:
    controller = Always(Plan())
    play(controller, Done(), 3600)
    assert len(controller.asked) == 1


def test_it_wakes_when_the_decision_asked_to() -> None:
    controller = Always(Plan(wake_at=EPOCH + 60))
    play(controller, Done(), 60.001)
    assert controller.asked == [0, 60]


def test_changes_that_come_together_are_decided_on_together() -> None:
    async def burst(seen: Seen) -> None:
        await asyncio.sleep(1)
        for _ in range(50):
            seen.change.set()
            await asyncio.sleep(0)

    controller = Always(Plan())
    play(controller, Done(), 10, meanwhile=burst)
    assert 2 <= len(controller.asked) <= 3


def test_a_failing_action_is_tried_again_with_growing_pauses_whatever_changes(log: list[Any]) -> None:
    async def noise(seen: Seen) -> None:
        for _ in range(1000):
            seen.change.set()
            await asyncio.sleep(0.01)

    executor = Done(error="forbidden")
    play(Always(Plan(actions=(ACTION,))), executor, 0.0, meanwhile=noise)
    assert [round(at, 1) for at in executor.at] == [0.0, 0.5, 1.5, 3.5, 7.5]
    assert [line["event"] for line in log] == ["Action failed"]
    assert log[0] | {"object": "n1", "error": "forbidden", "action": "DeletePod"} == log[0]


class Uneven(Done):
    """Fail at once on one node, and take a fifth of a second on any other."""

    async def execute(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        if actions[0].lane == ACTION.lane:
            return await super().execute(actions)
        await asyncio.sleep(0.2)
        return [Outcome(action) for action in actions]


def test_an_action_whose_rest_ends_while_a_pass_goes_on_is_not_forgotten(log: list[Any]) -> None:
    """It failed at 0 s and rests until 0.7 s; a change begins a pass at 0.6 s, which ends at 0.8 s. Then nothing changes."""
    async def one_change(seen: Seen) -> None:
        await asyncio.sleep(0.6)
        seen.change.set()

    executor = Uneven(error="forbidden")
    other = DeletePod(Ref("ns", "other", "uid2"), "n2")
    play(Always(Plan(actions=(ACTION, other))), executor, 5, meanwhile=one_change)
    assert len(executor.at) >= 3
    assert executor.at[1] < 1.0


def test_a_failing_action_is_tried_again_without_any_change(log: list[Any]) -> None:
    executor = Done(error="forbidden")
    play(Always(Plan(actions=(ACTION,))), executor, 4)
    assert executor.at == [0.0, 0.5, 1.5, 3.5]


def test_a_bug_is_logged_and_tried_again_for_as_long_as_it_takes(log: list[Any]) -> None:
    controller = Always(Plan(), bug=KeyError("metadata"))
    play(controller, Done(), 100_000)
    assert controller.asked[:4] == [0.0, 0.5, 1.5, 3.5]
    assert len(controller.asked) > 3000, "it goes on, twice a minute"
    assert {line["event"] for line in log} == {"A pass failed"}


def test_who_does_not_lead_looks_on_without_spinning_and_takes_over_within_a_second() -> None:
    leads = False
    looks = 0

    def acting() -> bool:
        nonlocal looks
        looks += 1
        return leads

    async def elect(seen: Seen) -> None:
        nonlocal leads
        seen.change.set()
        await asyncio.sleep(600)
        leads = True

    controller = Always(Plan())
    play(controller, Done(), 2, acting, elect)
    assert [600 <= at <= 601 for at in controller.asked] == [True]
    assert looks < 2500


def test_who_listens_is_given_each_pass_with_how_it_went_and_those_that_fail() -> None:
    controller = Always(Plan(actions=(ACTION,)))
    play(controller, Done(error="forbidden"), 0.1)
    [seen] = controller.passes
    assert (seen.decision, [outcome.error for outcome in seen.outcomes], seen.error) == (controller.plan, ["forbidden"], "")
    broken = Always(Plan(), bug=KeyError("x"))
    play(broken, Done(), 0.1)
    assert [(seen.decision, seen.error) for seen in broken.passes] == [(None, "KeyError")]


def test_passes_are_counted_and_those_that_crash_too() -> None:
    metrics = Metrics()
    play(Always(Plan(), bug=ValueError("no")), Done(), 0.5, metrics=metrics)
    text = metrics.text().decode()
    assert 'gpuward_pass_crashes_total{controller="Test"} 1.0\n' in text
    play(Always(Plan()), Done(), 60, metrics=metrics)
    text = metrics.text().decode()
    assert 'gpuward_pass_crashes_total{controller="Test"} 1.0\n' in text
    assert 'gpuward_pass_seconds_count{controller="Test"} 2.0\n' in text
