from __future__ import annotations

from kubesandbox.builders import linux_node
from kubesandbox.sim.objects import Object
from sandbox_helpers.cluster import AGENTS, Cluster, daemonset, play

ACCOUNT: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "late", "namespace": AGENTS}}


def refusals(cluster: Cluster) -> list[Object]:
    return [event for event in cluster.store.list("events") if event["reason"] == "FailedCreate"]


def test_a_refusal_is_counted_ever_more_seldom_and_what_was_missing_wakes_nobody() -> None:
    async def story() -> None:
        cluster = Cluster(*(linux_node(f"cpu-{number}") for number in range(9)))
        cluster.add(daemonset("agent", serviceAccountName="late"))
        await cluster.rest(60)
        # One pod is tried each time, not one for each node: a batch in which something is refused is the last.
        (told,) = refusals(cluster)
        early = told["count"]
        assert 10 <= early <= 16
        await cluster.rest(3600)
        (told,) = refusals(cluster)
        assert early + 4 <= told["count"] <= early + 9
        cluster.add(ACCOUNT)
        await cluster.rest(2)
        assert not cluster.pods("agent")
        await cluster.until(lambda: len(cluster.pods("agent")) == 9, within=1001)

    play(story)


def test_a_change_of_the_object_is_tried_at_once() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset("agent", serviceAccountName="late"))
        await cluster.rest(3600)
        cluster.add(ACCOUNT)
        cluster.change("DaemonSet", AGENTS, "agent", lambda obj: obj["metadata"].update(labels={"look": "again"}))
        await cluster.until(lambda: cluster.pods("agent"), within=2)

    play(story)


def test_similar_refusals_share_an_event_after_ten() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        cluster.store.modify("namespaces", None, AGENTS, lambda obj: obj["metadata"]["labels"].update(labels))
        cluster.add(daemonset("agent", hostPID=True))
        await cluster.rest(3600)
        told = refusals(cluster)
        assert len(told) == 10
        assert sum(event["message"].startswith("(combined from similar events): ") for event in told) == 1

    play(story)
