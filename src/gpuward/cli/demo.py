"""`gpuward demo`: watch the operator install a driver on a simulated fleet and upgrade it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

from gpuward import names
from gpuward.cli.sandbox import at_speed
from gpuward.cli.screen import Screen, gpu_nodes
from gpuward.cli.story import Options, Story, as_int_or_text
from gpuward.cli.targets import check_version
from gpuward.cli.terminal import console, say
from gpuward.controllers.page import PATH, board_of, page_routes
from gpuward.controllers.serving import health_routes, metrics_routes, serve
from gpuward.crd.conversion import max_unavailable
from gpuward.errors import DemoFailed, InputError, PolicyError

FAULTS_TAKE = 3 * 3600.0
"""Seconds of the sandbox's time that deadlines of nodes with faults may take; they are to pass at the demo's speed."""


NODE_TAKES = 55.0
"""Seconds of the sandbox's time in which a node gets another driver, about."""
FASTER = 20
"""Nodes at once that are advised where an upgrade takes long."""
LONG = 2.0
"""Minutes from which people are told how long it takes."""


def check(options: Options) -> None:
    """Raise InputError for an option that no fleet can be upgraded with."""
    if options.max_unavailable is not None:
        try:
            max_unavailable(as_int_or_text(options.max_unavailable), "--max-unavailable")
        except PolicyError as error:
            raise InputError(error.field, error.value, "write a number of nodes (2) or a percentage (25%)") from error
    check_version(options.to_version)


def play(options: Options, speed: float, *, keep: bool) -> None:
    """Play the demo, and leave it serving afterwards if told to.

    Raises:
        DemoFailed: the demo did not reach its goal.
    """
    with at_speed(speed, FAULTS_TAKE if options.troubles else 0.0) as runner:
        failure = runner.run(_play(options, speed, keep=keep))
    if failure:
        raise DemoFailed(failure)


async def _play(options: Options, speed: float, *, keep: bool) -> str:
    """Play the story and return why it failed, empty for success."""
    begun = time.monotonic()
    screen = Screen(console(), options.nodes, speed)
    story = Story(options, screen.planned)
    screen.story = story
    failure, done = "", None
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(story.stop)
        await story.start()
        if keep:
            await _open_doors(story, stack)
        try:
            async with screen.installing():
                seconds = await story.install()
            screen.say(f"The stack is ready on {gpu_nodes(options.nodes)} after {int(seconds)} s of the sandbox's time, "
                       f"driver {story.old_version}.")
            screen.troubles(options.troubles)
            screen.say(f"Now spec.driver.version becomes {story.new_version}.{how_long(options, speed)}")
            async with screen.upgrading():
                done = await story.upgrade()
        except DemoFailed as error:
            failure = str(error)
        screen.summary(done, time.monotonic() - begun)
        if keep and not failure:
            await _wait_for_interrupt(screen)
    # Whoever asks for faults sees what he came for where they keep a node from its driver.
    return failure or ("" if done is not None or options.troubles else story.left_over())


def how_long(options: Options, speed: float) -> str:
    """Say what an upgrade takes that keeps somebody waiting, and what makes it faster."""
    upgrades = (options.policy["spec"].get("driver") or {}).get("upgradePolicy") or {}
    at_once = options.max_parallel if options.max_parallel is not None else upgrades.get("maxParallelUpgrades", 1)
    minutes = options.nodes / at_once * NODE_TAKES / speed / 60 if at_once else 0
    if minutes < LONG:
        return ""
    faster = f"; --max-parallel {FASTER} is faster" if at_once < FASTER else ""
    return f" With {at_once} at a time that takes some {round(minutes)} minutes{faster}."


async def _open_doors(story: Story, stack: contextlib.AsyncExitStack) -> None:
    """Serve the sandbox to kubectl, and the operator's metrics to Prometheus, while the stack lasts."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-")))
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(await story.sandbox.serve(), encoding="utf-8")
    operator = story.operator
    routes = metrics_routes(operator.metrics) + health_routes(lambda: operator.ready, lambda: operator.alive)
    routes += page_routes(board_of(operator, names.DEFAULT_NAMESPACE))
    metrics = await stack.enter_async_context(serve("--keep", "127.0.0.1:0", routes))
    say(f"export KUBECONFIG={kubeconfig}")
    say(f"metrics: http://{metrics}/metrics")
    say(f"page: http://{metrics}{PATH}")


async def _wait_for_interrupt(screen: Screen) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    screen.say("The sandbox and the operator keep running, for kubectl in another terminal. Ctrl-C ends them.")
    sys.stdout.flush()
    await ended.wait()


