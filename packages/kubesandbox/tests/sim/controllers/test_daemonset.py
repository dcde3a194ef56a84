from __future__ import annotations

from kubesandbox.builders import linux_node
from kubesandbox.sim.controllers.revisions import REVISION_HASH, REVISIONS, revisions_of
from kubesandbox.sim.faults import Fault, FaultKind
from kubesandbox.sim.objects import Object, is_terminating, labels_of, name_of
from kubesandbox.sim.world import Delays
from sandbox_helpers.cluster import AGENTS, Cluster, all_ready, daemonset, play, rolling

AGENT = "agent"
SETS = "daemonsets.apps"


def set_image(cluster: Cluster, image: str) -> None:
    cluster.change("DaemonSet", AGENTS, AGENT,
                   lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image=image))


def status(cluster: Cluster) -> Object:
    found: Object = cluster.store.get(SETS, AGENTS, AGENT)["status"]
    return found


def image_of(pod: Object) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def test_a_pod_runs_on_every_node_and_the_status_counts_them() -> None:
    async def story() -> None:
        cluster = Cluster(*(linux_node(f"cpu-{number}") for number in range(3)))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 3 and all_ready(cluster.pods(AGENT)))
        await cluster.rest(1)
        told = status(cluster)
        assert {key: told[key] for key in (
            "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable",
            "updatedNumberScheduled", "numberMisscheduled", "observedGeneration")} == {
            "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 3, "numberAvailable": 3,
            "updatedNumberScheduled": 3, "numberMisscheduled": 0, "observedGeneration": 1}
        assert sorted(pod["spec"]["nodeName"] for pod in cluster.pods(AGENT)) == ["cpu-0", "cpu-1", "cpu-2"]

    play(story)


def test_a_new_node_gets_a_pod_and_a_label_decides() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset(AGENT, nodeSelector={"example.com/deploy": "true"}))
        await cluster.rest(5)
        assert not cluster.pods(AGENT)
        cluster.store.modify("nodes", None, "cpu-1", lambda node: node["metadata"]["labels"].update(
            {"example.com/deploy": "true"}))
        await cluster.until(lambda: all_ready(cluster.pods(AGENT)))
        cluster.store.modify("nodes", None, "cpu-1", lambda node: node["metadata"]["labels"].update(
            {"example.com/deploy": "paused"}))
        await cluster.until(lambda: not cluster.pods(AGENT), within=10)
        assert status(cluster)["desiredNumberScheduled"] == 0

    play(story)


def test_daemon_pods_run_on_a_cordoned_node_and_other_taints_keep_them_off() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"))
        cluster.cordon("cpu-1")
        cluster.store.modify("nodes", None, "cpu-2", lambda node: node["spec"].update(
            taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: all_ready(cluster.pods(AGENT)))
        await cluster.rest(5)
        assert [pod["spec"]["nodeName"] for pod in cluster.pods(AGENT)] == ["cpu-1"]

    play(story)


def test_on_delete_replaces_a_pod_only_after_it_is_gone() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"), delays=Delays(termination_seconds=5))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 2 and all_ready(cluster.pods(AGENT)))
        set_image(cluster, "registry.example/agent:2")
        await cluster.rest(30)
        assert {image_of(pod) for pod in cluster.pods(AGENT)} == {"registry.example/agent:1"}
        assert status(cluster)["observedGeneration"] == 2
        assert status(cluster).get("updatedNumberScheduled", 0) == 0

        first = cluster.pod(AGENT, "cpu-1")
        cluster.delete(first)
        await cluster.rest(4)
        assert [name_of(pod) for pod in cluster.pods(AGENT, "cpu-1")] == [name_of(first)]
        await cluster.until(lambda: name_of(first) not in map(name_of, cluster.pods(AGENT)), within=3)
        await cluster.until(lambda: all_ready(cluster.pods(AGENT, "cpu-1")))
        assert image_of(cluster.pod(AGENT, "cpu-1")) == "registry.example/agent:2"
        assert image_of(cluster.pod(AGENT, "cpu-2")) == "registry.example/agent:1"
        await cluster.rest(1)
        assert status(cluster)["updatedNumberScheduled"] == 1

    play(story)


def test_a_rolling_update_never_takes_more_than_max_unavailable() -> None:
    async def story() -> None:
        cluster = Cluster(*(linux_node(f"cpu-{number}") for number in range(6)))
        cluster.add(daemonset(AGENT, strategy=rolling(2)))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 6 and all_ready(cluster.pods(AGENT)))
        fewest = 6

        def watch(_event: object) -> None:
            nonlocal fewest
            whole = [pod for pod in cluster.pods(AGENT) if all_ready([pod])]
            fewest = min(fewest, len(whole))

        cluster.store.subscribe(watch, "pods")
        set_image(cluster, "registry.example/agent:2")
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 6 and all_ready(cluster.pods(AGENT)) and {
            image_of(pod) for pod in cluster.pods(AGENT)} == {"registry.example/agent:2"})
        assert fewest == 4

    play(story)


