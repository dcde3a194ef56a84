"""What gpuward would change in a cluster, object by object: read with GET alone."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from gpuward import errors, names
from gpuward.cli.look import Look
from gpuward.cli.manifests import Object, manifest, operator_images
from gpuward.execute.contains import WHOLE, contains
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.snapshot import References, Snapshot
from gpuward.model.views import Ref
from gpuward.operands.wanted import wanted_by
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.report.paper import Node, Written, play
from gpuward.wire.places import place_view

AT_ONCE: Final = 16
_UNSAID: Final = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
"""Metadata that the API server keeps."""
_READABLE: Final = {kind: gvr for (_, kind), gvr in resources.KINDS.items()}


class Difference(msgspec.Struct, frozen=True):
    """Hold one object as it is and as it would be; None where it is not there, or would not be."""

    kind: str
    ref: Ref
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """Return the object's kind and name."""
        return f"{self.kind} {self.ref}"

    @property
    def verb(self) -> str:
        """Say what would happen to it."""
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "change"

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the paths of the fields that differ."""
        return tuple(_paths(self.before or {}, self.after or {}))

    def lines(self) -> Iterator[str]:
        """Yield a unified diff."""
        before, after = ([] if one is None else manifest(_ordered(one)).splitlines()[1:] for one in (self.before, self.after))
        yield from difflib.unified_diff(before, after, f"LIVE/{self.name}", f"GPUWARD/{self.name}", lineterm="")


@asynccontextmanager
async def looked_at(client: Client, namespace: str) -> AsyncIterator[Look]:
    """Follow a cluster with read rights; yield what looks at it."""
    look = Look(client, namespace)
    async with look.following():
        yield look


async def with_references(client: Client, snapshot: Snapshot) -> Snapshot:
    """Return the facts with what policies refer to; Secrets are taken for there, as nobody needs to be let read them for this."""
    wanted = wanted_by(PolicyReader().read(snapshot))
    maps: dict[str, tuple[str, ...]] = {}
    for name in sorted(wanted.config_maps):
        if (found := await _got(client, "ConfigMap", snapshot.namespace, name)) is not None:
            maps[name] = tuple(sorted({**(found.get("data") or {}), **(found.get("binaryData") or {})}))
    monitors = await _got(client, "CustomResourceDefinition", "", str(resources.SERVICE_MONITORS)) is not None
    place = await _got(client, "Namespace", "", snapshot.namespace) if wanted.place else None
    return msgspec.structs.replace(
        snapshot, references=References(wanted.versions, monitors, maps, wanted.secrets),
        place=place_view(msgspec.json.encode(place)) if place is not None else None)


async def images_of(client: Client, namespace: str) -> dict[str, str]:
    """Return the images in the environment of the operator that runs in a namespace, or of the shipped one."""
    found = await _got(client, "Deployment", namespace, names.OPERATOR_NAME)
    spec = ((found or {}).get("spec") or {}).get("template", {}).get("spec", {})
    env = [one for container in spec.get("containers", ()) for one in container.get("env") or ()]
    return operator_images() | {one["name"]: one["value"] for one in env if one["name"].endswith("_IMAGE") and one.get("value")}


async def differences(client: Client, snapshot: Snapshot, images: Mapping[str, str], now: float
                      ) -> tuple[Written, list[Difference]]:
    """Return what gpuward would write, and how that differs from what there is."""
    written = play(snapshot, images, now)
    turns = asyncio.Semaphore(AT_ONCE)

    async def applied(body: Object) -> Difference | None:
        meta = body["metadata"]
        async with turns:
            live = await _got(client, body["kind"], meta.get("namespace", ""), meta["name"])
        return _applied(body, live)

    async def deleted(kind: str, ref: Ref) -> Difference | None:
        async with turns:
            live = await _got(client, kind, ref.namespace, ref.name)
        return Difference(kind, ref, _bare(live), None) if live is not None else None

    found = await asyncio.gather(*(applied(dict(action.body)) for action in written.objects),
                                 *(deleted(action.kind, action.ref) for action in written.deleted))
    nodes = (_node(node, snapshot) for node in written.nodes)
    place = _place(written, snapshot)
    return written, [one for one in (place, *found, *nodes) if one is not None]


async def _got(client: Client, kind: str, namespace: str, name: str) -> Object | None:
    """Return an object; None where it is not there, or may not be read."""
    try:
        return (await client.get(_READABLE[kind], name, namespace)).object()
    except (errors.NotFound, errors.Forbidden):
        return None


def _applied(body: Object, live: Object | None) -> Difference | None:
    meta = body["metadata"]
    ref = Ref(meta.get("namespace", ""), meta["name"])
    if live is None:
        return Difference(body["kind"], ref, None, body)
    if body["kind"] == "ServiceAccount" or contains(live, body):
        return None  # an account is made once, and then left alone
    before, after = _bare(live), _bare(overlaid(live, body))
    return Difference(body["kind"], ref, before, after) if before != after else None


def overlaid(live: Any, wanted: Any) -> Any:
    """Return what an object would be after its replacement, with what the API server adds to it as it has it now."""
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        said = {key: value for key, value in wanted.items() if key in live or not contains(None, value)}
        merged = {key: overlaid(live.get(key), value) for key, value in said.items()}
        kept = {key: value for key, value in live.items() if key not in wanted}
        return {**kept, **{key: dict(wanted[key]) if key in WHOLE and wanted[key] else value for key, value in merged.items()}}
    both = isinstance(live, list) and isinstance(wanted, Sequence) and not isinstance(wanted, str)
    if both and len(live) == len(wanted):
        return [overlaid(one, other) for one, other in zip(live, wanted, strict=True)]
    return live if contains(live, wanted) else wanted


def _bare(obj: Mapping[str, Any] | None) -> Object:
    found = {key: value for key, value in (obj or {}).items() if key != "status"}
    found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in _UNSAID}
    return found


def _node(node: Node, snapshot: Snapshot) -> Difference | None:
    before = snapshot.nodes[node.name]
    fields = (("labels", before.labels, node.labels), ("annotations", before.annotations, node.annotations))
    was = {field: {key: have[key] for key in sorted(change) if key in have} for field, have, change in fields}
    will = {field: {key: value for key, value in sorted(change.items()) if value is not None} for field, _, change in fields}
    if was == will:
        return None
    return Difference("Node", Ref("", node.name), _of_kind("Node", node.name, was), _of_kind("Node", node.name, will))


def _place(written: Written, snapshot: Snapshot) -> Difference | None:
    if not written.place or snapshot.place is None:
        return None
    name = snapshot.namespace
    was, will = ({"labels": dict(labels)} for labels in (snapshot.place.levels, {**snapshot.place.levels, **written.place}))
    return Difference("Namespace", Ref("", name), _of_kind("Namespace", name, was), _of_kind("Namespace", name, will))


def _of_kind(kind: str, name: str, fields: Mapping[str, Mapping[str, str]]) -> Object:
    meta = {"name": name, **{key: dict(value) for key, value in fields.items() if value}}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}


def _ordered(value: Any) -> Any:
    """Return an object with its keys in the order of the alphabet, as kubectl prints it: an order says nothing."""
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in value]
    return value


def _paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _paths(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _paths(one, other, f"{path}[{number}]")
    else:
        yield path
