"""Gangs: by what a pod says that it is one piece of work with others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.model.gangs import gang_of, of_compute_domain
from gpuward.model.views import Owner

INDEX = {"batch.kubernetes.io/job-completion-index": "3"}
JOB = {"batch.kubernetes.io/job-name": "train"}
REPLICA_SET = Owner("ReplicaSet", "web-5d", "u1")


@pytest.mark.parametrize(("labels", "annotations", "more", "gang"), [
    ({}, {}, {}, ""),
    ({"jobset.sigs.k8s.io/jobset-name": "llm"}, {}, {}, "JobSet ml/llm"),
    ({"jobset.sigs.k8s.io/jobset-name": "llm", **JOB, **INDEX}, INDEX, {}, "JobSet ml/llm"),
    ({"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "2"}, {}, {},
     "LeaderWorkerSet ml/serve-2"),
    ({"leaderworkerset.sigs.k8s.io/name": "serve"}, {}, {}, ""),
    ({"training.kubeflow.org/job-name": "ddp"}, {"scheduling.k8s.io/group-name": "other"}, {}, "Kubeflow job ml/ddp"),
    ({"kueue.x-k8s.io/pod-group-name": "nccl", "kueue.x-k8s.io/queue-name": "q"}, {}, {}, "pod group ml/nccl"),
    ({"kueue.x-k8s.io/pod-group-name": "web"}, {"kueue.x-k8s.io/pod-group-serving": "true"}, {}, ""),
    ({"kueue.x-k8s.io/queue-name": "q"}, {}, {}, ""),
    ({}, {"scheduling.k8s.io/group-name": "mpi"}, {}, "pod group ml/mpi"),
    ({}, {"scheduling.volcano.sh/group-name": "mpi"}, {}, "pod group ml/mpi"),
    ({}, {"scheduling.k8s.io/group-name": "podgroup-u1"}, {"owner": REPLICA_SET}, ""),
    ({}, {"scheduling.k8s.io/group-name": "podgroup-u2"}, {"owner": REPLICA_SET}, "pod group ml/podgroup-u2"),
    ({"scheduling.x-k8s.io/pod-group": "g"}, {}, {}, "pod group ml/g"),
    ({}, {}, {"pod_group": "workers"}, "pod group ml/workers"),
    ({**JOB, **INDEX}, {}, {}, "Job ml/train"),
    (JOB, INDEX, {}, "Job ml/train"),
    (JOB, {}, {}, ""),
    (INDEX, {}, {}, ""),
    ({}, {"scheduling.k8s.io/group-name": "no name\n" * 9}, {}, ""),
    ({}, {"scheduling.k8s.io/group-name": "x" * 254}, {}, ""),
    ({"scheduling.x-k8s.io/pod-group": "g"}, {"scheduling.k8s.io/group-name": "-"}, {}, "pod group ml/g"),
])
def test_which_gang_a_pod_is_of(labels: dict[str, str], annotations: dict[str, str], more: dict[str, Any], gang: str) -> None:
    assert gang_of("ml", labels, annotations, **more) == gang


def test_pods_of_one_name_in_two_namespaces_are_two_gangs() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm"}
    assert gang_of("a", labels, {}) != gang_of("b", labels, {})


@pytest.mark.parametrize(("uid", "gang"), [
    ("4f3c0f9e-8d1f-4a3a-9f5c-0c3b1f9f2a11", "ComputeDomain ml/4f3c0f9e-8d1f-4a3a-9f5c-0c3b1f9f2a11"), ("", ""), ("a/b", "")])
def test_pods_with_channels_of_one_compute_domain_are_a_gang(uid: str, gang: str) -> None:
    assert of_compute_domain("ml", uid) == gang
