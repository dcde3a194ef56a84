"""`gpuward bug-report`: one archive with all that somebody who was not there needs, with read rights only and without secrets."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gpuward import errors, names
from gpuward.cli.archive import Archive, archive_at
from gpuward.cli.bugreport_kinds import CLUSTER, IN_NAMESPACE, OPTIONAL, CollectedKind
from gpuward.cli.connect import connected
from gpuward.cli.look import Look
from gpuward.cli.recordings import own_folder
from gpuward.cli.redaction import redacted, scrubbed
from gpuward.cli.rollouts import time_of
from gpuward.cli.status import as_json
from gpuward.cli.terminal import as_json as as_text
from gpuward.cli.terminal import say
from gpuward.kube import resources
from gpuward.kube.config.access import Access
from gpuward.kube.http.client import Client, Selection
from gpuward.model.record import format_time
from gpuward.recorder.ring import PATTERN

FOLDER: Final = "gpuward-bug-report"
MANIFEST, ERRORS, STATUS = "manifest.json", "errors.txt", "status.json"
MOST_PODS: Final = 100
"""Pods whose logs are read: the operator's, those in trouble, then others. In a large fleet the rest says the same."""
MOST_BYTES: Final = 8 << 20
"""Of one container's log."""
AT_ONCE: Final = 8
"""Logs that are read at the same time."""
MOST_TOLD: Final = 10
"""Problems that are printed; the file has them all."""
PATIENCE: Final = 120.0
"""Seconds that working out the status may take."""


@dataclass
class Report:
    """Gather a report. What cannot be read is noted, and the rest goes on."""

    client: Client
    namespace: str
    lines: int
    problems: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Kinds that are not installed."""

    async def fill(self, archive: Archive, recordings: Path | None) -> None:
        """Add everything; the manifest comes last, as it names what is there."""
        pods: list[Mapping[str, Any]] = []
        for wanted in CLUSTER:
            await self._objects(archive, f"cluster/{wanted.file}.json", wanted)
        for wanted in IN_NAMESPACE:
            found = await self._objects(archive, f"namespace/{wanted.file}.json", wanted, self.namespace)
            pods = found if wanted.resource is resources.PODS else pods
        await self._logs(archive, pods)
        await self._status(archive)
        self._recordings(archive, recordings)
        archive.add(ERRORS, "".join(f"{problem}\n" for problem in sorted(self.problems)).encode())
        archive.add(MANIFEST, await self._manifest(archive))

    async def _objects(self, archive: Archive, name: str, wanted: CollectedKind, namespace: str = "") -> list[Mapping[str, Any]]:
        """Add the objects of a kind, page by page, as a List; return what choosing logs takes of them, where they are pods."""
        kept: list[Mapping[str, Any]] = []
        selection = Selection(wanted.resource, namespace or wanted.namespace, fields=wanted.fields)
        try:
            with archive.member(name) as file:
                file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
                between = b"\n"
                async for raw in self.client.list(selection):
                    body = {"apiVersion": wanted.resource.api_version, "kind": wanted.kind, **json.loads(bytes(raw))}
                    if wanted.resource is resources.PODS:
                        kept.append(_slim(body))
                    file.write(between + json.dumps(redacted(body)).encode())
                    between = b",\n"
                file.write(b"\n]}\n")
        except errors.NotFound:
            self.missing.append(str(wanted.resource))
            if str(wanted.resource) not in OPTIONAL:
                self.problems.append(f"{wanted.resource}: not installed")
        except (errors.ApiError, errors.Unreachable) as error:
            self._note(f"{wanted.resource}", error)
        return kept

    async def _logs(self, archive: Archive, pods: list[Mapping[str, Any]]) -> None:
        chosen = sorted(pods, key=_urgency)
        if left := chosen[MOST_PODS:]:
            self.problems.append(f"logs: those of {len(left)} of {len(pods)} pods are left out, the least troubled ones")
        wanted = [each for pod in sorted(chosen[:MOST_PODS], key=_name) for each in _containers(pod)]
        for begin in range(0, len(wanted), AT_ONCE):
            some = wanted[begin:begin + AT_ONCE]
            for each, text in zip(some, await asyncio.gather(*(self._log(*each) for each in some)), strict=True):
                if text is not None:
                    pod, container, previous = each
                    archive.add(f"logs/{pod}/{container}{'.previous' if previous else ''}.log", text)

    async def _log(self, pod: str, container: str, previous: bool) -> bytes | None:
        try:
            read = await self.client.logs(pod, self.namespace, container, lines=self.lines, most=MOST_BYTES, previous=previous)
        except (errors.ApiError, errors.Unreachable) as error:
            self._note(f"log of {'the previous ' if previous else ''}container {container} of pod {pod}", error)
            return None
        return scrubbed(read.decode("utf-8", "replace")).encode()

    async def _status(self, archive: Archive) -> None:
        look = Look(self.client, self.namespace)
        try:
            async with asyncio.timeout(PATIENCE), look.following():
                leader = await look.leader()
                picture = look.picture(leader)
                found = as_json(picture, leader)
        except (errors.GpuwardError, TimeoutError, BaseExceptionGroup) as error:
            if isinstance(error, BaseExceptionGroup) and error.split(errors.GpuwardError)[1] is not None:
                raise
            self._note(STATUS, error)
            return
        if picture.elsewhere:
            self.problems.append(f"what the operator runs: {picture.elsewhere}")
        archive.add(STATUS, as_text(redacted(found)).encode() + b"\n")

    def _recordings(self, archive: Archive, folder: Path | None) -> None:
        found = sorted(folder.glob(PATTERN)) if folder is not None else []
        for file in found:
            try:
                archive.add(f"recordings/{file.name}", file.read_bytes())
            except OSError as error:
                self.problems.append(f"recordings/{file.name}: {error.strerror}")
        if not found:
            self.problems.append(
                "recordings: none are on this machine. Those of an operator in the cluster are in its pods: take them home as "
                "docs/recorder.md says, and name their folder with --recordings")

    async def _manifest(self, archive: Archive) -> bytes:
        try:
            server = (await self.client.server_version()).git_version
        except (errors.ApiError, errors.Unreachable) as error:
            server = f"unknown: {scrubbed(str(error))}"
        manifest = {
            "gpuward": version("gpuward"), "at": format_time(time_of(self.client)), "kubernetes": server,
            "namespace": self.namespace, "logLines": self.lines, "notInstalled": sorted(set(self.missing)),
            "problems": len(self.problems), "members": sorted([*archive.members, MANIFEST]),
        }
        return json.dumps(manifest, indent=2).encode() + b"\n"

    def _note(self, what: str, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        code = f"{error.status} {error.reason}: " if isinstance(error, errors.ApiError) else ""
        self.problems.append(f"{what}: {code}{scrubbed(' '.join(str(error).split())) or type(error).__name__}")


def _slim(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return of a pod what choosing logs takes: a fleet may have many thousand."""
    meta, status = pod["metadata"], pod.get("status") or {}
    return {"metadata": {key: meta.get(key) for key in ("name", "labels")},
            "status": {key: status.get(key) for key in ("phase", "initContainerStatuses", "containerStatuses")}}


