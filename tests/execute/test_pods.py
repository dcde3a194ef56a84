"""How pods are made to go, and what is known afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from gpuward import errors, names
from gpuward.model.actions import CreatePod, DeletePod, EvictPod, LastLook, PatchNode, ReleasePod
from gpuward.model.views import Ref
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.objects import is_terminating
from kubesandbox.store import Object
from tests.execute.bench import Bench, on_a_bench

BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "ml"},
          "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}


def stored(bench: Bench, name: str) -> Object | None:
    return bench.sandbox.store.find("pods", "ml", name)


def test_an_evicted_pod_is_seen_to_go_before_the_watch_says_so() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]
        await bench.execute(EvictPod(pod.ref, pod.node))
        assert bench.cluster.pods["ml", pod.name].deleting
        assert is_terminating(stored(bench, pod.name) or {})

    on_a_bench(play)


def test_a_refused_eviction_is_remembered_with_its_time_and_number_until_the_pod_is_gone() -> None:
    async def play(bench: Bench) -> None:
        bench.sandbox.apply(BUDGET)
        await asyncio.sleep(5)
        pod = bench.pods("web")[0]
        for count in (1, 2):
            (outcome,) = await bench.execute(EvictPod(pod.ref, pod.node))
            assert "disruption budget" in outcome.error
            refusal = bench.cluster.observe().refusals[pod.uid]
            assert (refusal.count, refusal.at) == (count, asyncio.get_running_loop().time())
            await asyncio.sleep(1)
        bench.sandbox.store.delete("pods", "ml", pod.name, grace_seconds=0)
        await asyncio.sleep(1)
        assert pod.uid not in bench.cluster.observe().refusals

    on_a_bench(play)


def test_a_refused_deletion_is_remembered_as_well() -> None:
    async def play(bench: Bench) -> None:
        def forbid(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            return messages.refusal(errors.Forbidden("pods is forbidden")) if request.method == "DELETE" else proceed()

        bench.transport.interfere = forbid
        pod = bench.pods("web")[0]
        (outcome,) = await bench.execute(DeletePod(pod.ref, pod.node))
        assert bench.cluster.observe().refusals[pod.uid].message == outcome.error == "pods is forbidden"

    on_a_bench(play)


@pytest.mark.weakness(23)
def test_a_pod_that_is_gone_already_is_as_good_as_evicted() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]
        bench.sandbox.store.delete("pods", "ml", pod.name, grace_seconds=0)
        assert [outcome.error for outcome in await bench.execute(EvictPod(pod.ref, pod.node), DeletePod(pod.ref, pod.node))] == [
            "", ""]
        assert ("ml", pod.name) not in bench.cluster.pods

    on_a_bench(play)


def test_another_pod_of_the_same_name_is_neither_evicted_nor_deleted() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]
        other = Ref(pod.namespace, pod.name, "another-uid")
        outcomes = await bench.execute(EvictPod(other, "a"), DeletePod(other, "b"))
        assert all(outcome.error for outcome in outcomes)
        assert not is_terminating(stored(bench, pod.name) or {})
        assert not bench.cluster.observe().unsettled, "a look has settled what the conflict left open"

    on_a_bench(play)


def late(bench: Bench, node: str, **container: object) -> None:
    """Start a pod on a node that no watch has shown yet."""
    bench.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "ml"}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "i", **container}]}})


ASKS = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
MERELY_NAMES = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}


@pytest.mark.parametrize(("container", "look", "goes"), [
    (ASKS, LastLook(), False), (ASKS, LastLook(holders=False, variable=False), False), ({}, LastLook(), True),
    (MERELY_NAMES, LastLook(), False), (MERELY_NAMES, LastLook(holders=False), True),
    (MERELY_NAMES, LastLook(variable=False), True), (ASKS, None, True),
])
def test_the_last_look_calls_a_deletion_off_by_the_name_of_what_it_found(
    container: dict[str, object], look: LastLook | None, goes: bool
) -> None:
    async def play(bench: Bench) -> None:
        driver = bench.pods("web")[0]
        late(bench, "gpu-1", **container)
        (outcome,) = await bench.execute(DeletePod(driver.ref, "gpu-1", last_look=look))
        assert outcome.error == ("" if goes else "pod ml/late uses a GPU of node gpu-1: the driver stays until it has gone")
        assert is_terminating(stored(bench, driver.name) or {}) is goes
        assert bench.client.stats.total("delete", "pods") == int(goes)

    on_a_bench(play)


def test_the_last_look_calls_a_move_to_another_daemon_set_off() -> None:
    async def play(bench: Bench) -> None:
        late(bench, "gpu-1", **ASKS)
        node = bench.cluster.observe().nodes["gpu-1"]
        move = PatchNode(node.ref, labels={names.DRIVER_OWNER: "b"}, expect_labels={names.DRIVER_OWNER: None},
                         has_annotations=node.has_annotations, last_look=LastLook())
        (outcome,) = await bench.execute(move)
        assert outcome.called_off
        assert names.DRIVER_OWNER not in bench.cluster.observe().nodes["gpu-1"].labels
        bench.sandbox.store.delete("pods", "ml", "late", grace_seconds=0)
        (outcome,) = await bench.execute(move)
        assert outcome.error == ""
        assert bench.cluster.observe().nodes["gpu-1"].labels[names.DRIVER_OWNER] == "b"

    on_a_bench(play)


WAITS = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "namespace": "ml"},
         "spec": {"nodeSelector": {"wanted": "here"}, "containers": [{"name": "c", "image": "i"}]}}


def test_a_pod_that_has_got_a_node_meanwhile_is_not_deleted_as_one_without() -> None:
    """It may have loaded a driver by now, and GPU pods may run on that."""
    async def play(bench: Bench) -> None:
        bench.sandbox.api.watch_delay = lambda resource: 60.0 if resource == "pods" else 0.0
        bench.sandbox.apply(WAITS)
        await asyncio.sleep(30)
        bench.sandbox.store.modify("nodes", None, "gpu-1", lambda node: node["metadata"]["labels"].update(wanted="here"))
        await asyncio.sleep(40)
        (left,) = bench.pods("left")
        assert left.node == ""
        (outcome,) = await bench.execute(DeletePod(left.ref, "", unplaced=True))
        assert outcome.called_off
        assert outcome.error == "pod ml/left is on node gpu-1 by now: what becomes of it is decided anew"
        assert bench.client.stats.total("delete", "pods") == 0
        assert bench.pods("left")[0].node == "gpu-1", "the next decision knows it"

    on_a_bench(play)


def test_a_pod_without_a_node_is_deleted_as_the_version_that_has_none() -> None:
    async def play(bench: Bench) -> None:
        bench.sandbox.apply(WAITS)
        await asyncio.sleep(5)
        left, proceeds = bench.pods("left")[0].ref, bench.transport.interfere

        def change(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method == "DELETE":
                bench.sandbox.store.modify("pods", "ml", "left", lambda pod: pod["metadata"].update(annotations={"a": "b"}))
            return proceed()

        bench.transport.interfere = change
        (outcome,) = await bench.execute(DeletePod(left, "", unplaced=True))
        assert "ResourceVersion in precondition" in outcome.error
        bench.transport.interfere = proceeds
        gone = DeletePod(left, "", unplaced=True)
        assert [each.error for each in await bench.execute(gone, gone)] == ["", ""]
        assert stored(bench, "left") is None

    on_a_bench(play)


def test_a_daemonset_of_a_driver_pod_that_was_taken_to_be_gone_calls_a_change_of_labels_off() -> None:
    """It was made anew and adopted the pod, and the watch of pods was faster than that of DaemonSets."""
    async def play(bench: Bench) -> None:
        node = bench.cluster.observe().nodes["gpu-1"]
        labels = {"app": names.DRIVER_APP}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        bench.sandbox.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "drivers", "namespace": names.DEFAULT_NAMESPACE},
            "spec": {"selector": {"matchLabels": labels}, "template": template}})
        uid = bench.sandbox.store.get("daemonsets.apps", names.DEFAULT_NAMESPACE, "drivers")["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "drivers", "uid": uid, "controller": True}
        bench.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "driver", "namespace": names.DEFAULT_NAMESPACE, "labels": labels, "ownerReferences": [owner]},
            "spec": {"nodeName": "gpu-1", "containers": [{"name": "c", "image": "i"}]}})
        pod = bench.sandbox.store.get("pods", names.DEFAULT_NAMESPACE, "driver")["metadata"]["uid"]
        change = PatchNode(node.ref, labels={names.DEPLOY_DRIVER: None}, has_annotations=node.has_annotations,
                           known_pods={pod: uid})
        (outcome,) = await bench.execute(change)
        assert outcome.called_off
        assert outcome.error.startswith("DaemonSet drivers of pod gpu-operator/driver has come")
        bench.sandbox.store.delete("daemonsets.apps", names.DEFAULT_NAMESPACE, "drivers")
        bench.cluster.daemonsets.gone((names.DEFAULT_NAMESPACE, "drivers"), uid)
        (outcome,) = await bench.execute(change)
        assert not outcome.error, "it is gone indeed"

    on_a_bench(play)


def test_a_driver_pod_or_a_user_of_gpus_that_was_not_known_calls_a_change_of_labels_off() -> None:
    """The watch may be silent for a while: what came meanwhile would lose its driver."""
    asks = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

    async def play(bench: Bench) -> None:
        node = bench.cluster.observe().nodes["gpu-1"]
        for name, more in (("late", {}), ("train", asks)):
            bench.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": {
                "nodeName": "gpu-1", "containers": [{"name": "c", "image": "i", **more}]}})
        late = stored(bench, "train") or {}
        change = PatchNode(node.ref, labels={names.DRIVER_OWNER: "b"}, expect_labels={names.DRIVER_OWNER: None},
                           has_annotations=node.has_annotations, known_pods={})
        (outcome,) = await bench.execute(change)
        assert outcome.called_off
        assert outcome.error.startswith("pod ml/train has come to node gpu-1, or has another owner")
        assert names.DRIVER_OWNER not in bench.cluster.observe().nodes["gpu-1"].labels
        assert ("ml", "train") in bench.cluster.pods, "the next decision knows it"
        (outcome,) = await bench.execute(msgspec.structs.replace(change, known_pods={late["metadata"]["uid"]: ""}))
        assert outcome.error == ""

    on_a_bench(play)


def test_a_node_is_not_called_done_by_a_driver_pod_that_is_gone() -> None:
    """The watch may be silent for a while: the pod that it showed last may have gone, with the driver."""

    async def play(bench: Bench) -> None:
        node, pod = bench.cluster.observe().nodes["gpu-1"], bench.pods("web")[0]
        done = PatchNode(node.ref, labels={names.UPGRADE_STATE: "upgrade-done"}, expect_labels={names.UPGRADE_STATE: None},
                         has_annotations=node.has_annotations, done_by=pod.ref)
        bench.sandbox.store.delete("pods", "ml", pod.name)
        (outcome,) = await bench.execute(done)
        assert outcome.called_off
        assert outcome.error.startswith(f"driver pod ml/{pod.name} is there no longer")
        assert bench.cluster.pods["ml", pod.name].deleting, "the next decision knows it"
        (outcome,) = await bench.execute(msgspec.structs.replace(done, done_by=bench.pods("web")[1].ref))
        assert outcome.error == ""

    on_a_bench(play)


def test_a_released_pod_has_no_owner_and_runs_on() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]
        assert pod.owner is not None
        (outcome,) = await bench.execute(ReleasePod(pod.ref, pod.node, "another"))
        assert outcome.error, "it has another owner by now"
        (outcome,) = await bench.execute(ReleasePod(pod.ref, pod.node, pod.owner.uid))
        assert outcome.error == ""
        found = stored(bench, pod.name) or {}
        assert not found["metadata"].get("ownerReferences")
        assert found["metadata"]["labels"]["app"] == names.LEFT_DRIVER_APP
        assert not is_terminating(found)

    on_a_bench(play)


def test_the_last_look_reads_claims_that_seem_harmless_once_more() -> None:
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "gpu", "namespace": "ml"},
             "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}}
    allocation = {"devices": {"results": [{"request": "r", "driver": "gpu.nvidia.com", "pool": "p", "device": "d"}]}}
    user = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": "ml"}, "spec": {
        "nodeName": "gpu-1", "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}

    async def play(bench: Bench) -> None:
        driver = bench.pods("web")[0]
        bench.sandbox.apply(claim)
        bench.sandbox.apply(user)
        await asyncio.sleep(5)
        (outcome,) = await bench.execute(DeletePod(driver.ref, "gpu-1", last_look=LastLook()))
        assert outcome.error == "", "the claim has nothing allocated"
        bench.sandbox.store.patch_status("resourceclaims.resource.k8s.io", "ml", "gpu",
                                         lambda obj: obj.setdefault("status", {}).update(allocation=allocation))
        assert not bench.cluster.claims["ml", "gpu"].gpu, "the watch has not shown it yet"
        (outcome,) = await bench.execute(DeletePod(bench.pods("web")[1].ref, "gpu-1", last_look=LastLook()))
        assert "pod ml/user uses a GPU of node gpu-1" in outcome.error

    on_a_bench(play)


def test_a_deletion_without_an_answer_leaves_its_node_undecided_until_the_server_was_asked() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]

        def lose(request: Request, proceed: object) -> Answer | Stream:
            assert callable(proceed)
            if request.method == "DELETE":
                proceed()
                raise errors.Unreachable("connection reset")
            return messages.answer(messages.status_object(errors.ServerError("not now")), 500)

        bench.transport.interfere = lose
        (outcome,) = await bench.execute(DeletePod(pod.ref, pod.node))
        assert outcome.error == "connection reset"
        assert bench.cluster.observe().unsettled == {pod.node}
        bench.transport.interfere = lambda request, proceed: proceed()
        await asyncio.sleep(2)
        assert bench.cluster.observe().unsettled == frozenset()

    on_a_bench(play)


def created(bench: Bench, node: str) -> CreatePod:
    """Return the action that makes a small pod."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "small", "namespace": names.DEFAULT_NAMESPACE,
                                                            "labels": {"app": names.STAGING_APP}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i:1", "command": ["true"]}]}}
    return CreatePod("Pod", Ref(names.DEFAULT_NAMESPACE, "small"), bench.node(node).ref, body)


