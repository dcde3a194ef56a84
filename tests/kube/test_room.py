"""Room in disruption budgets that our own evictions took: it counts until the watch shows it, and not for ever."""

from __future__ import annotations

import asyncio

import msgspec

from gpuward.kube.room import SHOWN, TakenRoom
from gpuward.model.budgets import BudgetView
from gpuward.model.selectors import read_selector
from gpuward.model.views import PodView
from kubesandbox.timeloop import run_virtual

BUDGET = BudgetView("ml", "all", "uid", "1", selector=read_selector({"app": "train"}, ()), allowed=2, healthy=3, desired=1)
POD = PodView("ml", "train", labels={"app": "train"}, phase="Running", ready=True)


def test_room_is_taken_once_for_each_pod_until_the_watch_shows_another_version() -> None:
    async def main() -> None:
        room = TakenRoom(lambda: None)
        for left in (1, 0, 0):
            room.take(room.over(POD, [BUDGET]))
            assert [budget.allowed for budget in room.left([BUDGET])] == [left]
        newer = msgspec.structs.replace(BUDGET, version="2", allowed=1)
        assert room.left([newer]) == (newer,)

    run_virtual(main)


def test_room_that_no_watch_shows_as_taken_is_there_again_after_a_while() -> None:
    async def main() -> None:
        woken: list[bool] = []
        room = TakenRoom(lambda: woken.append(True))
        room.take(room.over(POD, [BUDGET]))
        await asyncio.sleep(SHOWN + 1)
        assert (room.left([BUDGET]), woken) == ((BUDGET,), [True])

    run_virtual(main)


def test_no_room_is_taken_by_a_pod_that_needs_none() -> None:
    room = TakenRoom(lambda: None)
    others = (msgspec.structs.replace(POD, labels={}), msgspec.structs.replace(POD, deleting=True),
              msgspec.structs.replace(POD, ready=False), None)
    assert [room.over(pod, [BUDGET]) for pod in others] == [()] * 4
