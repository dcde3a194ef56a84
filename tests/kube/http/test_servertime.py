"""The API server's time, as its answers tell it."""

from __future__ import annotations

import asyncio

from gpuward.kube.http.servertime import CONFIRMED, ServerClock
from kubesandbox.timeloop import LoopClock, run_virtual


def test_whoever_sleeps_is_woken_when_the_servers_clock_has_gone_ahead() -> None:
    async def play() -> None:
        loop, woken = asyncio.get_running_loop(), list[float]()
        clock = ServerClock(LoopClock())
        clock.moved = lambda: woken.append(clock.now())
        clock.heard(loop.time(), loop.time())
        begun = clock.now()
        clock.heard(loop.time() + 600, loop.time())
        await asyncio.sleep(CONFIRMED)
        assert (woken, clock.now() - begun) == ([], CONFIRMED), "one server of several may be ahead"
        clock.heard(loop.time() + 600, loop.time())
        assert woken == [clock.now()]
        assert clock.now() - begun >= CONFIRMED + 599

    run_virtual(play)


def test_a_moment_that_has_come_stays_so() -> None:
    """What ended at that moment would be begun and given up again with each answer, for the rest of a second."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        clock = ServerClock(LoopClock())
        clock.heard(loop.time() + 0.4, loop.time())
        await asyncio.sleep(1.0)
        come = clock.now()
        clock.heard(come - 1.3, loop.time())
        assert clock.now() == come
        await asyncio.sleep(0.2)
        assert clock.now() == come
        await asyncio.sleep(0.2)
        assert come < clock.now() < come + 0.2
        clock.heard(come - 600, loop.time())
        assert clock.now() < come - 598, "a clock that was set back is followed"

    run_virtual(play)
