"""Measure the checks of waves that are done, each at its interval, and hand what was measured to the decision."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog

from gpuward import errors
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.analysis import CheckRun, Measured, Measurement, Promql, Result, after
from gpuward.model.measuring import NO_NODE, NODES, of_conditions, of_samples, query_of
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.ports import Access, Clock, Observer, Prometheus

STANDBY: Final = 1.0
"""Seconds until a process that does not lead looks again whether it does."""
AT_LEAST: Final = 1.0
"""Seconds between two measurements, whatever clocks do."""


class Measure(Protocol):
    """Measure a check once."""

    async def __call__(self, run: CheckRun, snapshot: Snapshot, now: float) -> Measurement:
        """Return what is measured. Never raises for what a server does."""
        ...


class Measuring:
    """Measure in the world: conditions of nodes in the snapshot, samples at a Prometheus."""

    def __init__(self, client: Client, namespace: str, prometheus: Prometheus | None) -> None:
        self._client = client
        self._namespace = namespace
        self._prometheus = prometheus

    async def __call__(self, run: CheckRun, snapshot: Snapshot, now: float) -> Measurement:
        """Return what is measured."""
        promql = run.check.promql
        if promql is None:
            found = [node for name in run.nodes if (node := snapshot.nodes.get(name)) is not None]
            return of_conditions(run.check.conditions, found, now)
        if NODES in promql.query and not run.nodes:
            return Measurement(now, Result.UNKNOWN, NO_NODE)
        if self._prometheus is None:
            return Measurement(now, Result.UNKNOWN, f"{promql.server} is not asked here")
        try:
            access = await self._access(promql)
        except (errors.ApiError, errors.Unreachable, ValueError) as error:
            told = str(error) if isinstance(error, ValueError) else type(error).__name__
            return Measurement(now, Result.UNKNOWN, f"{promql.server}: Secret {promql.secret} cannot be used: {told}")
        return of_samples(promql, await self._prometheus.ask(promql.server, query_of(promql, run.nodes), access), now, run.nodes)

    async def _access(self, promql: Promql) -> Access:
        if not promql.secret:
            return Access()
        secret = (await self._client.get(resources.SECRETS, promql.secret, self._namespace)).object()
        data = secret.get("data") or {}
        return Access(_text(data, "token"), _text(data, "ca.crt"))


def _text(data: Mapping[str, Any], key: str) -> str:
    """Return a value of a Secret. Raises ValueError, without the value, for one that is no line of text, or no text."""
    try:
        text = base64.b64decode(str(data.get(key) or ""), validate=True).decode().strip()
    except (ValueError, binascii.Error):
        raise ValueError(f"its {key} is no text") from None
    if key == "token" and (not text.isascii() or not text.isprintable()):
        raise ValueError(f"its {key} is no token")
    return text


class WaveChecks:
    """Keep what was measured, and put it into the cluster's snapshot."""

    def __init__(self, measure: Measure, clock: Clock, leads: Callable[[], bool],
                 take: Callable[[Mapping[str, Measured]], None]) -> None:
        self._measure = measure
        self._clock = clock
        self._leads = leads
        self._take = take
        self._wanted: dict[str, CheckRun] = {}
        self._measured: dict[str, Measured] = {}
        self._due: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._log = structlog.get_logger(source="controllers.Analysis")

    def planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take what a plan wants to be measured."""
        if seen.decision is None:
            return
        wanted = {run.key: run for each in seen.decision.waves for run in each.runs}
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    async def run(self, observer: Observer) -> None:
        """Measure whatever is due. Ends only by cancellation."""
        try:
            while True:
                if not self._leads():
                    self._wanted = {}
                self._forget()
                now = self._clock.now()
                for key, run in self._wanted.items():
                    if key not in self._asking and not 0.0 < self._due.get(key, 0.0) - now <= run.check.interval:
                        self._due[key] = now + max(run.check.interval, AT_LEAST)
                        self._asking[key] = asyncio.create_task(self._ask(key, run, observer.observe()))
                await self._wait()
        finally:
            for task in self._asking.values():
                task.cancel()

    async def _wait(self) -> None:
        now = self._clock.now()
        rests = [max(0.05, self._due[key] - now) for key in self._wanted if key not in self._asking]
        if not self._leads():
            rests = [STANDBY]
        self._wake.clear()
        try:
            async with asyncio.timeout(min(rests, default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _forget(self) -> None:
        """Forget what is wanted no longer: a wave that is wanted again is another one."""
        for key in [key for key in self._asking if key not in self._wanted]:
            self._asking.pop(key).cancel()
        for key in [key for key in self._due if key not in self._wanted]:
            del self._due[key]
        if gone := [key for key in self._measured if key not in self._wanted]:
            for key in gone:
                del self._measured[key]
            self._take(dict(self._measured))

    async def _ask(self, key: str, run: CheckRun, snapshot: Snapshot) -> None:
        try:
            new = await self._measure(run, snapshot, self._clock.now())
        except Exception as error:  # whatever it is, it must not stop the operator, and nothing passes by it
            new = Measurement(self._clock.now(), Result.UNKNOWN, f"measuring fails: {type(error).__name__}")
        before = self._measured.get(key)
        self._measured[key] = found = after(before, new)
        self._say(run, before, found)
        self._asking.pop(key, None)
        self._take(dict(self._measured))
        self._wake.set()

    def _say(self, run: CheckRun, before: Measured | None, found: Measured) -> None:
        if before is not None and (before.result, before.told) == (found.result, found.told):
            return
        log = self._log.info if found.result is Result.PASSED else self._log.warning
        log("Measured a check of a wave", wave=run.wave, check=run.check.name, result=str(found.result), told=found.told,
            failures=found.failures)
