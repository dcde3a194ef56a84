from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kubesandbox.errors import InputError, VirtualDeadlock
from kubesandbox.timeloop import EPOCH, LoopClock, SpeedLoop, run_at_speed, run_virtual


def test_an_hour_of_sleep_takes_no_time_and_ends_exactly_on_the_hour() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return LoopClock().now()

    began = time.monotonic()
    assert run_virtual(main) == EPOCH + 3600
    assert time.monotonic() - began < 5


def test_timers_fire_in_the_order_of_their_time_whatever_the_order_of_their_making() -> None:
    order: list[int] = []

    async def wait(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        await asyncio.gather(*(wait(seconds) for seconds in (300, 2, 86400 * 3, 40, 1)))

    run_virtual(main)
    assert order == [1, 2, 40, 300, 86400 * 3]


def test_the_shortest_sleep_moves_time() -> None:
    async def main() -> int:
        clock, sleeps = LoopClock(), 0
        until = clock.now() + 3e-7
        while clock.now() < until and sleeps < 10:
            await asyncio.sleep(until - clock.now())
            sleeps += 1
        return sleeps

    assert run_virtual(main) == 1


def test_timeouts_obey_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.Event().wait()
        return LoopClock().now()

    assert run_virtual(main, start=1000.0) == 1090.0


def test_a_deadlock_is_reported_with_the_waiting_tasks() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(wait_for_nobody(), name="lonely")

    with pytest.raises(VirtualDeadlock, match="lonely"):
        run_virtual(main)


def test_a_task_that_spins_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesandbox.timeloop.STANDSTILL_TURNS", 100)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(VirtualDeadlock, match="spins"):
        run_virtual(main)


def test_time_stands_still_while_a_thread_works() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        done = threading.Event()
        sleeper = asyncio.create_task(asyncio.sleep(1000))
        work = loop.run_in_executor(None, done.wait, 5)
        await asyncio.sleep(0)
        loop.call_soon(done.set)
        assert await work
        elapsed = loop.time() - EPOCH
        sleeper.cancel()
        return elapsed

    assert run_virtual(main) == 0.0


def test_another_thread_can_call_in() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[str] = loop.create_future()
        await loop.run_in_executor(None, loop.call_soon_threadsafe, told.set_result, "hello")
        return await told

    assert run_virtual(main) == "hello"


def test_fast_time_runs_ahead_but_never_overtakes_the_wall_clock() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        began, wall = loop.time(), time.monotonic()
        await asyncio.sleep(50)
        assert loop.time() <= time.time()
        return loop.time() - began, time.monotonic() - wall

    virtual, real = run_at_speed(main, 500)
    assert virtual >= 50
    assert real < 5


def test_fast_time_goes_at_the_pace_of_the_wall_clock_once_it_has_caught_up() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1.5)
        return time.time() - loop.time()

    behind = run_at_speed(main, 1000, start=time.time() - 1)
    assert -0.01 < behind < 0.4, "at another pace than par it would be half a second ahead; a busy machine is behind"


def test_sockets_work_in_fast_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    async def main() -> bytes:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answer

    assert run_at_speed(main, 20) == b"HELLO\n"


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan"), 1e9])
def test_a_speed_that_no_clock_can_go_at_is_refused(speed: float) -> None:
    with pytest.raises(InputError, match="speed"):
        SpeedLoop(speed)