def test_a_rolling_update_replaces_unavailable_old_pods_first_and_stops_at_a_broken_new_one() -> None:
    async def story() -> None:
        cluster = Cluster(*(linux_node(f"cpu-{number}") for number in range(3)))
        cluster.add(daemonset(AGENT, strategy=rolling(1)))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 3 and all_ready(cluster.pods(AGENT)))
        cluster.sim.faults.add(Fault(FaultKind.IMAGE_PULL, image="*:broken"))
        set_image(cluster, "registry.example/agent:broken")
        await cluster.rest(120)
        assert sum(all_ready([pod]) for pod in cluster.pods(AGENT)) == 2
        stuck = next(pod for pod in cluster.pods(AGENT) if not all_ready([pod]))
        assert stuck["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        set_image(cluster, "registry.example/agent:3")
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 3 and all_ready(cluster.pods(AGENT)) and {
            image_of(pod) for pod in cluster.pods(AGENT)} == {"registry.example/agent:3"})

    play(story)


def test_revisions_are_named_by_the_template_and_a_template_that_returns_gets_its_old_one() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset(AGENT))
        await cluster.rest(1)
        owner = cluster.store.get(SETS, AGENTS, AGENT)
        first = revisions_of(cluster.store, owner)
        assert [revision["revision"] for revision in first] == [1]
        digest = labels_of(first[0])[REVISION_HASH]
        assert name_of(first[0]) == f"{AGENT}-{digest}"
        assert labels_of(cluster.pod(AGENT))[REVISION_HASH] == digest

        cluster.change("DaemonSet", AGENTS, AGENT, lambda obj: obj["spec"].update(updateStrategy=rolling(1)))
        await cluster.rest(1)
        assert len(revisions_of(cluster.store, owner)) == 1
        set_image(cluster, "registry.example/agent:2")
        await cluster.rest(1)
        assert [revision["revision"] for revision in revisions_of(cluster.store, owner)] == [1, 2]
        set_image(cluster, "registry.example/agent:1")
        await cluster.rest(1)
        known = revisions_of(cluster.store, owner)
        assert [revision["revision"] for revision in known] == [2, 3]
        assert labels_of(known[-1])[REVISION_HASH] == digest

    play(story)


def test_a_taken_revision_name_costs_a_collision_and_no_history_beyond_the_limit_is_kept() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset(AGENT))
        await cluster.rest(1)
        revision = revisions_of(cluster.store, cluster.store.get(SETS, AGENTS, AGENT))[0]
        cluster.store.delete(SETS, AGENTS, AGENT)
        await cluster.until(lambda: not cluster.store.list(REVISIONS))
        cluster.store.create(REVISIONS, {"metadata": {"name": name_of(revision), "namespace": AGENTS},
                                         "data": {"spec": {}}, "revision": 1})
        cluster.add(daemonset(AGENT))
        await cluster.rest(1)
        assert status(cluster)["collisionCount"] == 1
        cluster.change("DaemonSet", AGENTS, AGENT, lambda obj: obj["spec"].update(revisionHistoryLimit=2))
        for number in range(2, 7):
            set_image(cluster, f"registry.example/agent:{number}")
            await cluster.rest(1)
        owner = cluster.store.get(SETS, AGENTS, AGENT)
        assert len(revisions_of(cluster.store, owner)) <= 4

    play(story)


def test_orphaned_pods_are_adopted() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: all_ready(cluster.pods(AGENT)))
        before = cluster.pod(AGENT)
        cluster.store.delete(SETS, AGENTS, AGENT, propagation="Orphan")
        await cluster.until(lambda: "ownerReferences" not in cluster.pod(AGENT)["metadata"])
        assert cluster.store.find(SETS, AGENTS, AGENT) is None
        cluster.add(daemonset(AGENT))
        await cluster.rest(5)
        after = cluster.pod(AGENT)
        assert name_of(after) == name_of(before)
        assert after["metadata"]["ownerReferences"][0]["uid"] == cluster.store.get(SETS, AGENTS, AGENT)["metadata"]["uid"]

    play(story)


def test_the_pods_of_a_deleted_daemonset_go() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 2 and all_ready(cluster.pods(AGENT)))
        cluster.store.delete(SETS, AGENTS, AGENT, propagation="Background")
        await cluster.rest(0.5)
        assert all(is_terminating(pod) for pod in cluster.pods(AGENT))
        await cluster.until(lambda: not cluster.pods(AGENT), within=5)
        assert not cluster.store.list(REVISIONS)

    play(story)


def test_a_failed_daemon_pod_is_replaced_at_first_at_once_and_then_with_growing_delays() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset(AGENT))
        gone_after = []
        for _ in range(3):
            await cluster.until(lambda: all_ready(cluster.pods(AGENT)))
            pod, began = cluster.pod(AGENT), cluster.now
            cluster.store.patch_status("pods", AGENTS, name_of(pod), lambda obj: obj["status"].update(phase="Failed"))
            while cluster.store.find("pods", AGENTS, name_of(pod)):
                await cluster.rest(0.25)
            gone_after.append(cluster.now - began)
        # A second failure within its delay waits for it; here each pod took longer to start than the first delay.
        assert gone_after[0] == 0.25
        assert gone_after[2] > gone_after[0]

    play(story)


def test_a_node_that_comes_back_after_its_pods_were_removed_gets_new_ones() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"), linux_node("cpu-2"))
        cluster.add(daemonset(AGENT))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 2 and all_ready(cluster.pods(AGENT)))
        cluster.store.delete("nodes", None, "cpu-2")
        await cluster.rest(400)
        assert len(cluster.pods(AGENT)) == 1
        cluster.add(linux_node("cpu-2"))
        await cluster.until(lambda: len(cluster.pods(AGENT)) == 2 and all_ready(cluster.pods(AGENT)), within=60)

    play(story)
