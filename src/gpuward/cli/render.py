"""`gpuward render`: every object that gpuward would write, without a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpuward.cli.manifests import (
    Object,
    cluster_of,
    left_to_nobody,
    manifest,
    not_in_force,
    operator_images,
    policy_views,
    read_objects,
    without_objects,
)
from gpuward.cli.misspelt import warn_of
from gpuward.cli.terminal import say
from gpuward.errors import InputError
from gpuward.report.paper import Node, Written, play


def render_policies(policies: Sequence[str], nodes: Sequence[str], namespace: str, folder: Path | None) -> None:
    """Print the objects, or write each to a file of a folder; exit with 1 where some cannot be made."""
    objects = read_objects("--policy", policies)
    others = read_objects("--nodes", nodes)
    if nodes and not any(obj["kind"] == "Node" for obj in others):
        raise InputError("--nodes", ", ".join(nodes), "name a file with Nodes in it, as `kubectl get nodes -o yaml` prints them")
    given = policy_views("--policy", objects, policies)
    warn_of(objects)
    snapshot = cluster_of(namespace, [*objects, *others], given)
    written = play(snapshot, operator_images(), time.time())
    made = list(objects_of(written))
    if folder is None:
        for obj in made:
            click.echo(manifest(obj), nl=False)
    else:
        _save(folder, made)
    if hint := without_objects(given) or left_to_nobody(snapshot):
        say(hint, err=True)
    for line in (*not_in_force(snapshot), *written.problems):
        say(line, err=True)
    if written.problems:
        sys.exit(1)


def objects_of(written: Written) -> Iterator[Object]:
    """Yield the objects as they would be stored, in their order, and at last the labels that nodes would have."""
    if written.place:
        meta = {"name": written.snapshot.namespace, "labels": dict(written.place)}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    yield from (dict(action.body) for action in written.objects)
    yield from map(_node, written.nodes)


def _node(node: Node) -> Object:
    fields = {"labels": node.labels, "annotations": node.annotations}
    kept = {field: {key: value for key, value in sorted(values.items()) if value is not None} for field, values in fields.items()}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.name, **{field: values for field, values in kept.items() if values}}}


def _save(folder: Path, objects: Sequence[Object]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, obj in enumerate(objects, 1):
            file = folder / f"{number:03d}-{obj['kind'].lower()}-{obj['metadata']['name']}.yaml"
            file.write_text(manifest(obj), encoding="utf-8")
    except OSError as error:
        raise InputError("--output", str(folder), f"name a folder that can be written to: {error.strerror}") from error
    say(f"{len(objects)} objects are in {folder}")
