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
