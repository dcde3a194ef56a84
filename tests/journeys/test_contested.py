"""Somebody else writes what gpuward writes, again and again: nobody's work pays for it, and people are told who fights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.store import Event
from kubesandbox.writing import APPLY_PATCH
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_driver_truth import ONE, rollout
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, owners

THEIRS, BY = "599.00.01", "kustomize-controller"


class Rival:
    """Apply another image, or a variable, to the driver DaemonSet whenever it does not have it."""

    def __init__(self, stage: Stage, field: str, name: str = names.DRIVER_APP) -> None:
        self.stage, self.field, self.name, self.there, self.edits = stage, field, name, True, 0
        stage.sandbox.store.subscribe(self._saw, "daemonsets.apps")
        self.edit()

    def _saw(self, event: Event) -> None:
        if self.there and event.obj["metadata"]["name"] == self.name:
            asyncio.get_running_loop().call_later(0.2, self.edit)

    def edit(self) -> None:
        """Apply what it wants, as a GitOps controller does."""
        ds = self.stage.get("daemonsets.apps", self.name)
        container = ds["spec"]["template"]["spec"]["containers"][0]
        wanted = {"image": container["image"].replace(OLD, THEIRS), "env": [*container["env"], {"name": "THEIRS", "value": "1"}]}
        is_so = THEIRS in container["image"] if self.field == "image" else container["env"][-1]["name"] == "THEIRS"
        if is_so or not self.there:
            return
        self.edits += 1
        change = {"name": container["name"], self.field: wanted[self.field]}
        body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": self.name},
                "spec": {"template": {"spec": {"containers": [change]}}}}
        path = f"/apis/apps/v1/namespaces/{names.DEFAULT_NAMESPACE}/daemonsets/{self.name}"
        query = {"fieldManager": BY, "force": "true"}
        answer = self.stage.sandbox.api.handle(Request("PATCH", path, query, json.dumps(body).encode(), APPLY_PATCH))
        assert isinstance(answer, Answer)
        assert answer.status == 200


@pytest.mark.parametrize("field", ["image", "env"])
def test_who_edits_the_driver_daemonset_again_and_again_costs_no_driver(field: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("train", 3)
        pods = {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)}
        work = {pod["metadata"]["uid"] for pod in stage.workload_pods("train")}
        stage.watch_limits()
        rival = Rival(stage, field)
        await stage.rest(3000)
        assert {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)} == pods
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods("train")} == work
        assert {node: stage.entered(node) for node in stage.states() if stage.entered(node)} == {}
        assert rival.edits < 300, "ever more rarely"
        (status, reason, message) = rollout(stage)
        assert (status, reason) == ("False", "TemplateEdited")
        assert f"{BY} edits DaemonSet {names.DRIVER_APP}" in message
        told = [event for event in stage.sandbox.store.list("events") if event["involvedObject"]["kind"] == "DaemonSet"]
        assert [event["message"] for event in told if BY in event["message"]] == [message.rpartition("; ")[2]]
        rival.there = False
        await stage.until(lambda: rollout(stage)[:2] == ("True", "UpToDate"), within=300)
        await stage.upgrade_to()
        await stage.upgraded()

    story()


@on_stage(gpu_nodes=4)
async def test_nor_that_of_a_node_which_is_to_go_to_that_daemonset(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b="gpu-4")
    await make(stage, nvidia_driver("default", default=True), nvidia_driver("b"))
    await stage.installed()
    await stage.deploy("train", node="gpu-3")
    there = [pod["metadata"]["uid"] for pod in (*driver_pods(stage, "gpu-3"), *stage.workload_pods("train"))]
    rival = Rival(stage, "image", driver_pods(stage, "gpu-4")[0]["metadata"]["ownerReferences"][0]["name"])
    await stage.rest(125)
    await label_pools(stage, b="gpu-3")
    await stage.rest(600)
    assert [pod["metadata"]["uid"] for pod in (*driver_pods(stage, "gpu-3"), *stage.workload_pods("train"))] == there
    assert (stage.hold("gpu-3"), stage.cordons(), stage.drivers()) == ("TemplateEdited", [], [OLD])
    rival.there = False
    await stage.until(lambda: owners(stage)["gpu-3"] == "b" and rollout(stage)[:2] == ("True", "UpToDate"), within=600)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])


@pytest.mark.parametrize("label", ["upgrade-done", "upgrade-required", "validation-required", ""])
def test_who_writes_a_state_label_again_and_again_is_answered_by_few_events(label: str) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        edits: set[asyncio.Task[None]] = set()
        told: list[str] = []

        def saw(event: Event) -> None:
            if event.obj["metadata"]["name"] == "gpu-1" and stage.state("gpu-1") != label:
                edits.add(asyncio.create_task(stage.label("gpu-1", names.UPGRADE_STATE, label or None)))

        def heard(event: Event) -> None:
            if event.type == "ADDED" and event.obj["involvedObject"]["name"] == "gpu-1":
                told.append(event.obj["message"])

        await stage.installed()
        stage.sandbox.store.subscribe(heard, "events")
        await stage.upgrade_to()
        await stage.until(lambda: stage.hold("gpu-1") == "TemplateSettling")
        stage.sandbox.store.subscribe(lambda event: saw(event) if stage.hold("gpu-1") != "TemplateSettling" else None, "nodes")
        await stage.rest(7200)
        assert len(edits) > 50
        assert len(told) < 120
        assert all(told.count(message) < 12 for message in told)

    story()


@pytest.mark.parametrize("pause", [0.2, 3.0, 60.0])
def test_who_takes_a_label_off_a_node_again_and_again_is_told_of_once(pause: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        async def undo() -> None:
            while True:
                await asyncio.sleep(pause)
                await stage.label("gpu-1", names.GPU_PRESENT, None)

        await stage.installed()
        before = stage.client.stats.total("patch", "nodes")
        rival = asyncio.create_task(undo())
        await stage.rest(3600)
        assert stage.client.stats.total("patch", "nodes") - before <= min(3600 / pause, 1300), "ever more rarely"
        (told,) = [event for event in stage.events("gpu-1", "Warning") if names.GPU_PRESENT in event]
        assert told.startswith(f"label {names.GPU_PRESENT}=true was written 6 times within 10 minutes: somebody else keeps")
        assert [line["node"] for line in stage.warnings("Labels are changed back")] == ["gpu-1"]
        rival.cancel()
        await stage.until(lambda: stage.labels("gpu-1").get(names.GPU_PRESENT) == "true", within=60)

    story()


@on_stage(gpu_nodes=2)
async def test_who_sets_a_label_otherwise_again_and_again_is_named(stage: Stage) -> None:
    def undo() -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": {names.GPU_PRESENT: "false"}}}
        answer = stage.sandbox.api.handle(Request("PATCH", "/api/v1/nodes/gpu-1", {"fieldManager": BY, "force": "true"},
                                                  json.dumps(body).encode(), APPLY_PATCH))
        assert isinstance(answer, Answer)
        assert answer.status == 200, answer.body

    async def keep_undoing() -> None:
        while True:
            await asyncio.sleep(5)
            undo()

    await stage.installed()
    before = stage.client.stats.total("get", "nodes")
    rival = asyncio.create_task(keep_undoing())
    await stage.rest(1200)
    rival.cancel()
    (told,) = [event for event in stage.events("gpu-1", "Warning") if names.GPU_PRESENT in event]
    assert f"=true was written 6 times within 10 minutes: {BY} (by managedFields, last at 2026-" in told
    assert told.endswith("Z) keeps changing it back")
    assert [line["reason"] for line in stage.warnings("Labels are changed back", node="gpu-1")] == [told]
    assert stage.client.stats.total("get", "nodes") - before <= 2, "a fight of hours is looked into when it begins"


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_the_labels_of_an_upgrade_are_no_fight(stage: Stage) -> None:
    await stage.installed()
    for version in (NEW, OLD, NEW):
        await stage.upgrade_to(version)
        await stage.upgraded(version)
    assert stage.warnings("Labels are changed back") == []


ELSEWHERE = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
    {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-2"]}]}]}}}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("app", [names.DRIVER_APP, names.DEVICE_PLUGIN_APP])
def test_an_affinity_that_somebody_adds_by_hand_keeps_no_operand_from_a_node(app: str, restarts: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        other, = stage.pods(names.DRIVER_APP, "gpu-1")
        name = next(ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE)
                    if ds["metadata"]["labels"]["app"] == app)
        if restarts:
            await stage.kill_operator()
        await stage.user.patch_merge(resources.DAEMON_SETS, name, {"spec": {"template": {"spec": {"affinity": ELSEWHERE}}}},
                                     names.DEFAULT_NAMESPACE)
        await stage.rest(60)
        if restarts:
            await stage.restart_operator()
        await stage.until(lambda: len(stage.pods(app, "gpu-2")) == 1, within=300)
        await stage.rest(120)
        await stage.installed()
        assert stage.pods(names.DRIVER_APP, "gpu-1")[0]["metadata"]["uid"] == other["metadata"]["uid"]

    story()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_an_older_manifest_of_ours_that_somebody_applies_is_not_followed(stage: Stage) -> None:
    """As a GitOps tool does with what it once exported, hash and all, while our own writes of it are refused."""
    await stage.installed()
    older = stage.get("daemonsets.apps", names.DRIVER_APP)
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.deploy("train", 3)
    pods = {pod["metadata"]["uid"] for pod in (*stage.pods(names.DRIVER_APP), *stage.workload_pods("train"))}

    def refuse(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        ours = request.method in ("PUT", "PATCH") and request.path.endswith(f"/daemonsets/{names.DRIVER_APP}")
        return refusal(errors.Forbidden("webhook denied the request")) if ours else proceed()

    stage.transport.interfere = refuse

    def apply_older(ds: Object) -> None:
        ds["spec"] = older["spec"]
        ds["metadata"]["annotations"].update(older["metadata"]["annotations"])

    stage.sandbox.store.modify("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP, apply_older)
    await stage.rest(600)
    assert {pod["metadata"]["uid"] for pod in (*stage.pods(names.DRIVER_APP), *stage.workload_pods("train"))} == pods
    assert (stage.drivers(), stage.cordons(), stage.hold("gpu-1")) == ([NEW], [], "TemplateEdited")
    assert stage.condition()["type"] != "Ready"
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.until(lambda: stage.get("daemonsets.apps", names.DRIVER_APP)["spec"]["template"]["spec"]["containers"][0][
        "image"].count(NEW) and not stage.hold("gpu-1"), within=3600)
    assert {pod["metadata"]["uid"] for pod in (*stage.pods(names.DRIVER_APP), *stage.workload_pods("train"))} == pods


@pytest.mark.parametrize("contested", ["annotations", "status"])
@pytest.mark.parametrize("mode", ["clusterpolicy", "nvidiadriver"])
def test_a_fight_over_a_policy_is_paced_and_told(contested: str, mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a", default=True))
        await stage.installed()
        await stage.rest(60)
        gvr, name = (resources.NVIDIA_DRIVERS, "a") if mode == "nvidiadriver" else (resources.CLUSTER_POLICIES, POLICY)
        key, writes = f"{gvr.plural}.nvidia.com", list[float]()

        def count(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method == "PATCH" and gvr.plural in request.path:
                writes.append(stage.clock.now())
            return proceed()

        async def undo() -> None:
            there = stage.get(key, name, "")
            if contested == "annotations" and there["metadata"].get("annotations"):
                await stage.user.patch_merge(gvr, name, {"metadata": {"annotations": None}})
            if contested == "status" and there["status"]["state"] == "ready":
                await stage.user.patch_status(gvr, name, {"state": "notReady"})

        async def fight() -> None:
            while True:
                await undo()
                await asyncio.sleep(0.01)

        stage.transport.interfere = count
        rival = asyncio.create_task(fight())
        await stage.rest(300)
        rival.cancel()
        assert 30 <= len(writes) < 60
        assert any("keeps changing it back" in line["error"] for line in stage.warnings("Action failed"))
        await stage.rest(60)
        there = stage.get(key, name, "")
        assert there["metadata"]["annotations"]
        assert there["status"]["state"] == "ready"

    story()


@on_stage(gpu_nodes=1)
async def test_what_keeps_the_policy_from_going_before_its_daemonset_is_put_back(stage: Stage) -> None:
    await stage.installed()
    before = {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)}

    def unblock(ds: Object) -> None:
        del ds["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]

    stage.sandbox.store.modify("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP, unblock)
    await stage.rest(10)
    (owner,) = stage.get("daemonsets.apps", names.DRIVER_APP)["metadata"]["ownerReferences"]
    assert owner["blockOwnerDeletion"] is True
    assert {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)} == before