def test_a_pod_is_made_once_and_known_at_once() -> None:
    async def play(bench: Bench) -> None:
        action = created(bench, "gpu-1")
        (first,) = await bench.execute(action)
        assert first.written
        assert [pod.name for pod in bench.pods("small")] == ["small"]
        (second,) = await bench.execute(action)
        assert second.called_off
        assert bench.cluster.observe().unstaged == {}

    on_a_bench(play)


def test_a_pod_that_may_not_be_made_is_remembered_until_one_may() -> None:
    async def play(bench: Bench) -> None:
        def refuse(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            return messages.refusal(errors.Forbidden("no")) if request.method == "POST" else proceed()

        action, proceeds = created(bench, "gpu-1"), bench.transport.interfere
        bench.transport.interfere = refuse
        (outcome,) = await bench.execute(action)
        assert "no" in outcome.error
        (refusal,) = bench.cluster.observe().unstaged.values()
        assert "no" in refusal.message
        bench.transport.interfere = proceeds
        await bench.execute(action)
        assert bench.cluster.observe().unstaged == {}

    on_a_bench(play)


def test_a_pod_of_that_name_which_somebody_relabelled_is_a_refusal() -> None:
    """Nobody would find it, and it would be asked for again in each pass."""
    async def play(bench: Bench) -> None:
        action = created(bench, "gpu-1")
        await bench.execute(action)
        bench.sandbox.store.modify(
            "pods", names.DEFAULT_NAMESPACE, "small", lambda obj: obj["metadata"].update(labels={"app": "other"}))
        (outcome,) = await bench.execute(action)
        assert outcome.called_off
        (refusal,) = bench.cluster.observe().unstaged.values()
        told = "there is a pod gpu-operator/small already, which has lost its label app=gpuward-prestage: delete it"
        assert refusal.message == told

    on_a_bench(play)
