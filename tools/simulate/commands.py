"""People at a terminal: the commands of `gpuward` that change a rollout, as they are, on the cluster of a run.

A command reads, and writes what it means to; it says so, or in one line why not. Whatever else it ends with is a bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from gpuward import names
from gpuward.cli import nodes, pause, resume, words
from gpuward.cli.foresight import Wanted, foresee
from gpuward.cli.savedplan import Target, approve_plan, saved_plan, write_plan
from gpuward.errors import GpuwardError
from gpuward.kube.http.client import Client

if TYPE_CHECKING:
    from kubesandbox.messages import Answer, Request, Stream
    from tools.simulate.world import SimulatedWorld

Lines = AsyncIterator[str]
Command = Callable[[Client], Lines]
PLACE: Final = names.DEFAULT_NAMESPACE
COMMANDS: Final = ("abort", "approve", "pause", "plan", "promote", "resume", "retry", "skip")


class Terminal:
    """Let people give commands, which go on beside whatever else happens."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._running: set[asyncio.Task[None]] = set()
        transport = world.sandbox.transport()
        transport.interfere = self._by_people
        self._client = Client(transport)

    def pause(self, driver: str = "") -> None:
        """Turn upgrades off."""
        self._give("pause", lambda client: pause.pause_rollouts(client, driver, dry_run=False))

    def resume(self, driver: str = "") -> None:
        """Let a rollout go on, whatever holds it."""
        self._give("resume", lambda client: resume.resume_paused(client, driver, dry_run=False))

    def approve(self, driver: str = "") -> None:
        """Approve of the wave that is done."""
        self._give("approve", lambda client: words.approve(client, PLACE, "", driver, dry_run=False))

    def promote(self, driver: str = "") -> None:
        """Let the next wave go."""
        self._give("promote", lambda client: words.promote(client, PLACE, "", driver, dry_run=False))

    def abort(self, driver: str = "") -> None:
        """End a rollout."""
        self._give("abort", lambda client: words.abort(client, PLACE, driver, dry_run=False))

    def retry(self, node: str) -> None:
        """Have a node tried again."""
        self._give(f"retry {node}", lambda client: nodes.retry_nodes(client, (node,), dry_run=False))

    def skip(self, node: str, *, undo: bool = False) -> None:
        """Have a node left alone, or no longer."""
        self._give(f"skip {node}{' --undo' if undo else ''}",
                   lambda client: nodes.skip_nodes(client, (node,), undo=undo, dry_run=False))

    def approve_plan(self, version: str) -> None:
        """Save the plan for a driver version, as people want it or as they are going to, and have rollouts keep to it."""
        self._give(f"plan --to {version or 'what is wanted'} --save, approve --plan", lambda client: _planned(client, version))

    def close(self) -> None:
        """End what is still under way."""
        for task in self._running:
            task.cancel()

    def _give(self, command: str, act: Command) -> None:
        if not self._world.heals:
            task = asyncio.create_task(self._run(command, act), name=command)
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, command: str, act: Command) -> None:
        world = self._world
        try:
            async for line in act(self._client):
                world.watch.met[f"command {command.split()[0]}"] += 1
                world.tell("", f"$ gpuward {command}: {line}")
        except Exception as error:
            first = _first(error)
            world.tell("", f"$ gpuward {command}: {first}")
            if not isinstance(first, GpuwardError):
                world.watch.breach("a command of people's does as it says", f"gpuward {command} ends with {first!r}")

    def _by_people(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        before, self._world.people_act = self._world.people_act, True
        try:
            return proceed()
        finally:
            self._world.people_act = before


async def _planned(client: Client, version: str) -> Lines:
    plan = saved_plan(await foresee(client, Wanted((), version), PLACE))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        write_plan(plan, Target(path))
        async for line in approve_plan(client, path, "", dry_run=False):
            yield line


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


__all__ = ["Terminal"]
