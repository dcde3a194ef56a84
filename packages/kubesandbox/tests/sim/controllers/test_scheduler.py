from __future__ import annotations

import pytest

from kubesandbox.builders import linux_node
from kubesandbox.sim.objects import Object, condition, name_of, node_of
from sandbox_helpers.cluster import AGENTS, Cluster, all_ready, daemonset, device_node, device_pod, play


def plain(name: str, **spec: object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "i:1"}], **spec}}


def place(cluster: Cluster, name: str) -> str:
    return node_of(cluster.store.get("pods", "ml", name))


def refusal(cluster: Cluster, name: str) -> str:
    found = condition(cluster.store.get("pods", "ml", name), "PodScheduled")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    message: str = found["message"]
    return message


def affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(("spec", "goes_to"), [
    ({"nodeSelector": {"kubernetes.io/hostname": "cpu-2"}}, "cpu-2"),
    ({"affinity": affinity({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["cpu-1", "cpu-3"]}]})}, "cpu-2"),
    ({"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu-3"]}]})}, "cpu-3"),
    ({"nodeSelector": {"zone": "x"}}, ""),
    ({"schedulerName": "another"}, ""),
])
def test_selectors_and_affinity_decide_where_a_pod_goes(spec: Object, goes_to: str) -> None:
    async def story() -> None:
        cluster = Cluster(*(linux_node(f"cpu-{number}") for number in (1, 2, 3)))
        cluster.add(plain("p", **spec))
        await cluster.rest(2)
        assert place(cluster, "p") == goes_to

    play(story)


def test_a_cordon_keeps_new_pods_off_and_the_reason_names_every_node() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"))
        cluster.cordon("cpu-1")
        cluster.store.modify("nodes", None, "cpu-2", lambda node: node["spec"].update(
            taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]))
        cluster.add(plain("p"))
        await cluster.rest(2)
        assert refusal(cluster, "p") == (
            "0/2 nodes are available: 1 node(s) had untolerated taint {team: a}, 1 node(s) were unschedulable.")
        cluster.cordon("cpu-1", False)
        await cluster.until(lambda: place(cluster, "p") == "cpu-1", within=2)

    play(story)


def test_devices_are_given_once_and_a_waiting_pod_gets_them_when_they_are_free_again() -> None:
    async def story() -> None:
        cluster = Cluster(device_node("dev-1", 2), linux_node("cpu-1"))
        cluster.add(device_pod("first"), device_pod("second"), device_pod("third"))
        await cluster.rest(3)
        waiting = [name for name in ("first", "second", "third") if not place(cluster, name)]
        assert len(waiting) == 1
        assert refusal(cluster, waiting[0]) == "0/2 nodes are available: 2 Insufficient example.com/device."
        running = next(name for name in ("first", "second", "third") if place(cluster, name))
        cluster.delete(cluster.store.get("pods", "ml", running))
        await cluster.rest(1)
        assert not place(cluster, waiting[0])
        await cluster.until(lambda: place(cluster, waiting[0]) == "dev-1", within=3)

    play(story)


def test_pods_spread_over_the_least_loaded_nodes() -> None:
    async def story() -> None:
        cluster = Cluster(*(device_node(f"dev-{number}", 4) for number in range(4)))
        cluster.add(*(device_pod(f"p-{number}") for number in range(12)))
        await cluster.rest(3)
        places = [place(cluster, f"p-{number}") for number in range(12)]
        assert sorted(places.count(f"dev-{number}") for number in range(4)) == [3, 3, 3, 3]

    play(story)


def test_the_number_of_pods_on_a_node_is_bounded() -> None:
    async def story() -> None:
        node = linux_node("cpu-1")
        node["status"]["allocatable"]["pods"] = "2"
        cluster = Cluster(node)
        cluster.add(*(plain(f"p-{number}") for number in range(3)))
        await cluster.rest(2)
        waiting = [number for number in range(3) if not place(cluster, f"p-{number}")]
        assert len(waiting) == 1
        assert refusal(cluster, f"p-{waiting[0]}") == "0/1 nodes are available: 1 Too many pods."

    play(story)


def test_two_daemonsets_keep_each_other_off_a_node() -> None:
    async def story() -> None:
        rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["old", "new"]}]}}]}}
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset("old", affinity=rule))
        await cluster.until(lambda: all_ready(cluster.pods("old")))
        cluster.add(daemonset("new", affinity=rule))
        await cluster.rest(5)
        assert node_of(cluster.pod("new")) == ""
        cluster.store.delete("daemonsets.apps", AGENTS, "old")
        await cluster.until(lambda: all_ready(cluster.pods("new")), within=10)

    play(story)


def test_a_node_that_comes_later_takes_the_pods_that_wait() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.add(*(device_pod(f"p-{number}") for number in range(5)))
        await cluster.rest(2)
        assert all(not place(cluster, f"p-{number}") for number in range(5))
        cluster.add(device_node("dev-1", 3))
        await cluster.rest(2)
        assert sum(bool(place(cluster, f"p-{number}")) for number in range(5)) == 3
        cluster.store.patch_status("nodes", None, "dev-1", lambda node: node["status"]["allocatable"].update(
            {"example.com/device": "8"}))
        await cluster.rest(2)
        assert sorted(name_of(pod) for pod in cluster.pods(node="dev-1")) == [f"p-{number}" for number in range(5)]

    play(story)
