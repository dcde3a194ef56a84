"""What the demo shows: a live table with a progress bar on a terminal, plain lines elsewhere, and a summary."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from gpuward.cli.ages import age
from gpuward.cli.story import QUIET_LIMIT, Story
from gpuward.cli.terminal import draws, styled
from gpuward.cli.view import node_rows, node_table, some
from gpuward.model.explain import sentence
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.report.nodes import node_reports
from gpuward.sandbox.known_faults import KNOWN_FAULTS

MOST_LEFT = 5
"""Nodes that the summary names with what they wait for."""
LINES_AROUND_TABLE = 8
FRAME_SECONDS = 0.15
"""Real seconds between two pictures."""


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 node, 2 nodes."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def gpu_nodes(number: int) -> str:
    """Return a number of nodes with GPUs."""
    return counted(number, "GPU node")


class Screen:
    """Show a story as it goes. Its `story` is set before anything is shown."""

    story: Story

    def __init__(self, console: Console, nodes: int, speed: float) -> None:
        self.console = console
        self.speed = speed
        self.nodes = nodes
        self._begun = time.monotonic()
        self._quiet = True
        self._said: dict[str, tuple[State | None, str]] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(styled(text), soft_wrap=True)

    def planned(self, plan: Plan, unwritten: frozenset[str] = frozenset()) -> None:
        """Take notice of a plan; where none is drawn each node whose state or reason is new is a line. Steps that were not
        written are not told: they were not taken.
        """
        if self._quiet or draws(self.console):
            return
        for name, status in plan.nodes.items():
            if name in unwritten:
                continue
            if status.state is State.DONE and status.hold is not None and status.hold.reason is Reason.TEMPLATE_SETTLING:
                continue  # what comes of that is told of
            said = (status.state, status.hold.reason if status.hold else "")
            if self._said.setdefault(name, (State.DONE, "")) == said:
                continue
            self._said[name] = said
            reason = f": {sentence(status.hold)}" if status.hold else ""
            self.say(f"{self._clock()}  {name}  {status.state or 'unknown'}{reason}")

    @contextlib.asynccontextmanager
    async def installing(self) -> AsyncIterator[None]:
        """Show the installation while the context lasts."""
        self.say(f"Starting {gpu_nodes(self.nodes)} (H100, A100, T4; Ubuntu 22.04 and 24.04) and one without GPUs.")
        async with self._live(lambda: Text(f"Installing the GPU stack ... drivers in place: {self._ready()} of {self.nodes}")):
            yield

    @contextlib.asynccontextmanager
    async def upgrading(self) -> AsyncIterator[None]:
        """Show the rollout while the context lasts."""
        self._quiet = False
        columns = (TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn(), TextColumn("{task.fields[clock]}"))
        progress = Progress(*columns)
        task = progress.add_task("upgraded", total=self.nodes, clock="")

        def picture() -> RenderableType:
            progress.update(task, completed=self.story.tally.done, clock=self._clock())
            rows = node_rows(node_reports(self.story.plan), self.story.clock.now())
            most = max(3, self.console.height - LINES_AROUND_TABLE)
            return Group(node_table(rows, most, self.console.width), progress)

        async with self._live(picture):
            yield

    def troubles(self, by_node: Mapping[str, Sequence[str]]) -> None:
        """Tell which faults begin, and where."""
        for fault, what in KNOWN_FAULTS.items():
            if nodes := [name for name, faults in by_node.items() if fault in faults]:
                self.say(f"Now {fault} begins on {some(nodes)}: {what}.")

    def summary(self, seconds: float | None, real_seconds: float) -> None:
        """Print what was done; without `seconds` the rollout did not end."""
        tally = self.story.tally
        self.say("")
        done = f"{tally.done} of {counted(self.nodes, 'node')} upgraded"
        self.say(f"{done} from {self.story.old_version} to {self.story.new_version}"
                 + (f" in {age(seconds)} of the sandbox's time" if seconds is not None else "") + f", {real_seconds:.1f} s real")
        self.say(f"pods evicted: {self.story.evicted}")
        if (longest := tally.longest).node:
            part = f", {age(longest.of_that)} of it" if age(longest.of_that) != age(longest.seconds) else ""
            self.say(f"longest wait: {age(longest.seconds)}, {longest.node}{part}: {longest.reason}")
        self.say(f"most nodes under way at once: {tally.most_under_way} (limit: {self.story.limit()})")
        if seconds is None:
            self._say_what_is_left()

    def _say_what_is_left(self) -> None:
        left = self.story.left()
        self.say("")
        if not left:
            self.say(f"Nothing moves any more: {self.story.stuck}")
            return
        still = f", and none has moved for {age(self.story.still)}" if self.story.still > QUIET_LIMIT else ""
        self.say(f"{len(left)} {'node is' if len(left) == 1 else 'nodes are'} left without {self.story.new_version}{still}:")
        for name in list(left)[:MOST_LEFT]:
            self.say(f"  {name}  {left[name]}")
        if len(left) > MOST_LEFT:
            self.say(f"  and {len(left) - MOST_LEFT} more")
        self.say(f"While the cluster is there (--keep), `gpuward explain {next(iter(left))}` says what would help.")

    def _ready(self) -> int:
        return list(self.story.tally.states.values()).count(State.DONE)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._begun:5.1f} s"

    @contextlib.asynccontextmanager
    async def _live(self, picture: Callable[[], RenderableType]) -> AsyncIterator[None]:
        """Keep a picture up to date on a terminal that can draw while the context lasts; do nothing elsewhere."""
        if not draws(self.console):
            yield
            return
        with Live(picture(), console=self.console, auto_refresh=False) as live:
            drawing = asyncio.create_task(self._draw(live, picture))
            try:
                yield
            finally:
                drawing.cancel()
                live.update(picture(), refresh=True)

    async def _draw(self, live: Live, picture: Callable[[], RenderableType]) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS * self.speed)
            live.update(picture(), refresh=True)
