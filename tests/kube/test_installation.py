"""Resources that the API server does not have yet: noticed when they come, and not asked for meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gpuward.errors import ApiError, Forbidden, NotFound
from gpuward.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GVR, PROMETHEUS_RULES, RESOURCE_CLAIMS, ROLES, ROLLOUT_POLICIES
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.kube.following import Following, follow
from tests.kube.test_cluster import install, rollout_policies, rollout_policy

OTHERS = "clusterpolicies", "nvidiadrivers"


def refuse(scene: Following, resource: GVR, error: ApiError) -> None:
    """Refuse every list and watch of a resource from now on."""

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        return refusal(error) if request.path == resource.path() else proceed()

    scene.transport.interfere = interfere


def asked(scene: Following, resource: GVR) -> int:
    """Return how often a resource has been listed."""
    return scene.cluster.client.stats.total("list", str(resource))


def test_a_kind_is_followed_within_seconds_of_its_crd_and_not_asked_for_before() -> None:
    async def play(scene: Following) -> None:
        await asyncio.sleep(3600)
        assert asked(scene, ROLLOUT_POLICIES) == asked(scene, CUSTOM_RESOURCE_DEFINITIONS) == 1
        install(scene, "rolloutpolicies")
        scene.sandbox.apply(rollout_policy("a"))
        await asyncio.sleep(5)
        assert rollout_policies(scene) == ["a"]

    follow(play, lambda scene: install(scene, *OTHERS))


def test_a_kind_whose_crd_goes_is_awaited_again() -> None:
    async def play(scene: Following) -> None:
        scene.store.delete(str(CUSTOM_RESOURCE_DEFINITIONS), None, str(ROLLOUT_POLICIES))
        await asyncio.sleep(60)
        before = asked(scene, ROLLOUT_POLICIES)
        await asyncio.sleep(3600)
        assert asked(scene, ROLLOUT_POLICIES) == before
        install(scene, "rolloutpolicies")
        scene.sandbox.apply(rollout_policy("b"))
        await asyncio.sleep(5)
        assert rollout_policies(scene) == ["b"]

    follow(play, lambda scene: install(scene, *OTHERS, "rolloutpolicies"))


def test_where_crds_may_not_be_watched_the_kind_is_asked_for_now_and_then() -> None:
    def prepare(scene: Following) -> None:
        install(scene, *OTHERS)
        refuse(scene, CUSTOM_RESOURCE_DEFINITIONS, Forbidden("customresourcedefinitions is forbidden"))

    async def play(scene: Following) -> None:
        await asyncio.sleep(600)
        assert 20 <= asked(scene, ROLLOUT_POLICIES) <= 30
        install(scene, "rolloutpolicies")
        scene.sandbox.apply(rollout_policy("a"))
        await asyncio.sleep(35)
        assert rollout_policies(scene) == ["a"]

    follow(play, prepare)


@pytest.mark.parametrize(("error", "least", "most"), [(NotFound("no such thing"), 5, 8), (Forbidden("not yours"), 110, 140)])
def test_claims_that_the_server_is_too_old_for_are_asked_for_every_ten_minutes(error: ApiError, least: int, most: int) -> None:
    async def play(scene: Following) -> None:
        await asyncio.sleep(3600)
        assert least <= asked(scene, RESOURCE_CLAIMS) <= most
        scene.transport.interfere = lambda request, proceed: proceed()
        await asyncio.sleep(700)
        assert scene.cluster.claims.synced.is_set()

    follow(play, lambda scene: refuse(scene, RESOURCE_CLAIMS, error))


def test_claims_that_were_there_before_are_asked_for_again_soon() -> None:
    async def play(scene: Following) -> None:
        refuse(scene, RESOURCE_CLAIMS, NotFound("no such thing"))
        scene.transport.break_streams()
        await asyncio.sleep(300)
        assert scene.cluster.client.stats.total("watch", str(RESOURCE_CLAIMS)) > 10

    follow(play)


@pytest.mark.parametrize(("resource", "custom"), [(ROLLOUT_POLICIES, True), (PROMETHEUS_RULES, True), (ROLES, False),
                                                   (RESOURCE_CLAIMS, False), (CUSTOM_RESOURCE_DEFINITIONS, False)])
def test_what_a_crd_defines_is_told_by_its_group(resource: GVR, custom: bool) -> None:
    assert resource.is_custom is custom