def _containers(pod: Mapping[str, Any]) -> Iterable[tuple[str, str, bool]]:
    """Name the logs that a pod has: of each container that has begun, and of the one before, if there was one."""
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = bool((each.get("lastState") or {}).get("terminated"))
        begun = bool(set(each.get("state") or ()) & {"running", "terminated"})
        if begun or ended:  # of one that waits to be started again the log is that of its last run
            yield _name(pod), each["name"], False
        if begun and ended:
            yield _name(pod), each["name"], True


def _urgency(pod: Mapping[str, Any]) -> tuple[bool, bool, bool, str]:
    """Sort the operator's pods first, then those that crash, that are not ready, and the others."""
    labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    steady = not any(each.get("restartCount") for each in containers)
    ready = status.get("phase") == "Succeeded" or (
        bool(containers) and all(each.get("ready") for each in status.get("containerStatuses") or ()))
    return labels.get("app") != names.OPERATOR_NAME, steady, ready, _name(pod)


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


@dataclass(frozen=True)
class ReportOptions:
    """Hold what a person wants."""

    output: Path | None
    force: bool
    lines: int
    recordings: Path | None


def write_report(kubeconfig: str | None, context: str | None, namespace: str, options: ReportOptions) -> None:
    """Write the archive, and say what is in it and what is not.

    Raises:
        InputError: the file is there already, or cannot be written.
    """
    asyncio.run(_write(kubeconfig, context, namespace, options))


async def _write(kubeconfig: str | None, context: str | None, namespace: str, options: ReportOptions) -> None:
    async with connected(kubeconfig, context) as (client, access):
        for line in await made(client, access, namespace, options):
            say(line)


async def made(client: Client, access: Access | None, namespace: str, options: ReportOptions) -> list[str]:
    """Write the archive; return what there is to say about it."""
    at = time_of(client)
    path = options.output or Path(f"gpuward-bug-report-{format_time(at)[:19].replace(':', '').replace('-', '')}Z.tar.gz")
    recordings = options.recordings or (own_folder(os.environ, access) if access is not None else None)
    report = Report(client, namespace, options.lines)
    with archive_at(path, FOLDER, at, force=options.force) as archive:
        await report.fill(archive, recordings)
    told = [f"{path}: {len(archive.members)} files, {path.stat().st_size / 1024:.0f} KiB"]
    if report.problems:
        told.append(f"{_things(len(report.problems))} not in it, see {ERRORS} there:")
        told += [f"  {problem}" for problem in sorted(report.problems)[:MOST_TOLD]]
        if (more := len(report.problems) - MOST_TOLD) > 0:
            told.append(f"  and {more} more")
    return [*told, "Secrets were not read, and values that look like credentials are left out. Names of nodes, namespaces and "
                   "pods are in it, and logs: look through it before you hand it on."]


def _things(count: int) -> str:
    return "1 thing is" if count == 1 else f"{count} things are"
