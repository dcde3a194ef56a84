"""Give the GPU stack's DaemonSets in a captured cluster the templates that the operator makes of the captured policies.

Values that a capture leaves out would make the operator write other DaemonSets than those that are there. So DaemonSets that were
as their policies have them get the template that it makes; their newest revisions and the driver pods that were made of these go
with that. An earlier revision does so too where the rollout goes back to it: where the policies, once they are changed, make a
template that differs from today's in just what the captured revisions differ in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.kube.cluster import Cluster
from gpuward.kube.http.client import Client
from gpuward.model.snapshot import References
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.rehearse.captured import Captured, Manifest, Object
from gpuward.report.paper import play
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.sim.objects import controller_of
from kubesandbox.store import Store

PODS: Final = "pods"
DAEMON_SETS: Final = "daemonsets.apps"
REVISIONS: Final = "controllerrevisions.apps"

Change = Callable[[Sandbox], None]


async def align(sandbox: Sandbox, objects: Mapping[str, Sequence[Object]], captured: Captured, change: Change) -> None:
    """Align the objects that a sandbox was filled with; it is used up."""
    manifest = captured.manifest
    sets = [_Set(sandbox.store, objects, ds) for ds in objects.get(DAEMON_SETS, ())]
    for each in sets:
        each.name_revision()
    in_step = [each for each in sets if each.ds["metadata"]["namespace"] == manifest.namespace and each.name in manifest.in_step]
    now = await _written(sandbox, manifest)
    then: Mapping[str, Object] = {}
    if any(each.earlier for each in in_step):
        change(sandbox)
        then = await _written(sandbox, manifest)
    for each in in_step:
        if each.name in now and each.name in then:
            each.take_back(now[each.name], then[each.name])
        if each.name in now:
            each.take_over(now[each.name])
    await sandbox.stop()


async def _written(sandbox: Sandbox, manifest: Manifest) -> dict[str, Object]:
    """Return the DaemonSets that the operator would write."""
    cluster = Cluster(Client(sandbox.transport()), manifest.namespace, random=Random(0))
    async with asyncio.TaskGroup() as group:
        cluster.start(group)
        await cluster.synced()
        snapshot = cluster.observe()
        cluster.stop()
    read = PolicyReader().read(snapshot)
    views = [view for view in (read.policy.view, *(each.view for each in read.active)) if view is not None]
    references = References(frozenset((view.uid, view.generation) for view in views), False,
                            dict(manifest.config_maps), frozenset(manifest.secrets))
    written = play(msgspec.structs.replace(snapshot, references=references), manifest.images, manifest.at)
    every = (action for action in written.objects if action.kind == "DaemonSet")
    return {action.ref.name: msgspec.json.decode(msgspec.json.encode(action.body)) for action in every}


class _Set:
    """Hold a DaemonSet with its revisions as they were captured, and its pods."""

    def __init__(self, store: Store, objects: Mapping[str, Sequence[Object]], ds: Object) -> None:
        self.ds, self.name = ds, ds["metadata"]["name"]
        self._store, self._objects = store, objects
        uid = ds["metadata"]["uid"]
        own = [one for one in objects.get(REVISIONS, ()) if (controller_of(one) or {}).get("uid") == uid]
        self._revisions = sorted(own, key=lambda one: int(one["revision"]), reverse=True)
        self._templates = [one["data"]["spec"]["template"] for one in self._revisions]

    @property
    def earlier(self) -> bool:
        """Tell whether there are revisions besides the newest."""
        return len(self._revisions) > 1

    def name_revision(self) -> None:
        """Write the revision of the template as the sandbox writes that: without fields that have no value."""
        for revision, captured in zip(self._revisions, self._templates, strict=True):
            template = {key: value for key, value in captured.items() if key != "$patch"}
            if template == self.ds["spec"]["template"]:
                revision["data"] = _data(self._store.schema(DAEMON_SETS).decode(self.ds, []))

    def take_back(self, now: Object, then: Object) -> None:
        """Take for an earlier revision what the operator is going to write, where it differs from what it writes today in just
        what that revision differs in from the newest.
        """
        wanted = _difference(now["spec"]["template"], then["spec"]["template"])
        for revision, captured in zip(self._revisions[1:], self._templates[1:], strict=True):
            if wanted and _difference(self._templates[0], captured) == wanted:
                decoded = self._store.schema(DAEMON_SETS).decode(then, [])
                revision["data"] = _data(decoded)
                self._rename(_digest(captured), _digest(decoded["spec"]["template"]))
                return

    def take_over(self, made: Object) -> None:
        """Take what the operator writes for what is there."""
        before = _digest(self.ds["spec"]["template"])
        decoded = self._store.schema(DAEMON_SETS).decode(made, [])
        self.ds["spec"] = decoded["spec"]
        self.ds["metadata"].setdefault("annotations", {}).update(made["metadata"].get("annotations") or {})
        self.ds["metadata"].setdefault("labels", {}).update(made["metadata"].get("labels") or {})
        if self._revisions:
            self._revisions[0]["data"] = _data(decoded)
            self._rename(before, _digest(decoded["spec"]["template"]))

    def _rename(self, before: str, after: str) -> None:
        """Give the pods that have one driver's digest another one."""
        uid = self.ds["metadata"]["uid"]
        for pod in self._objects[PODS] if before != after else ():
            if (controller_of(pod) or {}).get("uid") == uid:
                _each_variable(pod["spec"], lambda one: one.update(value=after) if one.get("value") == before else None)


def _data(ds: Mapping[str, Any]) -> Object:
    return {"spec": {"template": {**ds["spec"]["template"], "$patch": "replace"}}}


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[tuple[str, ...], tuple[Any, Any]]:
    """Return what differs between two templates, but for the driver's digest, which covers values that a capture leaves out."""
    before, after = dict(_leaves(one)), dict(_leaves(other))
    return {path: (before.get(path), after.get(path)) for path in before.keys() | after.keys()
            if before.get(path) != after.get(path) and names.DRIVER_CONFIG_DIGEST not in path}


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value in a template with its path, in which items of a list go by their names, if they have some."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            name = each.get("name") if isinstance(each, Mapping) else None
            yield from _leaves(each, (*path, name or str(number)))
    else:
        yield path, value


def _digest(template: Mapping[str, Any]) -> str:
    found: list[str] = []
    _each_variable(template["spec"], lambda one: found.append(one.get("value") or ""))
    return next(filter(None, found), "")


def _each_variable(spec: Mapping[str, Any], use: Callable[[Object], object]) -> None:
    """Show every variable of a pod's containers that has the driver's digest."""
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            for one in container.get("env") or ():
                if one["name"] == names.DRIVER_CONFIG_DIGEST:
                    use(one)
