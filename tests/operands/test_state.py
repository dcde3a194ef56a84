"""Owner, reference and hash of rendered objects."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from gpuward.operands import ObjectRef, applied_hash, ref_of, with_applied_hash, with_owner
from gpuward.operands.objects import Json

OBJECT: Json = {
    "apiVersion": "apps/v1", "kind": "DaemonSet",
    "metadata": {"name": "d", "namespace": "n", "annotations": {"a": "1"}, "labels": {"x": "1", "y": "2"}},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "args": ["1", "2"]}]}}},
}


def test_ref() -> None:
    assert ref_of(OBJECT) == ObjectRef("apps/v1", "DaemonSet", "n", "d")
    cluster_wide = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "k"}}
    assert str(ref_of(cluster_wide)) == "K k"
    assert str(ref_of(OBJECT)) == "DaemonSet n/d"


def test_owner_is_the_policy() -> None:
    before = deepcopy(OBJECT)
    owned = with_owner(OBJECT, "cluster-policy", "uid-1")
    assert owned["metadata"]["ownerReferences"] == [{
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": "uid-1",
        "controller": True, "blockOwnerDeletion": True,
    }]
    assert before == OBJECT, "the rendered object is not touched"


def test_one_custom_resource_controls_an_object_and_others_may_own_it_too() -> None:
    other = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "name": "b", "uid": "uid-b"}
    shared = {**OBJECT, "metadata": {**OBJECT["metadata"], "ownerReferences": [other]}}
    first, second = with_owner(shared, "a", "uid-a", "NVIDIADriver")["metadata"]["ownerReferences"]
    assert (first["apiVersion"], first["name"], first["controller"]) == ("nvidia.com/v1alpha1", "a", True)
    assert second == other


def test_hash_is_the_same_in_every_process() -> None:
    assert applied_hash(OBJECT) == "63618ba474c7526d"


def test_hash_does_not_depend_on_key_order_or_itself() -> None:
    reordered = dict(reversed(OBJECT.items())) | {"metadata": dict(reversed(OBJECT["metadata"].items()))}
    assert applied_hash(reordered) == applied_hash(OBJECT)
    hashed = with_applied_hash(OBJECT)
    assert hashed["metadata"]["annotations"] == {"a": "1", "nvidia.com/last-applied-hash": applied_hash(OBJECT)}
    assert applied_hash(hashed) == applied_hash(OBJECT)
    assert with_applied_hash(hashed) == hashed


def test_hash_of_an_object_without_annotations() -> None:
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}}
    assert applied_hash(with_applied_hash(bare)) == applied_hash(bare)


@pytest.mark.parametrize("path", [("metadata", "name"), ("metadata", "labels", "x"), ("metadata", "annotations", "a"), ("kind",)])
def test_hash_sees_every_change(path: tuple[str, ...]) -> None:
    changed = deepcopy(OBJECT)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = "other"
    assert applied_hash(changed) != applied_hash(OBJECT)


def test_hash_sees_order_and_owner() -> None:
    reordered = deepcopy(OBJECT)
    reordered["spec"]["template"]["spec"]["containers"][0]["args"].reverse()
    assert applied_hash(reordered) != applied_hash(OBJECT)
    assert applied_hash(with_owner(OBJECT, "p", "1")) != applied_hash(with_owner(OBJECT, "p", "2"))


@pytest.mark.parametrize(("image", "default"), [
    ("nvcr.io/nvidia/gpu-operator:v26.7.1", "IfNotPresent"), ("registry:5000/gpu-operator@sha256:ab", "IfNotPresent"),
    ("registry:5000/gpu-operator", "Always"), ("registry:5000/gpu-operator:latest", "Always"), ("gpu-operator", "Always"),
])
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_hash_takes_no_pull_policy_for_the_one_that_the_api_server_chooses(containers: str, image: str, default: str) -> None:
    def hash_of(**more: str) -> str:
        changed = deepcopy(OBJECT)
        changed["spec"]["template"]["spec"][containers] = [{"name": "c", "image": image, **more}]
        return applied_hash(changed)

    assert {policy: hash_of(imagePullPolicy=policy) == hash_of() for policy in ("Always", "IfNotPresent", "Never")} == {
        "Always": default == "Always", "IfNotPresent": default == "IfNotPresent", "Never": False}
