from __future__ import annotations

from kubesandbox.builders import deployment, linux_node
from kubesandbox.sim.objects import Object, is_ready, is_terminating, is_true, name_of
from sandbox_helpers.cluster import Cluster, all_ready, play

DEPLOYMENTS = "deployments.apps"


def web(replicas: int, image: str = "i:1", **spec: object) -> Object:
    made = deployment("web", "ml", replicas, {"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "main", "image": image}]}})
    made["spec"].update(spec)
    return made


def live(cluster: Cluster) -> list[Object]:
    return [pod for pod in cluster.pods("web") if not is_terminating(pod)]


def test_a_deleted_pod_is_replaced_before_it_is_gone() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(3))
        await cluster.until(lambda: len(live(cluster)) == 3 and all_ready(cluster.pods("web")))
        cluster.delete(cluster.pods("web")[0])
        await cluster.rest(0.5)
        assert (len(cluster.pods("web")), len(live(cluster))) == (4, 3)
        await cluster.until(lambda: len(cluster.pods("web")) == 3 and all_ready(cluster.pods("web")), within=10)
        await cluster.rest(1)
        told = cluster.store.get(DEPLOYMENTS, "ml", "web")["status"]
        assert (told["replicas"], told["readyReplicas"], told["availableReplicas"], told["observedGeneration"]) == (3, 3, 3, 1)
        assert is_true(cluster.store.get(DEPLOYMENTS, "ml", "web"), "Available")

    play(story)


def test_scaling_down_takes_the_pods_that_are_not_ready_first() -> None:
    async def story() -> None:
        node = linux_node("cpu-1")
        node["status"]["allocatable"]["pods"] = "3"
        cluster = Cluster(node)
        cluster.add(web(5))
        await cluster.until(lambda: sum(map(is_ready, cluster.pods("web"))) == 3)
        ready = {name_of(pod) for pod in cluster.pods("web") if is_ready(pod)}
        cluster.change("Deployment", "ml", "web", lambda obj: obj["spec"].update(replicas=3))
        await cluster.until(lambda: len(cluster.pods("web")) == 3, within=10)
        assert {name_of(pod) for pod in cluster.pods("web")} == ready

    play(story)
