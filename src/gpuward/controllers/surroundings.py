"""Facts about the cluster that change rarely and are asked for, not watched: what the policy refers to, what is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from gpuward import errors
from gpuward.controllers.failures import retry_after
from gpuward.controllers.policies import PolicyReader
from gpuward.crd.clusterpolicy import ClusterPolicySpec
from gpuward.kube import resources
from gpuward.kube.client import Client
from gpuward.model.views import PolicyView
from gpuward.operands.facts import referenced_config_maps, referenced_secrets
from gpuward.ports import Clock, Observer

LOOK_AGAIN: Final = 15.0
"""Seconds between looks while something that the policy refers to is missing; the longest while it cannot be asked for."""


class Surroundings:
    """Hold those facts as they were when last asked for, and for which version of which policy that was."""

    def __init__(
        self, client: Client, namespace: str, reader: PolicyReader, clock: Clock, follow: Callable[[], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._reader = reader
        self._follow_monitors = follow
        self._log = structlog.get_logger(source="controllers.ClusterPolicy")
        self._seen: tuple[str, int] | None = None
        self._complete = False
        self._tried: tuple[str, int] | None = None
        self._again = 0.0
        self._failures = 0
        self._complaint = ""
        self.has_service_monitors = False
        self.config_maps: Mapping[str, tuple[str, ...]] = {}
        self.secrets: frozenset[str] = frozenset()

    def known_for(self, view: PolicyView) -> bool:
        """Tell whether the facts are those that this version of a policy needs."""
        return self._seen == (view.uid, view.generation)

    async def run(self, observer: Observer, touch: Callable[[], None]) -> None:
        """Look whenever the active policy changes, and again while something is missing. Ends only by cancellation."""
        while True:
            active, rest = self._reader.read(observer.observe()), None
            if active.view is not None and active.policy is not None:
                if self._is_due(active.view):
                    await self._try_to_look(active.view, active.policy.spec)
                    touch()
                rest = None if self._complete else max(0.0, self._again - self._clock.now())
            await observer.changed(rest)

    def _is_due(self, view: PolicyView) -> bool:
        """Tell whether to look now: other changes of the cluster, of which there may be many, are no reason to look again."""
        if self._tried != (view.uid, view.generation):
            return True
        return not self._complete and self._clock.now() >= self._again

    async def _try_to_look(self, view: PolicyView, spec: ClusterPolicySpec) -> None:
        self._tried = (view.uid, view.generation)
        complaint, rest = "", LOOK_AGAIN
        try:
            await self.look(spec)
        except (errors.ApiError, errors.Unreachable) as error:
            self._complete = False
            self._failures += 1
            complaint, rest = str(error), min(retry_after(self._failures), LOOK_AGAIN)
        else:
            self._failures = 0
            self._seen = self._tried
        self._again = self._clock.now() + rest
        if complaint and complaint != self._complaint:
            self._log.warning("Looking up what the ClusterPolicy refers to failed", error=complaint)
        self._complaint = complaint

    async def look(self, spec: ClusterPolicySpec) -> None:
        """Ask for everything once. Raises what the API server's answers raise, but for NotFound."""
        monitors = str(resources.SERVICE_MONITORS)
        if await self._read(resources.CUSTOM_RESOURCE_DEFINITIONS, monitors, "") is not None:
            self.has_service_monitors = True
            self._follow_monitors()
        wanted_maps, wanted_secrets = referenced_config_maps(spec), referenced_secrets(spec)
        maps = {name: await self._read(resources.CONFIG_MAPS, name, self._namespace) for name in sorted(wanted_maps)}
        secrets = {name: await self._read(resources.SECRETS, name, self._namespace) for name in sorted(wanted_secrets)}
        self.config_maps = {name: _keys(body) for name, body in maps.items() if body is not None}
        self.secrets = frozenset(name for name, body in secrets.items() if body is not None)
        self._complete = None not in (*maps.values(), *secrets.values())

    async def _read(self, gvr: resources.GVR, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            return (await self._client.get(gvr, name, namespace)).object()
        except errors.NotFound:
            return None


def _keys(config_map: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({**(config_map.get("data") or {}), **(config_map.get("binaryData") or {})}))
