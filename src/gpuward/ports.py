"""The ports between decisions and the world: what is seen, what is done and told, what time it is, and which images there are.

The same loop runs live, in rehearsals and in tests; only the implementations of these protocols differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpuward.model.actions import Action
from gpuward.model.measuring import Answer
from gpuward.model.passes import Outcome
from gpuward.model.snapshot import Snapshot


class Clock(Protocol):
    """Tell the time. `decide` never sees it: it is given a reading."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait by this clock."""
        ...


class Observer(Protocol):
    """Show the cluster."""

    def observe(self) -> Snapshot:
        """Return the facts of this moment."""
        ...

    async def changed(self, timeout: float | None) -> bool:
        """Wait until something that a decision reads has changed; return False when `timeout` seconds passed first."""
        ...


class Executor(Protocol):
    """Change the cluster."""

    async def execute(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Perform the actions, lane by lane, and return an outcome for each. Never raises for an API server's refusal."""
        ...


class Log(Protocol):
    """Take lines of a log: a sentence, and values by their names. Loggers of structlog do."""

    def info(self, event: str, /, **values: object) -> object:
        """Tell what happened."""
        ...

    def exception(self, event: str, /, **values: object) -> object:
        """Tell what failed, with the exception that is being handled."""
        ...


class NoLog:
    """Keep no log, as commands do that look at a cluster once."""

    def info(self, event: str, /, **values: object) -> None:
        """Keep nothing."""

    def exception(self, event: str, /, **values: object) -> None:
        """Keep nothing."""


NO_LOG: Final = NoLog()


class Login(NamedTuple):
    """Hold what a pull secret has for a registry. It is not to be logged or recorded."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


class ImageFound(NamedTuple):
    """Say whether an image is there: None where that is not known."""

    there: bool | None
    why: str = ""
    """What the registry said, or why it said nothing."""


class Registry(Protocol):
    """Ask registries for images."""

    async def find(self, image: str, logins: Mapping[str, Login]) -> ImageFound:
        """Say whether an image is there, with logins by registry. Never raises for what a registry does."""
        ...


class Access(NamedTuple):
    """Hold what lets us ask a Prometheus. It is not to be logged or recorded."""

    token: str = ""
    authorities: str = ""
    """Certificates in PEM that are trusted besides the system's."""

    def __repr__(self) -> str:
        return "Access(...)"


class Prometheus(Protocol):
    """Ask a Prometheus, or what speaks its HTTP API."""

    async def ask(self, server: str, query: str, access: Access) -> Answer:
        """Return the samples of an instant query. Never raises for what a server does."""
        ...
