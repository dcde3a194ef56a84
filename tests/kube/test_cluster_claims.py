"""ResourceClaims as the cluster is followed: which pods they make users of GPUs, and who is woken by their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gpuward import errors
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.kube.following import Following, follow
from tests.kube.test_cluster import pod

CLAIMS = "resourceclaims.resource.k8s.io"


def claim(name: str) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}}


def with_claim(name: str, claim_name: str, node: str = "n1") -> dict[str, Any]:
    found = pod(name, node)
    found["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": claim_name}]
    return found


def allocate(scene: Following, name: str, driver: str) -> None:
    result = {"request": "r", "driver": driver, "pool": "n1", "device": "d0"}
    scene.store.patch_status(CLAIMS, "default", name, lambda obj: obj.setdefault("status", {}).update(
        allocation={"devices": {"results": [result]}}))


def users(scene: Following) -> dict[str, bool]:
    return {one.name: one.uses_gpu for pods in scene.cluster.observe().pods.values() for one in pods}


def test_a_pod_uses_a_gpu_from_the_moment_that_its_claim_is_allocated_one() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(claim("a"))
        scene.sandbox.apply(with_claim("p", "a"))
        await asyncio.sleep(1)
        watcher = scene.cluster.watcher()
        before = watcher.observe()
        assert users(scene) == {"p": False}
        allocate(scene, "a", "gpu.nvidia.com")
        assert await watcher.changed(1.0)
        assert users(scene) == {"p": True}
        assert not before.pods["n1"][0].uses_gpu, "a snapshot never changes"

    follow(play)


def test_a_claim_of_another_driver_is_no_gpu_and_one_that_is_gone_counts_as_one() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(claim("nic"))
        scene.sandbox.apply(with_claim("p", "nic"))
        allocate(scene, "nic", "net.example.com")
        await asyncio.sleep(1)
        assert users(scene) == {"p": False}
        scene.store.delete(CLAIMS, "default", "nic")
        await asyncio.sleep(1)
        assert users(scene) == {"p": True}

    follow(play)


def test_a_claim_touches_the_pods_of_its_own_nodes_only_and_wakes_nobody_without_any() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(claim("a"))
        scene.sandbox.apply(with_claim("p", "a"))
        scene.sandbox.apply(pod("other", "n2"))
        await asyncio.sleep(1)
        watcher = scene.cluster.watcher()
        before = watcher.observe()
        scene.sandbox.apply(claim("unused"))
        assert not await watcher.changed(1.0)
        allocate(scene, "a", "gpu.nvidia.com")
        assert await watcher.changed(1.0)
        after = watcher.observe()
        assert after.pods["n2"] is before.pods["n2"]
        assert after.pods["n1"] is not before.pods["n1"]

    follow(play)


def test_where_claims_may_not_be_listed_every_pod_with_one_counts_as_a_user() -> None:
    def forbid(scene: Following) -> None:
        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if "resourceclaims" in request.path:
                error = errors.Forbidden("resourceclaims is forbidden")
                return messages.answer(messages.status_object(error), error.status)
            return proceed()

        scene.transport.interfere = interfere

    async def play(scene: Following) -> None:
        scene.sandbox.apply(claim("a"))
        scene.sandbox.apply(with_claim("p", "a"))
        scene.sandbox.apply(pod("q", "n1"))
        await asyncio.sleep(1)
        assert (CLAIMS, "resourceclaims is forbidden") in scene.reports
        assert users(scene) == {"p": True, "q": False}
        scene.transport.interfere = lambda request, proceed: proceed()
        await asyncio.sleep(60)
        assert users(scene) == {"p": False, "q": False}

    follow(play, forbid)
