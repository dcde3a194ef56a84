"""What runs in a container: when it is ready, when it exits, and what it does to the machine.

A program is a generator that says what it waits for; the kubelet resumes it when that has come. So a program reads from
top to bottom like the shell script that it stands for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kubesandbox.errors import ApiError
from kubesandbox.sim.objects import Object, annotations_of, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from kubesandbox.sim.machine import Machine
    from kubesandbox.sim.world import World

RUN_SECONDS: Final = "kubesandbox/run-seconds"
"""Pod annotation: the containers exit after so many seconds; without it they run until they are stopped."""
EXIT_CODE: Final = "kubesandbox/exit-code"
"""Pod annotation: the code with which they exit; 0 without it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until an instant."""

    until: float


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for any change of the machine, at most until an instant if one is given."""

    until: float | None = None


Waits = Generator[Pause | Watch, float, int]
"""A running program: yields what it waits for, is sent the time, returns its exit code."""
Pausing = Generator[Pause | Watch, float, float]
"""A part of a program; returns the time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say how a container stands; `wake` is when to look again, `waits` whether a change of the machine matters."""

    exit_code: int | None = None
    message: str = ""
    wake: float | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Say where a container runs."""

    world: World
    machine: Machine
    pod: Object
    container: Object

    @property
    def who(self) -> str:
        """Return the pod's namespace/name."""
        return f"{namespace_of(self.pod)}/{name_of(self.pod)}"

    @property
    def key(self) -> str:
        """Return what tells the container from all others."""
        return f"{uid_of(self.pod)}/{self.container['name']}"

    def env(self, name: str) -> str:
        """Return the literal value of an environment variable of the container, or an empty string."""
        for entry in self.container.get("env") or ():
            if entry["name"] == name:
                return entry.get("value") or ""
        return ""


class Program(ABC):
    """Run in one container from its start to its end. Subclasses say what happens in `run`."""

    ignores_stop: ClassVar[bool] = False
    """Whether the process takes no notice of SIGTERM, as a shell without a trap, and is killed when its pod's grace is over."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.world, self.machine = place.world, place.machine
        self.ready = False
        """Whether a probe of the container would succeed."""
        self.message = ""
        self.lines: list[str] = []
        """What the program has written to its log."""
        self._running: Waits | None = None
        self._waits_for: Pause | Watch = Watch()

    def say(self, line: str) -> None:
        """Write a line to the log."""
        self.lines.append(line)

    @abstractmethod
    def run(self, now: float) -> Waits:
        """Do what the program does; return the exit code."""

    def settle(self) -> None:  # noqa: B027  most programs have nothing to do here
        """Bring about what the program has brought about where it was found already ended with success."""

    def registered(self) -> None:  # noqa: B027  most programs have nothing to do here
        """React to a kubelet that has registered its node anew."""

    def end(self) -> None:  # noqa: B027  most programs have nothing to do here
        """Undo what ends with the container's process, however it ends."""

    def stop(self) -> None:  # noqa: B027  most programs have nothing to do here
        """React to the order to stop, before the process ends."""

    def poll(self, now: float) -> Verdict:
        """Go on as far as possible."""
        try:
            if self._running is None:
                self._running = self.run(now)
                self._waits_for = next(self._running)
            elif not isinstance(self._waits_for, Pause) or self._waits_for.until <= now + 1e-6:
                self._waits_for = self._running.send(now)
            while isinstance(self._waits_for, Pause) and self._waits_for.until <= now + 1e-6:
                self._waits_for = self._running.send(now)
        except StopIteration as done:
            return Verdict(exit_code=done.value, message=self.message)
        except ApiError as error:
            # A program that the API server refuses something gives up, and its container is started again.
            return Verdict(exit_code=1, message=str(error))
        return Verdict(wake=self._waits_for.until, waits=isinstance(self._waits_for, Watch))

    def until(self, now: float, holds: Callable[[], bool]) -> Pausing:
        """Wait for a condition as a shell loop with a sleep in it does: it is seen at the next look."""
        began, period = now, self.world.delays.poll_seconds
        while not holds():
            now = yield Watch()
        look = began + math.ceil((now - began) / period - 1e-6) * period if period else now
        if look > now:
            now = yield Pause(look)
        return now


class Task(Program):
    """Be an init container of no particular kind: runs a moment and succeeds."""

    def run(self, now: float) -> Waits:
        yield Pause(now + self.world.delays.init_seconds)
        return 0


class Service(Program):
    """Be a container of no particular kind: gets ready, and exits only when annotated to."""

    def run(self, now: float) -> Waits:
        self.begin()
        began = now
        if self.place.container.get("readinessProbe") or self.place.container.get("startupProbe"):
            yield Pause(now + self.world.delays.ready_seconds)
        self.ready = True
        notes = annotations_of(self.place.pod)
        if RUN_SECONDS in notes:
            yield Pause(began + float(notes[RUN_SECONDS]))
            return int(notes.get(EXIT_CODE, "0"))
        while True:
            yield Pause(math.inf)

    def begin(self) -> None:
        """Do what the process does first."""
