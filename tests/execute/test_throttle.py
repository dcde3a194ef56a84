"""An API server that refuses requests for its own load is left alone for as long as it asks, and then not overrun again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gpuward.errors import LONGEST_WAIT, TooManyRequests
from gpuward.execute.throttle import CAREFUL, PAUSE, Throttle
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.execute.bench import Bench, on_a_bench

BUSY = "Too many requests, please try again later."
NODES = ("gpu-1", "gpu-2", "gpu-3")


def busy(seconds: int | None) -> TooManyRequests:
    return TooManyRequests(BUSY, details={} if seconds is None else {"retryAfterSeconds": seconds})


class Overload:
    """Refuse patches of nodes while asked to, and count them."""

    def __init__(self, bench: Bench) -> None:
        self.refuses = True
        self.asked = 0
        bench.transport.interfere = self

    def __call__(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method != "PATCH":
            return proceed()
        self.asked += 1
        return refusal(busy(1)) if self.refuses else proceed()


async def label_all(bench: Bench) -> Sequence[Outcome]:
    """Label each node, in a lane of its own."""
    return await bench.execute(*(PatchNode(bench.node(name).ref, labels={"x": "y"}, has_annotations=True) for name in NODES))


def test_what_is_refused_for_load_is_asked_again_when_the_server_says_and_by_one_first() -> None:
    async def play(bench: Bench) -> None:
        overload = Overload(bench)
        refused = await label_all(bench)
        assert [(outcome.error, outcome.wait) for outcome in refused] == [(BUSY, PAUSE)] * 3
        assert overload.asked == 3
        assert all(outcome.error and 0 < outcome.wait <= PAUSE for outcome in await label_all(bench))
        assert overload.asked == 3, "it is not asked meanwhile"
        await asyncio.sleep(PAUSE)
        assert all(outcome.wait for outcome in await label_all(bench))
        assert overload.asked == 4, "one is enough to learn that it still refuses"
        overload.refuses = False
        await asyncio.sleep(PAUSE)
        assert not any(outcome.error for outcome in await label_all(bench))

    on_a_bench(play)


class SetClock:
    """Show the time that is set."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


def test_the_server_says_how_long_within_reason() -> None:
    clock = SetClock()
    throttle = Throttle(clock.now)
    assert [throttle.refused(busy(seconds)) for seconds in (None, 3, 3600)] == [PAUSE, 3.0, LONGEST_WAIT]


def test_a_clock_that_is_set_back_prolongs_nothing() -> None:
    clock = SetClock()
    throttle = Throttle(clock.now)
    throttle.refused(busy(5))
    assert throttle.left() == 5.0
    clock.time -= 300.0
    assert throttle.left() == 0.0


def most_at_once(throttle: Throttle) -> int:
    """Return how many of five turns were taken side by side."""
    now, most = 0, 0

    async def turn() -> None:
        nonlocal now, most
        async with throttle.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    async def main() -> None:
        await asyncio.gather(*(turn() for _ in range(5)))

    asyncio.run(main())
    return most


def test_turns_are_taken_one_by_one_for_a_while_after_a_refusal() -> None:
    clock = SetClock()
    throttle = Throttle(clock.now)
    assert most_at_once(throttle) == 5
    throttle.refused(busy(1))
    clock.time += 1.0 + CAREFUL - 0.1
    assert most_at_once(throttle) == 1
    clock.time += 0.1
    assert most_at_once(throttle) == 5
