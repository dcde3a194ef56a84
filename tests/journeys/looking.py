"""What a person who runs `gpuward status` and `gpuward explain` on a stage is told."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from rich.console import Console, ConsoleDimensions
from rich.console import Group as Lines

from gpuward import names
from gpuward.cli.cordons import cordoned_by
from gpuward.cli.drivers import pool_table, problems_of
from gpuward.cli.explain import last_event, show, with_event
from gpuward.cli.explanation import Explanation, explained
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look, Picture
from gpuward.cli.overview import headline
from gpuward.cli.podwords import words_of
from gpuward.cli.readiness import words_of_readiness, words_of_scheduler
from gpuward.cli.status import Choice, as_json, screen
from gpuward.cli.terminal import styled
from gpuward.cli.view import Row, node_rows
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.explain import sentence
from gpuward.report.nodes import node_reports
from gpuward.report.pools import pool_reports
from tests.journeys.stage import Stage

_KINDS = {"node": resources.NODES, "pod": resources.PODS, "clusterpolicy": resources.CLUSTER_POLICIES,
          "nvidiadriver": resources.NVIDIA_DRIVERS, "rolloutpolicy": resources.ROLLOUT_POLICIES}


@asynccontextmanager
async def looking(stage: Stage, namespace: str = names.DEFAULT_NAMESPACE, *, idle: bool = False,
                  client: Client | None = None) -> AsyncIterator[Picture]:
    """Look at the cluster as it is now, with a client of one's own."""
    look = Look(client or Client(stage.sandbox.transport()), namespace)
    async with look.following():
        leader = await look.leader()
        yield look.picture(leader if idle else msgspec.structs.replace(leader, running=True))  # most stages elect nobody


async def headline_of(stage: Stage) -> str:
    """Return the first line of `gpuward status`."""
    async with looking(stage) as picture:
        return headline(picture)


async def status_of(stage: Stage) -> dict[str, Any]:
    """Return what `gpuward status -o json` prints."""
    async with looking(stage) as picture:
        return as_json(picture, await Look(stage.user, names.DEFAULT_NAMESPACE).leader())


async def drivers_of(stage: Stage, width: int = 200) -> list[str]:
    """Return the lines of `gpuward drivers` below its first."""
    shown = io.StringIO()
    console = Console(file=shown, width=width)
    async with looking(stage) as picture:
        reports = node_reports(picture.plan, picture.snapshot, picture.drivers)
        pools = pool_reports(reports, picture.snapshot, picture.drivers)
    console.print(pool_table(pools, width), *map(styled, problems_of(pools)), sep="\n")
    return shown.getvalue().splitlines()


async def screen_of(stage: Stage, width: int = 200, *, idle: bool = False, leader: Leader | None = None,
                    client: Client | None = None) -> list[str]:
    """Return the lines of `gpuward status` on a terminal of this width, which is high enough."""
    shown = io.StringIO()
    leader = leader or await Look(stage.user, names.DEFAULT_NAMESPACE).leader()
    async with looking(stage, idle=idle, client=client) as picture:
        told = screen(picture, leader, Choice(), stage.clock.now(), ConsoleDimensions(width, 1000))
    Console(file=shown, width=width).print(Lines(*told))
    return [line.rstrip() for line in shown.getvalue().splitlines()]


async def explanation_of(stage: Stage, node: str) -> Explanation:
    """Return what `gpuward explain` says of a node."""
    async with looking(stage) as picture:
        found = explained(picture, node)
    client = Client(stage.sandbox.transport())
    said = await words_of(client, picture.snapshot, node)
    notes = (*found.notes, *await words_of_readiness(client, found.node),
             *await words_of_scheduler(client, picture.snapshot, node))
    cordoner = await cordoned_by(client, found.node, found.cordon)
    return msgspec.structs.replace(
        with_event(found, await last_event(client, node)), said=said, notes=notes, cordoned_by=cordoner)


async def obey(stage: Stage, command: str) -> None:
    """Do what a command of `gpuward explain` does: kubectl patch, label, annotate or delete, or echo to kubectl apply."""
    words = shlex.split(command)
    if words[0] == "echo":
        body = json.loads(words[1])
        await stage.user.create(_KINDS[body["kind"].lower()], body)
        return
    kind = _KINDS[words[2]]
    if words[1] == "delete":
        await stage.user.delete(kind, words[3], namespace=words[words.index("-n") + 1] if "-n" in words else "")
        return
    if words[1] in ("label", "annotate"):
        found = {key.removesuffix("-"): value or None for word in words[4:] if not word.startswith("--")
                  for key, _, value in (word.partition("="),)}
        await stage.user.patch_merge(kind, words[3], {"metadata": {"labels" if words[1] == "label" else "annotations": found}})
        return
    assert words[:2] == ["kubectl", "patch"]
    await stage.user.patch_merge(kind, words[3], json.loads(words[words.index("-p") + 1]))


def reason_of(told: Explanation) -> str:
    """Return why a node waits, in words, or why it is not managed."""
    if told.status is None:
        return told.unmanaged
    return sentence(told.status.hold) if told.status.hold is not None else ""


def condition_of(stage: Stage, kind: str = "DriverUpgrade") -> tuple[str, str, str]:
    """Return status, reason and message of a condition of the ClusterPolicy; empty ones where it is not there."""
    conditions = stage.policy_status().get("conditions", ())
    return next(((one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == kind), ("", "", ""))


async def row_of(stage: Stage, node: str) -> Row:
    """Return the line of a node in `gpuward status`."""
    async with looking(stage) as picture:
        reports = node_reports(picture.plan, picture.snapshot, picture.drivers)
        return next(row for row in node_rows(reports, stage.clock.now()) if row.node == node)


async def told_of(stage: Stage, node: str, title: str) -> str:
    """Return what `gpuward explain` says of a node in the line of this title; nothing where it has none."""
    shown = io.StringIO()
    show(await explanation_of(stage, node), Leader("", stage.clock.now()), Console(file=shown, width=1000))
    lines = shown.getvalue().splitlines()
    return next((line.removeprefix(title).strip() for line in lines if line.startswith(title)), "")
