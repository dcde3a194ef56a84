"""What a capture keeps of pods: all by which the operator decides about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.cli.slimming import slim_owner, slim_pod
from gpuward.wire.pods import pod_view


def gang_of(pod: dict[str, Any]) -> str:
    return pod_view(msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod})).gang


@pytest.mark.parametrize(("meta", "spec"), [
    ({"labels": {names.JOBSET_NAME: "train"}}, {}),
    ({"annotations": {names.VOLCANO_POD_GROUPS[0]: "train"}}, {}),
    ({"annotations": {names.VOLCANO_POD_GROUPS[1]: "train"}}, {}),
    ({"labels": {names.JOB_NAME: "train"}, "annotations": {names.JOB_INDEX: "1"}}, {}),
    ({}, {"schedulingGroup": {"podGroupName": "train"}}),
])
def test_a_pod_is_of_the_same_gang_in_a_capture(meta: dict[str, Any], spec: dict[str, Any]) -> None:
    pod = {"metadata": {"name": "train-0", "namespace": "ml", "uid": "u", **meta}, "spec": {"containers": [], **spec}}
    assert gang_of(pod) != ""
    assert gang_of(slim_pod(pod)) == gang_of(pod)
    owner = slim_owner({"metadata": {"name": "train", "namespace": "ml", "uid": "o"}, "spec": {"template": pod}})
    template = owner["spec"]["template"]
    meta = {**template["metadata"], "name": "new", "namespace": "ml", "uid": "n"}
    assert gang_of({**template, "metadata": meta}) == gang_of(pod)


def test_what_serves_is_no_gang_in_a_capture_either() -> None:
    meta = {"labels": {names.KUEUE_POD_GROUP: "serve"}, "annotations": {names.KUEUE_SERVING: "true"}}
    pod = {"metadata": {"name": "serve-0", "namespace": "ml", "uid": "u", **meta}, "spec": {"containers": []}}
    assert gang_of(slim_pod(pod)) == gang_of(pod) == ""
