"""Tests that are coroutines: they run in virtual time, some with what is there for as long as they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from kubesandbox.cluster import Sandbox
from kubesandbox.timeloop import run_virtual

T = TypeVar("T")
S = TypeVar("S", bound=Sandbox)
Test = Coroutine[Any, Any, None]


def virtual(test: Callable[[], Test]) -> Callable[[], None]:
    """Run a test in virtual time."""
    def run() -> None:
        run_virtual(test)

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def virtual_with(make: Callable[[], AbstractAsyncContextManager[T]]) -> Callable[[Callable[[T], Test]], Callable[[], None]]:
    """Run a test in virtual time with what a context manager yields."""
    def decorate(test: Callable[[T], Test]) -> Callable[[], None]:
        async def main() -> None:
            async with make() as there:
                await test(there)

        main.__name__, main.__doc__, main.__module__ = test.__name__, test.__doc__, test.__module__
        return virtual(main)

    return decorate


@asynccontextmanager
async def started(sandbox: S) -> AsyncIterator[S]:
    """Yield a cluster that runs, and stop it unless the test has failed, whose error then tells more than the cluster's."""
    await sandbox.start()
    yield sandbox
    await sandbox.stop()
