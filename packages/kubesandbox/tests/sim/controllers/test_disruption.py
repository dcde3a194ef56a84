from __future__ import annotations

import pytest

from kubesandbox.builders import deployment, linux_node
from kubesandbox.sim.objects import Object, condition, name_of
from kubesandbox.store import timestamp
from sandbox_helpers.cluster import Cluster, all_ready, daemonset, play

BUDGETS = "poddisruptionbudgets.policy"


def web(replicas: int) -> Object:
    return deployment("web", "ml", replicas, {"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "main", "image": "i:1"}]}})


def budget(rule: Object, app: str = "web", namespace: str = "ml") -> Object:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard", "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}, **rule}}


def status(cluster: Cluster, namespace: str = "ml") -> Object:
    found: Object = cluster.store.get(BUDGETS, namespace, "guard")["status"]
    return found


@pytest.mark.parametrize(("rule", "desired", "allowed"), [
    ({"maxUnavailable": 1}, 9, 1), ({"maxUnavailable": "25%"}, 7, 3), ({"minAvailable": 8}, 8, 2),
    ({"minAvailable": "85%"}, 9, 1), ({"minAvailable": "100%"}, 10, 0), ({"maxUnavailable": 0}, 10, 0),
    ({"minAvailable": 12}, 12, 0)])
def test_the_allowance_follows_the_rule(rule: dict[str, int | str], desired: int, allowed: int) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(10), budget(rule))
        await cluster.until(lambda: len(cluster.pods("web")) == 10 and all_ready(cluster.pods("web")))
        await cluster.rest(1)
        told = status(cluster)
        assert (told["expectedPods"], told["currentHealthy"], told["desiredHealthy"], told["disruptionsAllowed"]) == (
            10, 10, desired, allowed)
        verdict = condition(cluster.store.get(BUDGETS, "ml", "guard"), "DisruptionAllowed")
        assert verdict is not None
        assert verdict["reason"] == ("SufficientPods" if allowed else "InsufficientPods")

    play(story)


def test_a_pod_on_its_way_out_is_not_healthy_and_its_replacement_counts_when_ready() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(3), budget({"maxUnavailable": 1}))
        await cluster.until(lambda: all_ready(cluster.pods("web")) and status(cluster)["disruptionsAllowed"] == 1)
        cluster.delete(cluster.pods("web")[0])
        await cluster.rest(0.5)
        assert (status(cluster)["currentHealthy"], status(cluster)["disruptionsAllowed"]) == (2, 0)
        await cluster.until(lambda: status(cluster)["disruptionsAllowed"] == 1, within=10)

    play(story)


def test_a_granted_eviction_takes_part_until_its_pod_goes_or_two_minutes_have_passed() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(3), budget({"maxUnavailable": 1}))
        await cluster.until(lambda: all_ready(cluster.pods("web")) and status(cluster)["disruptionsAllowed"] == 1)
        granted = name_of(cluster.pods("web")[0])
        cluster.store.patch_status(BUDGETS, "ml", "guard", lambda obj: obj["status"].update(
            disruptionsAllowed=0, disruptedPods={granted: timestamp(cluster.store.now())}))
        await cluster.rest(100)
        assert status(cluster)["disruptionsAllowed"] == 0
        await cluster.rest(30)
        assert status(cluster)["disruptionsAllowed"] == 1
        assert not status(cluster).get("disruptedPods")

    play(story)


def test_the_scale_counts_not_the_pods_that_happen_to_be_there() -> None:
    async def story() -> None:
        node = linux_node("cpu-1")
        node["status"]["allocatable"]["pods"] = "4"
        cluster = Cluster(node)
        cluster.add(web(8), budget({"maxUnavailable": 2}))
        await cluster.rest(10)
        told = status(cluster)
        assert (told["expectedPods"], told["currentHealthy"], told["disruptionsAllowed"]) == (8, 4, 0)
        cluster.change("Deployment", "ml", "web", lambda obj: obj["spec"].update(replicas=4))
        await cluster.until(lambda: status(cluster)["disruptionsAllowed"] == 2, within=5)

    play(story)


def test_pods_whose_controller_has_no_scale_allow_nothing_under_max_unavailable() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset("agent"), budget({"maxUnavailable": 1}, "agent", "agents"))
        await cluster.until(lambda: all_ready(cluster.pods("agent")))
        await cluster.rest(1)
        assert status(cluster, "agents")["disruptionsAllowed"] == 0
        assert status(cluster, "agents")["conditions"][0]["reason"] == "SyncFailed"

    play(story)
