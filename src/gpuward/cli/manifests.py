"""Read manifests that a command is given, and print objects as manifests."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpuward import names
from gpuward.cli.inspection import rules_file
from gpuward.crd.generate import as_yaml
from gpuward.errors import InputError
from gpuward.model.place import PlaceView
from gpuward.model.snapshot import References, Snapshot
from gpuward.model.views import NodeView, PolicyView
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.wire.nodes import node_view
from gpuward.wire.policies import oldest_first, policy_view

Object = dict[str, Any]
POLICIES: Final = ("ClusterPolicy", "NVIDIADriver", "RolloutPolicy")
NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the uid that the API server gives a custom resource, where a file has none."""
ANY_NODE: Final[Object] = {
    "apiVersion": "v1", "kind": "Node",
    "metadata": {"name": "gpu-node", "uid": NO_UID, "labels": {
        "kubernetes.io/os": "linux", "kubernetes.io/hostname": "gpu-node", names.NFD_GPU_LABELS[0]: "true",
        names.NFD_OS_ID: "ubuntu", names.NFD_OS_VERSION: "22.04", names.NFD_KERNEL: "5.15.0-101-generic"}},
    "status": {"nodeInfo": {"kernelVersion": "5.15.0-101-generic", "containerRuntimeVersion": "containerd://2.1.4"},
               "conditions": [{"type": "Ready", "status": "True"}]},
}
"""What is taken for the cluster's nodes where no file has any."""


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # it depends on how PyYAML was built
    """Refuse a key that is there twice, as kubectl does: the first would be lost without a word. A date is a string, as there,
    and so is every key.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key, count in Counter(keys).items() if count > 1 and key != "<<"), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice!r} is there twice", node.start_mark)
        return {_as_text(key, node): value for key, value in super().construct_mapping(node, deep).items()}


def _as_text(key: object, node: yaml.MappingNode) -> str:
    """Return a key as kubectl reads it: true and numbers are text there, whatever YAML takes them for."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return json.dumps(key)
    raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is no text: write it in quotes", node.start_mark)


_Strict.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in _Strict.yaml_implicit_resolvers.items()}


def read_objects(option: str, files: Iterable[str]) -> list[Object]:
    """Return the objects of files, those of lists too; `-` is the standard input.

    Raises:
        InputError: a file cannot be read, or has something else in it.
    """
    return [obj for file in files for obj in _objects(option, file)]


def _objects(option: str, file: str) -> Iterator[Object]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, Loader=_Strict))
        json.dumps(documents, default=str, skipkeys=True)
    except OSError as error:
        raise InputError(option, file, f"name a file that can be read: {error.strerror}") from error
    # An alias of what it is in is a ValueError.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split()).replace('in "<unicode string>"', "in it")  # the file is named already
        raise InputError(option, file, f"write valid YAML: {told}") from error
    while documents:
        found = documents.pop(0)
        if found is None:
            continue
        if not isinstance(found, Mapping) or not isinstance(found.get("kind"), str):
            raise InputError(option, file, "write Kubernetes objects, each with its kind")
        if found["kind"].endswith("List") and isinstance(found.get("items"), list):
            documents[:0] = [{"kind": found["kind"].removesuffix("List") or None, **item} for item in found["items"]]
            continue
        if not isinstance(found.get("metadata"), Mapping) or not found["metadata"].get("name"):
            raise InputError(option, file, f"give the {found['kind']} in it a metadata.name")
        if not isinstance(name := found["metadata"]["name"], str):
            raise InputError(option, file, f"write metadata.name of the {found['kind']} in it in quotes: {name!r} is no text")
        yield dict(found)


