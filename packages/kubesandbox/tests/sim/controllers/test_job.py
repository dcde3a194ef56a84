from __future__ import annotations

import pytest

from kubesandbox.builders import linux_node
from kubesandbox.sim.objects import Object, is_true, uid_of
from kubesandbox.sim.programs import EXIT_CODE, RUN_SECONDS
from sandbox_helpers.cluster import Cluster, all_ready, play

JOBS = "jobs.batch"


def job(completions: int, seconds: int, code: int = 0, **spec: object) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "ml"}, "spec": {
        "completions": completions, "parallelism": 2, "backoffLimit": 2, **spec, "template": {
            "metadata": {"labels": {"app": "train"}, "annotations": {RUN_SECONDS: str(seconds), EXIT_CODE: str(code)}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}]}}}}


def test_a_job_ends_with_its_completions() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(job(3, seconds=10))
        await cluster.rest(5)
        assert cluster.store.get(JOBS, "ml", "train")["status"]["active"] == 2
        await cluster.until(lambda: is_true(cluster.store.get(JOBS, "ml", "train"), "Complete"), within=60)
        told = cluster.store.get(JOBS, "ml", "train")["status"]
        assert told["succeeded"] == 3
        assert "completionTime" in told
        assert not told.get("active")

    play(story)


def test_a_job_gives_up_after_its_backoff_limit() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(job(1, seconds=1, code=1))
        await cluster.until(lambda: is_true(cluster.store.get(JOBS, "ml", "train"), "Failed"), within=300)
        assert cluster.store.get(JOBS, "ml", "train")["status"]["failed"] == 3

    play(story)


@pytest.mark.parametrize("lost", [1, 2])
def test_an_evicted_pod_of_a_job_counts_as_failed_and_is_replaced(lost: int) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(job(2, seconds=60))
        await cluster.until(lambda: len(cluster.pods("train")) == 2 and all_ready(cluster.pods("train")))
        for pod in cluster.pods("train")[:lost]:
            cluster.delete(pod)
        gone = {uid_of(pod) for pod in cluster.pods("train")[:lost]}
        await cluster.until(lambda: is_true(cluster.store.get(JOBS, "ml", "train"), "Complete"), within=300)
        assert cluster.store.get(JOBS, "ml", "train")["status"]["failed"] == lost
        assert not gone & {uid_of(pod) for pod in cluster.pods("train")}

    play(story)


def test_an_indexed_job_replaces_a_lost_pod_by_one_with_its_index() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(job(4, seconds=30, completionMode="Indexed"))
        await cluster.until(lambda: len(cluster.pods("train")) == 2 and all_ready(cluster.pods("train")))
        first = next(pod for pod in cluster.pods("train") if pod["spec"]["hostname"] == "train-0")
        cluster.delete(first)
        await cluster.until(lambda: cluster.store.get(JOBS, "ml", "train")["status"].get("completedIndexes") == "1", within=60)
        await cluster.until(lambda: is_true(cluster.store.get(JOBS, "ml", "train"), "Complete"), within=300)
        told = cluster.store.get(JOBS, "ml", "train")["status"]
        assert (told["completedIndexes"], told["succeeded"], told["failed"]) == ("0-3", 4, 1)

    play(story)
