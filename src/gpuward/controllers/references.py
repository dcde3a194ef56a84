"""Facts about the cluster that change rarely and are asked for, not watched: what policies refer to, what is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog

from gpuward import errors
from gpuward.controllers.failures import retry_after
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.snapshot import References
from gpuward.operands.wanted import ReferencedNames, wanted_by
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.ports import Clock, Observer

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""Of a ConfigMap or a Secret; the name of a CRD is one, too."""
LOOK_AGAIN: Final = 15.0
"""Seconds between looks while something that the policy refers to is missing; the longest while it cannot be asked for."""


class FollowedLater(NamedTuple):
    """Begin to follow what not every cluster has or needs."""

    monitors: Callable[[], None]
    """ServiceMonitors, once they are installed."""
    place: Callable[[], None]
    """The operator's namespace, once a policy makes it matter."""


class ReferencedObjects:
    """Ask for those facts whenever a policy in force changes, and put them into the cluster's snapshot."""

    def __init__(
        self, client: Client, namespace: str, reader: PolicyReader, clock: Clock, follow: FollowedLater,
        refer: Callable[[References], None],
    ) -> None:
        """Take what begins to follow more, and what takes the facts."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._reader = reader
        self._follow = follow
        self._refer = refer
        self._found = References()
        self._log = structlog.get_logger(source="controllers.ClusterPolicy")
        self._complete = False
        self._tried: frozenset[tuple[str, int]] = frozenset()
        self._again = 0.0
        self._failures = 0
        self._complaint = ""

    async def run(self, observer: Observer) -> None:
        """Look whenever a policy in force changes, and again while something is missing. Ends only by cancellation."""
        while True:
            try:
                wanted, rest = wanted_by(self._reader.read(observer.observe())), None
            except Exception:  # what is in a policy must not end the operator, which can do much without
                self._log.exception("The policies cannot be read")
                await observer.changed(LOOK_AGAIN)
                continue
            if wanted.place:
                self._follow.place()
            if wanted.versions:
                if self._is_due(wanted):
                    await self._try_to_look(wanted)
                    self._refer(self._found)
                rest = None if self._complete else self._rest()
            await observer.changed(rest)

    def _is_due(self, wanted: ReferencedNames) -> bool:
        """Tell whether to look now: other changes of the cluster, of which there may be many, are no reason to look again."""
        if self._tried != wanted.versions:
            return True
        return not self._complete and not self._rest()

    def _rest(self) -> float:
        """Return the seconds until the next look; more than there can be are none, since the clock was set back."""
        rest = self._again - self._clock.now()
        return rest if 0.0 < rest <= LOOK_AGAIN else 0.0

    async def _try_to_look(self, wanted: ReferencedNames) -> None:
        self._tried = wanted.versions
        complaint, rest = "", LOOK_AGAIN
        try:
            self._found = await self.look(wanted)
        except (errors.ApiError, errors.Unreachable) as error:
            self._complete = False
            self._failures += 1
            complaint, rest = str(error), min(retry_after(self._failures), LOOK_AGAIN)
        else:
            self._failures = 0
            found = self._found
            self._complete = wanted.config_maps <= found.config_maps.keys() and wanted.secrets <= found.secrets
        self._again = self._clock.now() + rest
        if complaint and complaint != self._complaint:
            self._log.warning("Objects that a policy refers to cannot be looked up", error=complaint)
        self._complaint = complaint

    async def look(self, wanted: ReferencedNames) -> References:
        """Ask for everything once. Raises what the API server's answers raise, but for NotFound."""
        monitors = str(resources.SERVICE_MONITORS)
        if has_monitors := await self._read(resources.CUSTOM_RESOURCE_DEFINITIONS, monitors, "") is not None:
            self._follow.monitors()
        maps = {name: await self._read(resources.CONFIG_MAPS, name, self._namespace) for name in sorted(wanted.config_maps)}
        secrets = {name: await self._read(resources.SECRETS, name, self._namespace) for name in sorted(wanted.secrets)}
        return References(
            wanted.versions, has_monitors or self._found.has_service_monitors,
            {name: _keys(body) for name, body in maps.items() if body is not None},
            frozenset(name for name, body in secrets.items() if body is not None),
        )

    async def _read(self, gvr: resources.GVR, name: str, namespace: str) -> dict[str, Any] | None:
        if not _NAME.fullmatch(name):  # there can be none, and the refusal of the question would look like another trouble
            return None
        try:
            return (await self._client.get(gvr, name, namespace)).object()
        except errors.NotFound:
            return None


def _keys(config_map: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({**(config_map.get("data") or {}), **(config_map.get("binaryData") or {})}))
