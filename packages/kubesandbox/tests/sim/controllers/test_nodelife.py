from __future__ import annotations

import pytest

from kubesandbox.builders import deployment, linux_node
from kubesandbox.sim.objects import Object, condition, is_ready, is_terminating
from sandbox_helpers.cluster import Cluster, all_ready, daemonset, play


def taints(cluster: Cluster, node: str) -> set[tuple[str, str]]:
    return {(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"])
            for taint in cluster.node(node)["spec"].get("taints") or ()}


async def cluster_with_pods() -> Cluster:
    cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"))
    cluster.add(daemonset("agent"), deployment("web", "ml", 4, {"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "main", "image": "i:1"}]}}))
    await cluster.until(lambda: len(cluster.pods()) == 6 and all_ready(cluster.pods()))
    return cluster


def test_a_cordon_is_a_taint() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.cordon("cpu-1")
        await cluster.rest(1)
        assert taints(cluster, "cpu-1") == {("unschedulable", "NoSchedule")}
        cluster.cordon("cpu-1", False)
        await cluster.rest(1)
        assert not taints(cluster, "cpu-1")

    play(story)


def test_a_silent_node_becomes_unknown_and_its_pods_leave_after_five_minutes_daemons_stay() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        cluster.sim.disconnect("cpu-1")
        await cluster.rest(45)
        assert is_ready(cluster.node("cpu-1"))
        await cluster.rest(10)
        ready = condition(cluster.node("cpu-1"), "Ready")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert taints(cluster, "cpu-1") == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        assert not any(is_ready(pod) for pod in cluster.pods(node="cpu-1"))
        await cluster.rest(280)
        assert not any(is_terminating(pod) for pod in cluster.pods())
        await cluster.rest(30)
        assert all(is_terminating(pod) for pod in cluster.pods("web", "cpu-1"))
        assert not is_terminating(cluster.pod("agent", "cpu-1"))
        assert len(cluster.pods("web", "cpu-2")) == 4
        cluster.sim.reconnect("cpu-1")
        await cluster.until(lambda: not cluster.pods("web", "cpu-1") and not taints(cluster, "cpu-1"), within=10)
        await cluster.until(lambda: is_ready(cluster.pod("agent", "cpu-1")), within=10)

    play(story)


def test_a_node_that_reports_not_ready_is_tainted_until_it_is_ready() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        cluster.sim.set_node_ready("cpu-1", False)
        await cluster.rest(1)
        assert taints(cluster, "cpu-1") == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
        cluster.sim.set_node_ready("cpu-1", True)
        await cluster.rest(1)
        assert not taints(cluster, "cpu-1")

    play(story)


@pytest.mark.parametrize("seconds", [None, 20])
def test_a_no_execute_taint_drives_pods_away_as_far_as_they_do_not_tolerate_it(seconds: int | None) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        patient: Object = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
        if seconds is not None:
            patient["tolerationSeconds"] = seconds
        for name, tolerations in (("hasty", []), ("patient", [patient])):
            cluster.add({"apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": name, "namespace": "ml", "labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "i:1"}], "tolerations": tolerations}})
        await cluster.until(lambda: len(cluster.pods()) == 2 and all_ready(cluster.pods()))
        cluster.store.modify("nodes", None, "cpu-1", lambda node: node["spec"].update(
            taints=[{"key": "maintenance", "effect": "NoExecute"}]))
        await cluster.rest(10)
        assert not cluster.pods("hasty")
        assert cluster.pods("patient")
        await cluster.rest(30)
        assert bool(cluster.pods("patient")) is (seconds is None)

    play(story)


def test_the_pods_of_a_node_that_is_gone_are_removed_and_replaced_elsewhere() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        cluster.store.delete("nodes", None, "cpu-1")
        await cluster.rest(30)
        assert cluster.pods(node="cpu-1")
        await cluster.rest(15)
        assert not cluster.pods(node="cpu-1")
        await cluster.until(lambda: len(cluster.pods("web", "cpu-2")) == 4 and all_ready(cluster.pods("web")), within=10)

    play(story)


def test_a_node_that_comes_back_under_its_name_starts_anew() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        cluster.store.delete("nodes", None, "cpu-1")
        await cluster.rest(60)
        cluster.add(linux_node("cpu-1"))
        await cluster.until(lambda: all_ready(cluster.pods("agent", "cpu-1")), within=10)

    play(story)


def test_the_pods_of_a_node_that_comes_and_goes_are_kept_for_the_whole_wait_each_time() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        cluster.store.delete("nodes", None, "cpu-1")
        await cluster.rest(30)
        cluster.add(linux_node("cpu-1"))
        await cluster.rest(5)
        cluster.store.delete("nodes", None, "cpu-1")
        await cluster.rest(35)
        assert cluster.pods(node="cpu-1")
        await cluster.rest(6)
        assert not cluster.pods(node="cpu-1")

    play(story)


def test_a_wait_that_falls_between_two_microseconds_ends() -> None:
    async def story() -> None:
        cluster = await cluster_with_pods()
        await cluster.rest(1 / 3 + 4e-7)
        cluster.store.delete("nodes", None, "cpu-1")
        await cluster.rest(41)
        assert not cluster.pods(node="cpu-1")

    play(story)
