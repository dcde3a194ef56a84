from __future__ import annotations

import pytest

from kubesandbox.sim.objects import Object, is_terminating, uid_of
from sandbox_helpers.cluster import Cluster, play


def config(name: str, *owners: Object, namespace: str = "ml") -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "namespace": namespace, "ownerReferences": [
            {"apiVersion": "v1", "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": uid_of(owner),
             "blockOwnerDeletion": True} for owner in owners]}}


def there(cluster: Cluster, name: str, namespace: str = "ml") -> bool:
    return cluster.store.find("configmaps", namespace, name) is not None


def test_dependents_go_with_their_last_owner() -> None:
    async def story() -> None:
        cluster = Cluster()
        first, second = (cluster.store.create("configmaps", config(name)) for name in ("a", "b"))
        cluster.add(config("child", first, second))
        child = cluster.store.get("configmaps", "ml", "child")
        cluster.add(config("grandchild", child))
        cluster.store.delete("configmaps", "ml", "a")
        await cluster.rest(2)
        assert [owner["name"] for owner in cluster.store.get("configmaps", "ml", "child")["metadata"]["ownerReferences"]] == ["b"]
        cluster.store.delete("configmaps", "ml", "b")
        await cluster.rest(2)
        assert not there(cluster, "child")
        assert not there(cluster, "grandchild")

    play(story)


def test_foreground_keeps_the_owner_until_its_dependents_are_gone() -> None:
    async def story() -> None:
        cluster = Cluster()
        owner = cluster.store.create("configmaps", config("owner"))
        held = config("held", owner)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        cluster.add(held)
        cluster.store.delete("configmaps", "ml", "owner", propagation="Foreground")
        await cluster.rest(5)
        assert is_terminating(cluster.store.get("configmaps", "ml", "owner"))
        assert is_terminating(cluster.store.get("configmaps", "ml", "held"))
        cluster.store.modify("configmaps", "ml", "held", lambda obj: obj["metadata"].update(finalizers=[
            name for name in obj["metadata"]["finalizers"] if name != "example.com/hold"]))
        await cluster.rest(2)
        assert not there(cluster, "held")
        assert not there(cluster, "owner")

    play(story)


def test_orphan_sets_the_dependents_free() -> None:
    async def story() -> None:
        cluster = Cluster()
        owner = cluster.store.create("configmaps", config("owner"))
        cluster.add(config("child", owner))
        cluster.store.delete("configmaps", "ml", "owner", propagation="Orphan")
        await cluster.rest(2)
        assert not there(cluster, "owner")
        assert "ownerReferences" not in cluster.store.get("configmaps", "ml", "child")["metadata"]

    play(story)


@pytest.mark.parametrize(("space", "kept"), [("ml", True), ("agents", False)])
def test_an_owner_in_another_namespace_counts_as_absent(space: str, kept: bool) -> None:
    async def story() -> None:
        cluster = Cluster()
        owner = cluster.store.create("configmaps", config("owner"))
        cluster.add(config("child", owner, namespace=space))
        await cluster.rest(2)
        assert there(cluster, "child", space) is kept

    play(story)


def test_a_cluster_scoped_owner_takes_namespaced_dependents_along() -> None:
    async def story() -> None:
        cluster = Cluster()
        owner = cluster.store.create("nodes", {"metadata": {"name": "n"}, "status": {}})
        cluster.add(config("child", owner, namespace="agents"))
        await cluster.rest(2)
        assert there(cluster, "child", "agents")
        cluster.store.delete("nodes", None, "n")
        await cluster.rest(2)
        assert not there(cluster, "child", "agents")

    play(story)
