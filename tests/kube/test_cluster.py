"""The cluster as it is followed: what a snapshot shows, when it is another one, and who is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gpuward import errors
from gpuward.crd.generate import all_crds
from gpuward.model.views import Ref
from kubesandbox import messages
from kubesandbox.messages import Answer, Stream
from tests.kube.following import NAMESPACE, Following, follow


def pod(name: str, node: str = "", app: str = "x") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}}


def daemonset() -> dict[str, Any]:
    labels = {"app": "d"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "c", "image": "i"}]}}}}


def test_the_snapshot_is_the_same_object_until_something_changes() -> None:
    async def play(scene: Following) -> None:
        first = scene.cluster.observe()
        assert scene.cluster.observe() is first
        scene.sandbox.apply(pod("a", "n1"))
        await asyncio.sleep(1)
        second = scene.cluster.observe()
        assert second is not first
        assert not first.pods, "a snapshot never changes"
        assert [one.name for one in second.pods["n1"]] == ["a"]

    follow(play)


def test_pods_are_grouped_by_their_nodes_and_move_between_groups() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(pod("a"))
        scene.sandbox.apply(pod("b", "n1"))
        await asyncio.sleep(1)
        assert {node: [one.name for one in pods] for node, pods in scene.cluster.observe().pods.items()} == {
            "": ["a"], "n1": ["b"]}
        scene.store.bind(scene.store.get("pods", "default", "a"), "n1")
        scene.store.delete("pods", "default", "b", grace_seconds=0)
        await asyncio.sleep(1)
        assert {node: [one.name for one in pods] for node, pods in scene.cluster.observe().pods.items()} == {"n1": ["a"]}

    follow(play)


def test_a_new_version_of_a_daemonset_is_seen_though_nothing_that_is_read_has_changed() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(daemonset())
        await asyncio.sleep(1)
        before = scene.cluster.observe().daemonsets[0].version
        scene.store.patch_status("daemonsets.apps", NAMESPACE, "d", lambda obj: obj["status"].update(numberReady=1))
        await asyncio.sleep(1)
        assert scene.cluster.observe().daemonsets[0].version != before, "it is the precondition of the next replacement"

    follow(play)


def test_a_heartbeat_of_a_node_wakes_nobody_and_a_cordon_does() -> None:
    async def play(scene: Following) -> None:
        watcher = scene.cluster.watcher()
        watcher.observe()
        scene.store.modify("nodes", None, "n1", lambda obj: obj["metadata"].setdefault("annotations", {}).update(beat="1"))
        assert not await watcher.changed(1.0)
        scene.store.modify("nodes", None, "n1", lambda obj: obj["spec"].update(unschedulable=True))
        assert await watcher.changed(1.0)

    follow(play)


def test_a_daemonset_that_counts_other_pods_wakes_only_loops_that_count() -> None:
    async def play(scene: Following) -> None:
        scene.sandbox.apply(daemonset())
        await asyncio.sleep(1)
        all_of_it, no_counts = scene.cluster.watcher(), scene.cluster.watcher(counts=False)
        before = all_of_it.observe()
        no_counts.observe()
        scene.store.patch_status("daemonsets.apps", NAMESPACE, "d", lambda obj: obj["status"].update(numberUnavailable=1))
        assert not await no_counts.changed(1.0)
        assert await all_of_it.changed(0.1)
        assert no_counts.observe() is not before, "who looks for another reason sees the counts"
        scene.store.modify("daemonsets.apps", NAMESPACE, "d", lambda obj: obj["metadata"].update(labels={"a": "b"}))
        assert await no_counts.changed(1.0)

    follow(play)


def test_nodes_and_what_runs_there_wake_no_loop_that_is_about_policies_alone() -> None:
    async def play(scene: Following) -> None:
        all_of_it, policies = scene.cluster.watcher(), scene.cluster.watcher(counts=False, fleet=False)
        all_of_it.observe()
        before = policies.observe()
        scene.sandbox.apply(pod("a", "n1"))
        scene.store.modify("nodes", None, "n1", lambda node: node["spec"].update(unschedulable=True))
        assert not await policies.changed(1.0)
        assert await all_of_it.changed(1.0)
        after = policies.observe()
        assert after is not before, "who looks for another reason sees them"
        assert after.nodes["n1"].unschedulable
        scene.sandbox.apply(daemonset())
        assert await policies.changed(1.0)

    follow(play)


def test_every_loop_is_woken_for_itself() -> None:
    async def play(scene: Following) -> None:
        one, two = scene.cluster.watcher(), scene.cluster.watcher()
        one.observe()
        two.observe()
        scene.cluster.touch()
        assert await one.changed(0.1)
        one.observe()
        assert not await one.changed(0.1)
        assert await two.changed(0.1)

    follow(play)


def test_refusals_are_counted_per_life_of_a_pod() -> None:
    async def play(scene: Following) -> None:
        stored = scene.sandbox.apply(pod("a", "n1"))
        await asyncio.sleep(1)
        ref = Ref("default", "a", stored["metadata"]["uid"])
        scene.cluster.refused(ref, 1.0, "budget")
        scene.cluster.refused(ref, 2.0, "budget")
        assert scene.cluster.observe().refusals[ref.uid].count == 2
        scene.cluster.accepted(ref, scene.cluster.going(ref), 3.0)
        assert not scene.cluster.observe().refusals

    follow(play)


def test_a_kind_that_may_not_be_listed_is_said_to_be_unknown_until_it_can_be() -> None:
    def forbid(scene: Following) -> None:
        def interfere(request: messages.Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.path.endswith("/services"):
                error = errors.Forbidden("services is forbidden")
                return messages.answer(messages.status_object(error), error.status)
            return proceed()

        scene.transport.interfere = interfere

    async def play(scene: Following) -> None:
        assert scene.cluster.observe().unlisted["Service"] == "services is forbidden"
        assert ("services", "services is forbidden") in scene.reports
        watcher = scene.cluster.watcher()
        watcher.observe()
        scene.transport.interfere = lambda request, proceed: proceed()
        assert await watcher.changed(60), "that it can be listed is news, even if there is none"
        assert "Service" not in scene.cluster.observe().unlisted

    follow(play, forbid)


def test_a_new_list_of_pods_is_news_even_if_it_shows_the_same() -> None:
    async def play(scene: Following) -> None:
        watcher = scene.cluster.watcher()
        watcher.observe()
        scene.cluster.follow_pods(frozenset(), lambda pod: False)
        assert not scene.cluster.pods.synced.is_set(), "what matters now is not known yet"
        assert await watcher.changed(60), "who waits for the list has to look again"
        assert scene.cluster.pods.synced.is_set()

    follow(play)


def test_without_the_crds_it_is_not_synced_and_says_what_is_missing() -> None:
    async def play(scene: Following) -> None:
        assert not scene.cluster.is_synced
        missing = {"clusterpolicies.nvidia.com", "rolloutpolicies.gpuward.io", "nvidiadrivers.nvidia.com"}
        assert {resource for resource, _ in scene.reports} == missing

    follow(play)


def rollout_policies(scene: Following) -> list[str]:
    return [policy.name for policy in scene.cluster.observe().rollout_policies]


def rollout_policy(name: str) -> dict[str, Any]:
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": {}}


def install(scene: Following, *plurals: str) -> None:
    for crd in all_crds():
        if crd["spec"]["names"]["plural"] in plurals:
            scene.sandbox.apply(crd)


def test_rollout_policies_are_followed_from_when_their_crd_is_there() -> None:
    async def play(scene: Following) -> None:
        assert scene.cluster.is_synced, "they are optional"
        assert {resource for resource, _ in scene.reports} == {"rolloutpolicies.gpuward.io", "nvidiadrivers.nvidia.com"}
        watcher = scene.cluster.watcher()
        watcher.observe()
        install(scene, "rolloutpolicies")
        scene.sandbox.apply(rollout_policy("b"))
        assert await watcher.changed(60)
        await asyncio.sleep(60)
        scene.sandbox.apply(rollout_policy("a"))
        await asyncio.sleep(2)
        assert rollout_policies(scene) == ["b", "a"], "the oldest first"

    follow(play, lambda scene: install(scene, "clusterpolicies"))


@pytest.mark.parametrize(("error", "goes_on"), [(errors.Forbidden("not yours"), True), (errors.ServerError("no etcd"), False)])
def test_only_a_refusal_to_list_rollout_policies_counts_as_none(error: errors.ApiError, goes_on: bool) -> None:
    def fail(scene: Following) -> None:
        install(scene, "clusterpolicies", "rolloutpolicies")
        scene.sandbox.apply(rollout_policy("a"))

        def interfere(request: messages.Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.path.endswith("/rolloutpolicies"):
                return messages.answer(messages.status_object(error), error.status)
            return proceed()

        scene.transport.interfere = interfere

    async def play(scene: Following) -> None:
        assert scene.cluster.is_synced is goes_on, "other settings must not hold while a server only fails"
        scene.transport.interfere = lambda request, proceed: proceed()
        await asyncio.sleep(60)
        assert rollout_policies(scene) == ["a"]

    follow(play, fail)


def test_nvidia_drivers_that_cannot_be_listed_are_not_known_until_they_can_be() -> None:
    async def play(scene: Following) -> None:
        assert scene.cluster.is_synced, "they are optional"
        assert "NVIDIADriver" in scene.cluster.observe().unlisted
        install(scene, "nvidiadrivers")
        scene.sandbox.apply({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "a"}, "spec": {}})
        await asyncio.sleep(60)
        seen = scene.cluster.observe()
        assert "NVIDIADriver" not in seen.unlisted
        assert [driver.name for driver in seen.drivers] == ["a"]

    follow(play, lambda scene: install(scene, "clusterpolicies"))
