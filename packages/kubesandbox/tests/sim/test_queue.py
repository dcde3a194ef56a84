from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kubesandbox.errors import Conflict
from kubesandbox.sim.queue import WorkQueue
from kubesandbox.timeloop import EPOCH, LoopClock, run_virtual


def play(story: Callable[[WorkQueue], None], handler: Callable[[str], None], seconds: float) -> WorkQueue:
    async def main() -> WorkQueue:
        queue = WorkQueue(LoopClock().now, reaction=0.5)
        queue.register("x", handler)
        queue.start()
        story(queue)
        await asyncio.sleep(seconds)
        queue.stop()
        return queue

    return run_virtual(main)


def test_keys_come_once_in_the_order_of_their_first_request_after_the_reaction_time() -> None:
    seen: list[tuple[str, float]] = []

    def story(queue: WorkQueue) -> None:
        for key in ("b", "a", "b", "c", "a"):
            queue.add("x", key)

    play(story, lambda key: seen.append((key, LoopClock().now() - EPOCH)), 10)
    assert seen == [("b", 0.5), ("a", 0.5), ("c", 0.5)]


def test_the_earliest_request_for_a_key_counts() -> None:
    seen: list[float] = []

    def story(queue: WorkQueue) -> None:
        queue.add_at("x", "k", EPOCH + 30)
        queue.add_at("x", "k", EPOCH + 5)
        queue.add_at("x", "k", EPOCH + 60)

    play(story, lambda _: seen.append(LoopClock().now() - EPOCH), 100)
    assert seen == [5.0]


def test_a_refused_write_is_tried_again_with_growing_delays() -> None:
    seen: list[float] = []

    def handler(_key: str) -> None:
        seen.append(round(LoopClock().now() - EPOCH, 3))
        if len(seen) < 5:
            raise Conflict("not now")

    queue = play(lambda queue: queue.add("x", "k"), handler, 100)
    assert seen == [0.5, 0.6, 0.8, 1.2, 2.0]
    assert queue.crash is None


def test_any_other_error_is_kept_and_ends_the_work() -> None:
    def handler(key: str) -> None:
        raise ZeroDivisionError(key)

    async def main() -> WorkQueue:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        queue = WorkQueue(LoopClock().now, reaction=0.5)
        queue.register("x", handler)
        queue.start()
        queue.add("x", "first")
        queue.add("x", "second")
        await asyncio.sleep(10)
        return queue

    crash = run_virtual(main).crash
    assert isinstance(crash, ZeroDivisionError)
    assert str(crash) == "first"


@pytest.mark.parametrize("keys", [1, 1000])
def test_the_loop_gets_its_turn_between_batches(keys: int) -> None:
    turns: list[str] = []

    async def main() -> None:
        queue = WorkQueue(LoopClock().now, reaction=0.0)
        queue.register("x", lambda _: turns.append("key"))
        queue.start()
        for key in range(keys):
            queue.add("x", str(key))

        async def other() -> None:
            while turns.count("key") < keys:
                turns.append("other")
                await asyncio.sleep(0)

        await other()
        queue.stop()

    run_virtual(main)
    longest = max(len(run) for run in "".join("k" if turn == "key" else " " for turn in turns).split())
    assert longest <= 256