def policy_views(option: str, objects: Iterable[Object], files: Sequence[str]) -> dict[str, tuple[PolicyView, ...]]:
    """Return the custom resources among the objects of files by kind, as they would be stored.

    Raises:
        InputError: there is none.
    """
    views: dict[str, list[PolicyView]] = {kind: [] for kind in POLICIES}
    for number, obj in enumerate(obj for obj in objects if obj["kind"] in POLICIES):
        uid = obj["metadata"].get("uid") or f"{NO_UID[:-4]}{number:04d}"
        meta = {"generation": 1, **obj["metadata"], "uid": uid}
        try:
            views[obj["kind"]].append(policy_view(msgspec.json.encode({**obj, "metadata": meta})))
        except msgspec.DecodeError as error:
            told = f"write {obj['kind']} {meta['name']} as the API server stores it: {error}"
            raise InputError(option, ", ".join(files), told) from error
    if not any(views.values()):
        raise InputError(option, ", ".join(files), "name a file with a ClusterPolicy, a RolloutPolicy or an NVIDIADriver in it")
    return {kind: oldest_first(found) for kind, found in views.items()}


def cluster_of(namespace: str, objects: Sequence[Object], policies: Mapping[str, tuple[PolicyView, ...]]) -> Snapshot:
    """Return a cluster in which nothing is but these policies and what else is among objects: nodes, ConfigMaps, Secrets."""
    nodes = [_node(obj) for obj in objects if obj["kind"] == "Node"] or [_node(ANY_NODE)]
    maps = {obj["metadata"]["name"]: tuple(sorted({**(obj.get("data") or {}), **(obj.get("binaryData") or {})}))
            for obj in objects if obj["kind"] == "ConfigMap"}
    secrets = frozenset(obj["metadata"]["name"] for obj in objects if obj["kind"] == "Secret")
    monitors = any(obj["kind"] == "CustomResourceDefinition" and obj["metadata"]["name"].startswith("servicemonitors.")
                   for obj in objects)
    views = [view for found in policies.values() for view in found]
    known = References(frozenset((view.uid, view.generation) for view in views), monitors, maps, secrets)
    return Snapshot(
        namespace, nodes={node.name: node for node in nodes}, policies=policies["ClusterPolicy"],
        drivers=policies["NVIDIADriver"], rollout_policies=policies["RolloutPolicy"], references=known, followed=frozenset(),
        place=PlaceView(namespace, NO_UID),
    )


def without_objects(policies: Mapping[str, tuple[PolicyView, ...]]) -> str:
    """Say where to look for what a RolloutPolicy does, if there is nothing else: no object is made from it."""
    if any(policies.get(kind) for kind in ("ClusterPolicy", "NVIDIADriver")) or not policies.get("RolloutPolicy"):
        return ""
    return ("a RolloutPolicy says how nodes are upgraded, and no object is made from it: `gpuward plan --policy FILE` shows what "
            "it does")


def left_to_nobody(snapshot: Snapshot) -> str:
    """Say that NVIDIADrivers are given and drivers are the ClusterPolicy's; else nothing."""
    read = PolicyReader().read(snapshot)
    if not snapshot.drivers or read.in_force or read.policy.valid is None:
        return ""
    return "drivers are the ClusterPolicy's: no NVIDIADriver counts until spec.driver.useNvidiaDriverCRD is true"


def not_in_force(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each policy that does not count beside an older one."""
    for kind, views in (("ClusterPolicy", snapshot.policies), ("RolloutPolicy", snapshot.rollout_policies)):
        living = [view for view in views if not view.deleting]
        yield from (f"{kind} {view.name} is not in force: {living[0].name} is older, and one counts" for view in living[1:])


def _node(obj: Object) -> NodeView:
    meta = {"uid": NO_UID, **obj["metadata"]}
    try:
        return node_view(msgspec.json.encode({**obj, "metadata": meta}))
    except msgspec.DecodeError as error:
        raise InputError("--nodes", obj["metadata"]["name"], f"write a Node as the API server stores it: {error}") from error


def operator_images() -> dict[str, str]:
    """Return the images that the operator's environment has: those that are shipped, and those of this process."""
    shipped_objects = yaml.load_all(rules_file().read_text(encoding="utf-8"), _Strict)
    deployment = next(one for one in shipped_objects if one["kind"] == "Deployment")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    shipped = {one["name"]: one["value"] for one in env if one["name"].endswith("_IMAGE")}
    return shipped | {key: value for key, value in os.environ.items() if key.endswith("_IMAGE")}


def manifest(*objects: Mapping[str, Any]) -> str:
    """Return objects as YAML documents."""
    return as_yaml(*(dict(obj) for obj in objects))
