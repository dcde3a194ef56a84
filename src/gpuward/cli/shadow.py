"""`gpuward shadow`: what gpuward would do in the place of the operator that runs, without ever writing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from gpuward.cli.connect import connected
from gpuward.cli.differences import Difference, differences, images_of, looked_at, with_references
from gpuward.cli.explanation import explained
from gpuward.cli.garbage import look_as_usual
from gpuward.cli.look import Look, Picture
from gpuward.cli.manifests import manifest
from gpuward.cli.overview import headline
from gpuward.cli.terminal import console, say_json, say_sentence
from gpuward.execute.contains import contains
from gpuward.kube import followed, resources
from gpuward.kube.followed import Followed
from gpuward.kube.http.client import Client
from gpuward.model.driver import driver_daemonsets
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.report.groups import Group
from gpuward.report.nodes import NodeReport, node_reports
from gpuward.report.paper import Written
from gpuward.wire.daemonsets import daemonset_view

REST: Final = 5.0
"""Seconds between two looks at a cluster in which something changes."""
READ: Final = ["get", "list", "watch"]
MOST_FIELDS: Final = 4
"""Fields of an object that a line names."""


class Stuck(msgspec.Struct, frozen=True):
    """Say which node does not go on, why, and what would help."""

    node: str
    state: str
    reason: str
    message: str
    remedies: tuple[str, ...] = ()


class Shadowed(msgspec.Struct, frozen=True):
    """Hold what gpuward would do in the place of the operator that runs."""

    headline: str
    operator: str
    differences: tuple[Difference, ...] = ()
    restarts: Mapping[str, str] = {}
    """Driver pods that would be replaced, by name, with why."""
    stuck: tuple[Stuck, ...] = ()
    problems: tuple[str, ...] = ()
    unseen: Mapping[str, str] = {}
    """Kinds that cannot be seen, and why."""

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "headline": self.headline, "operator": self.operator,
            "writes": [{"verb": one.verb, "kind": one.kind, "namespace": one.ref.namespace or None, "name": one.ref.name,
                        "fields": list(one.fields) if one.verb == "change" else []} for one in self.differences],
            "driverRestarts": dict(self.restarts), "stuck": [msgspec.to_builtins(one) for one in self.stuck],
            "problems": list(self.problems), "unseen": dict(self.unseen),
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        yield self.headline
        yield self.operator
        yield from (f"problem: {problem}" for problem in self.problems)
        yield from (f"not seen: {kind}: {why or 'not listed yet'}" for kind, why in self.unseen.items())
        yield f"driver pods that would restart: {len(self.restarts) or 'none'}"
        yield from (f"  {pod}: {why}" for pod, why in self.restarts.items())
        yield f"objects that gpuward would write: {len(self.differences) or 'none'}"
        for one in self.differences:
            more = len(one.fields) - MOST_FIELDS
            named = ", ".join(one.fields[:MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")
            yield f"  {one.verb} {one.name}{f': {named}' if one.verb == 'change' else ''}"
        yield f"nodes that do not go on by themselves: {len(self.stuck) or 'none'}"
        for node in self.stuck:
            yield f"  {node.node} ({node.state or 'no state'}): {node.reason}: {node.message}"
            yield from (f"    {remedy}" for remedy in node.remedies)


def print_rights() -> None:
    """Print a ClusterRole that is enough."""
    every: list[Followed[Any, Any]] = [
        followed.NODES, followed.PODS, followed.DAEMON_SETS, followed.REVISIONS, followed.POLICIES, followed.DRIVERS,
        followed.ROLLOUT_POLICIES, followed.BUDGETS, followed.CLAIMS, followed.MONITORS, followed.PLACE, *followed.OWNED]
    groups: dict[str, list[str]] = {"coordination.k8s.io": ["leases"], "apiextensions.k8s.io": ["customresourcedefinitions"]}
    for each in every:
        groups.setdefault(each.resource.group, []).append(each.resource.plural)
    groups["apps"].append("deployments")
    groups[resources.GPU_CLUSTERS.group].append(resources.GPU_CLUSTERS.plural)
    rules = [{"apiGroups": [group], "resources": sorted(plurals), "verbs": READ} for group, plurals in sorted(groups.items())]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gpuward-shadow"},
            "rules": rules}
    click.echo(manifest(role), nl=False)


def shadow_cluster(kubeconfig: str | None, context: str | None, namespace: str, output: str, *, once: bool) -> None:
    """Print what gpuward would do, once or whenever that changes."""
    if not once:
        look_as_usual()
    asyncio.run(_shadow(kubeconfig, context, namespace, output, once))


async def _shadow(kubeconfig: str | None, context: str | None, namespace: str, output: str, once: bool) -> None:
    async with connected(kubeconfig, context) as (client, _), looked_at(client, namespace) as look:
        last: object = None
        while True:
            found = await shadowed(client, look)
            told: object = found.as_json() if output == "json" else tuple(found.lines())
            if told != last:
                last = told
                _print(told)
            if once:
                return
            await look.cluster.watcher().changed(REST)
            await asyncio.sleep(REST)


def _print(told: object) -> None:
    if isinstance(told, tuple):
        out = console()
        for line in told:
            say_sentence(line, len(line) - len(line.lstrip()) + 2, out)
    else:
        say_json(told)


async def shadowed(client: Client, look: Look) -> Shadowed:
    """Return what gpuward would do now, from nothing but reads.

    Raises:
        GpuwardError: the operator works in another namespace.
    """
    leader = await look.leader()
    picture = look.picture(msgspec.structs.replace(leader, running=None))  # what it would do is asked, whoever runs
    picture.refuse_elsewhere()
    snapshot = await with_references(client, picture.snapshot)
    written, found = await differences(client, snapshot, await images_of(client, look.namespace), picture.now)
    return Shadowed(
        headline(picture), leader.message, tuple(found), restarts(snapshot, written, found), tuple(_stuck(picture)),
        written.problems, {kind: why for kind, why in snapshot.unlisted.items() if why})


def restarts(snapshot: Snapshot, written: Written, found: Sequence[Difference]) -> dict[str, str]:
    """Return the driver pods that would be replaced by what would be written: those of a DaemonSet that gets another template,
    or goes with its pods.
    """
    by_name = {one.ref.name: one for one in found if one.kind == "DaemonSet"}
    gone = {action.ref.name: action for action in written.deleted if action.kind == "DaemonSet"}
    told: dict[str, str] = {}
    for ds in driver_daemonsets(snapshot):
        pods = [pod for every in snapshot.pods.values() for pod in every if pod.is_owned_by(ds.uid) and not pod.deleting]
        change, deleted = by_name.get(ds.name), gone.get(ds.name)
        if deleted is not None and not deleted.orphan:
            told |= {pod.name: f"DaemonSet {ds.name} would be deleted" for pod in pods}
        elif deleted is None and change is not None and change.after is not None and (why := replaces(change)):
            told |= {pod.name: f"DaemonSet {ds.name} would get another template: {why}" for pod in pods}
    return dict(sorted(told.items()))


def replaces(change: Difference) -> str:
    """Say why pods would be replaced, node by node through the gates; nothing where their driver stays."""
    before, after = change.before or {}, change.after or {}
    templates = [one.get("spec", {}).get("template", {}) for one in (before, after)]
    if contains(templates[0], templates[1]):
        return ""
    views = [daemonset_view(msgspec.json.encode({**one, "status": {}})) for one in (before, after)]
    if views[0].config_digest and views[0].config_digest == views[1].config_digest and views[0].pod_digest == views[1].pod_digest:
        return ""  # labels and annotations alone: pods take them when they are next replaced
    return ", ".join(path for path in change.fields if path.startswith("spec.template"))


def _stuck(picture: Picture) -> Iterator[Stuck]:
    for report in node_reports(picture.plan, picture.snapshot, picture.drivers):
        if report.group in (Group.FAILED, Group.HELD, Group.NOT_READY, Group.STOPPED) or _is_stuck(report):
            remedies = explained(picture, report.node).remedies
            helps = tuple(f"{one.do} -> {one.then}" for one in remedies)
            yield Stuck(report.node, report.state, report.reason, report.message, helps)


def _is_stuck(report: NodeReport) -> bool:
    return report.group is Group.UNDER_WAY and bool(report.reason) and Reason(report.reason).needs_person
