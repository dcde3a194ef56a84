from __future__ import annotations

from kubesandbox.builders import deployment, linux_node
from kubesandbox.sim.objects import Object, is_ready, is_terminating
from sandbox_helpers.cluster import Cluster, all_ready, play

SETS, DEPLOYMENTS = "replicasets.apps", "deployments.apps"


def web(replicas: int, image: str = "i:1", **spec: object) -> Object:
    made = deployment("web", "ml", replicas, {"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "main", "image": image}]}})
    made["spec"].update(spec)
    return made


def set_image(cluster: Cluster, image: str) -> None:
    cluster.change("Deployment", "ml", "web",
                   lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image=image))


def live(cluster: Cluster) -> list[Object]:
    return [pod for pod in cluster.pods("web") if not is_terminating(pod)]


def test_a_rolling_update_keeps_to_surge_and_unavailability() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(8, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}))
        await cluster.until(lambda: len(live(cluster)) == 8 and all_ready(cluster.pods("web")))
        numbers: list[tuple[int, int]] = []
        cluster.store.subscribe(lambda _event: numbers.append(
            (len(live(cluster)), sum(is_ready(pod) for pod in live(cluster)))), "pods")
        set_image(cluster, "i:2")
        await cluster.until(lambda: len(cluster.pods("web")) == 8 and all_ready(cluster.pods("web")) and all(
            pod["spec"]["containers"][0]["image"] == "i:2" for pod in cluster.pods("web")), within=120)
        assert max(there for there, _ in numbers) <= 10
        assert min(ready for _, ready in numbers) >= 7
        assert sorted(found["spec"]["replicas"] for found in cluster.store.list(SETS)) == [0, 8]

    play(story)


def test_recreate_ends_the_old_pods_before_it_starts_new_ones() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(2, strategy={"type": "Recreate"}))
        await cluster.until(lambda: len(live(cluster)) == 2 and all_ready(cluster.pods("web")))
        mixed: list[bool] = []
        cluster.store.subscribe(lambda _event: mixed.append(
            len({pod["spec"]["containers"][0]["image"] for pod in cluster.pods("web")}) > 1), "pods")
        set_image(cluster, "i:2")
        await cluster.until(lambda: len(cluster.pods("web")) == 2 and all_ready(cluster.pods("web")) and all(
            pod["spec"]["containers"][0]["image"] == "i:2" for pod in cluster.pods("web")), within=60)
        assert not any(mixed)

    play(story)


def test_a_deployment_goes_with_its_sets_and_pods() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(web(3))
        await cluster.until(lambda: len(live(cluster)) == 3 and all_ready(cluster.pods("web")))
        cluster.store.delete(DEPLOYMENTS, "ml", "web", propagation="Foreground")
        await cluster.rest(1)
        assert is_terminating(cluster.store.get(DEPLOYMENTS, "ml", "web"))
        await cluster.until(lambda: not cluster.pods("web") and not cluster.store.list(SETS)
                            and not cluster.store.list(DEPLOYMENTS), within=10)

    play(story)
