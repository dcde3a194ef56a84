"""Images brought onto nodes before their turn: judged by how long nodes are out of service, and by the pods that are there."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuward import names
from gpuward.errors import Forbidden, ServerError
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault, FaultKind
from kubesandbox.store import Event
from tests.journeys.looking import explanation_of, headline_of, obey, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, set_driver
from tests.journeys.test_removed import MODES, installed
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_windows import ask, started, window

PULL = 300.0
"""Seconds that a machine takes to pull an image that it does not have."""
IMAGE = {"mode": "Image"}


def slow(stage: Stage) -> None:
    """Let pulling an image take its time from now on."""
    stage.sandbox.pull_seconds = lambda image: PULL


def staging_pods(stage: Stage) -> list[dict[str, Any]]:
    """Return the pods that only have images pulled."""
    return stage.pods(names.STAGING_APP)


def out_of_service(stage: Stage) -> dict[str, float]:
    """Return for how many seconds each node was cordoned."""
    spent: dict[str, float] = {}
    since: dict[str, float] = {}
    for moment in stage.history:
        if moment.cordoned:
            since.setdefault(moment.node, moment.at)
        elif moment.node in since:
            spent[moment.node] = spent.get(moment.node, 0.0) + moment.at - since.pop(moment.node)
    return spent


def remembered(stage: Stage) -> list[str]:
    """Return what nodes remember of images brought onto them."""
    found = ((node["metadata"].get("annotations") or {}).get(names.STAGED) for node in stage.gpu_node_objects())
    return [text for text in found if text]


@MODES
def test_a_node_is_out_of_service_without_the_time_that_pulling_takes(mode: str) -> None:
    spent = {}
    for prestage in (None, IMAGE):
        @on_stage(gpu_nodes=2)
        async def scenario(stage: Stage, prestage: dict[str, Any] | None = prestage) -> None:
            await installed(stage, mode)
            (old,) = stage.drivers()
            stage.run_pod("training", "gpu-1", owned=True)
            await stage.rest(10)
            slow(stage)
            if prestage:
                await apply(stage, prestage=prestage)
            await stage.rest(5)
            await ask(stage, mode)
            await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=4000)
            await stage.rest(60)
            assert (staging_pods(stage), stage.cordons(), remembered(stage)) == ([], [], [])
            spent[bool(prestage)] = max(out_of_service(stage).values())

        scenario()
    assert spent[False] > PULL
    assert spent[True] < PULL / 3
    assert spent[False] - spent[True] == pytest.approx(PULL, abs=20)


def broken_on(node: str = "*") -> Fault:
    """Return the fault by which the new driver's image cannot be pulled."""
    return Fault(FaultKind.IMAGE_PULL, node=node, image=f"*driver:{NEW}*")


async def waiting(stage: Stage, prestage: dict[str, Any], pull: float = PULL) -> None:
    """Have the stack installed, and ask for another driver whose images take long to pull."""
    await stage.installed()
    stage.sandbox.pull_seconds = lambda image: pull
    await apply(stage, prestage=prestage)
    await stage.rest(5)
    await stage.upgrade_to(NEW)


@on_stage(gpu_nodes=5, upgrade={"maxParallelUpgrades": 5, "maxUnavailable": "100%"})
async def test_so_many_nodes_pull_at_once_and_those_that_have_their_images_go_on(stage: Stage) -> None:
    most = 0

    def look(event: Event) -> None:
        nonlocal most
        most = max(most, sum(pod["status"].get("phase") == "Pending" for pod in staging_pods(stage)))

    stage.sandbox.store.subscribe(look, "pods")
    await waiting(stage, {**IMAGE, "parallel": 2})
    await stage.rest(60)
    assert {pod["spec"]["nodeName"] for pod in staging_pods(stage)} == {"gpu-1", "gpu-2"}
    assert started(stage) == []
    assert {stage.hold(node) for node in stage.states()} == {"ImageNotStaged"}
    assert "0 of 5 waiting nodes have the next driver's images" in await headline_of(stage)
    assert "0 of 5 waiting nodes have the next driver's images" in json.dumps(stage.policy_status())
    told = await status_of(stage)
    assert (told["counts"]["staging"], told["counts"]["staged"]) == (5, 0)
    assert {group["group"] for group in told["groups"]} == {"waiting"}
    await stage.rest(PULL)
    assert started(stage) == ["gpu-1", "gpu-2"]
    await stage.upgraded(NEW)
    assert most == 2
    assert max(out_of_service(stage).values()) < PULL / 3


@on_stage(gpu_nodes=2)
async def test_such_a_pod_has_no_rights_and_does_nothing_of_the_drivers(stage: Stage) -> None:
    await waiting(stage, IMAGE)
    await stage.rest(10)
    pod, driver = staging_pods(stage)[0], stage.driver_pod("gpu-1")
    assert {one["image"] for one in pod["spec"]["containers"]} == {
        one["image"].replace(OLD, NEW) for part in ("containers", "initContainers") for one in driver["spec"].get(part) or ()}
    assert all(one["command"] == ["true"] for one in pod["spec"]["containers"])
    assert pod["spec"].get("volumes", []) == []
    assert pod["spec"]["priority"] == 0
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "RolloutPolicy"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await stage.user.create(resources.NAMESPACES, space)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "like-it", "namespace": "strict"},
            "spec": {key: pod["spec"][key] for key in ("containers", "securityContext", "restartPolicy")}}
    await stage.user.create(resources.PODS, body)
    assert not [each for each in driver_pods(stage) if each["metadata"]["uid"] == pod["metadata"]["uid"]]
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW)


@on_stage(gpu_nodes=3)
async def test_a_node_without_its_images_keeps_its_driver_and_others_go_on(stage: Stage) -> None:
    stage.sandbox.faults.add(broken_on("gpu-1"))
    await waiting(stage, IMAGE, pull=10)
    await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == NEW, within=900)
    await stage.rest(600)
    assert (stage.driver("gpu-1"), stage.hold("gpu-1"), stage.cordons()) == (OLD, "StagingFailed", [])
    told = await explanation_of(stage, "gpu-1")
    assert "container nvidia-driver-ctr: ImagePullBackOff" in str(told)
    assert [remedy.do for remedy in told.remedies][:1] == ["set prestage.onFailure: Ignore"]
    attempts = json.loads(remembered(stage)[0])["attempts"]
    await stage.rest(3600)
    assert attempts < json.loads(remembered(stage)[0])["attempts"] <= attempts + 3
    stage.sandbox.faults.clear()
    await stage.until(lambda: stage.finished(NEW), within=4000)
    assert (staging_pods(stage), remembered(stage)) == ([], [])


@on_stage(gpu_nodes=2)
async def test_a_node_goes_without_its_images_where_that_is_wanted(stage: Stage) -> None:
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, pod="gpuward-prestage-*", node="gpu-1"))
    await waiting(stage, IMAGE, pull=10)
    await stage.rest(900)
    assert (stage.driver("gpu-1"), stage.hold("gpu-1")) == (OLD, "StagingFailed")
    for command in (await explanation_of(stage, "gpu-1")).remedies[0].commands:
        await obey(stage, command)
    await stage.upgraded(NEW, within=900)
    assert remembered(stage) == []


@on_stage(gpu_nodes=2)
async def test_a_disk_that_is_nearly_full_gets_no_image(stage: Stage) -> None:
    await stage.installed()
    pressure(stage, "gpu-1", "True")
    await waiting(stage, IMAGE, pull=10)
    await stage.until(lambda: stage.driver("gpu-2") == NEW)
    await stage.rest(300)
    assert (stage.driver("gpu-1"), stage.hold("gpu-1"), staging_pods(stage)) == (OLD, "StagingFailed", [])
    assert "DiskPressure" in str(await explanation_of(stage, "gpu-1"))
    pressure(stage, "gpu-1", "False")
    await stage.upgraded(NEW)


def pressure(stage: Stage, node: str, status: str) -> None:
    """Let a kubelet say whether its disk is nearly full."""
    def change(obj: dict[str, Any]) -> None:
        others = [one for one in obj["status"].get("conditions") or () if one["type"] != "DiskPressure"]
        obj["status"]["conditions"] = [*others, {"type": "DiskPressure", "status": status}]
    stage.sandbox.store.patch_status("nodes", None, node, change)


async def _switch_off(stage: Stage) -> None:
    await edit(stage, prestage=None)


async def _delete(stage: Stage) -> None:
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")


async def _spoil(stage: Stage) -> None:
    await edit(stage, windows=[{"schedule": "0 22 * * *", "duration": "6h", "timeZone": "Mars/Olympus"}])


async def _go_back(stage: Stage) -> None:
    await stage.patch_policy("driver/version", OLD)


async def _pause(stage: Stage) -> None:
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)


async def _skip(stage: Stage) -> None:
    for node in stage.states():
        await stage.label(node, names.UPGRADE_SKIP, "true")


async def _remove_nodes(stage: Stage) -> None:
    for node in list(stage.states()):
        await stage.user.delete(resources.NODES, node)


ENDS = [_switch_off, _delete, _spoil, _go_back, _pause, _skip, _remove_nodes]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.strip("_"))
def test_nothing_is_left_when_nobody_waits_for_images_any_more(end: Callable[[Stage], Awaitable[None]], restarted: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await waiting(stage, IMAGE, pull=3000)
        await stage.until(lambda: len(staging_pods(stage)) == 3)
        if restarted:
            await stage.kill_operator()
        await end(stage)
        if restarted:
            await stage.restart_operator()
        await stage.until(lambda: not staging_pods(stage), within=120)
        await stage.rest(30)
        assert staging_pods(stage) == []

    scenario()


@pytest.mark.parametrize("automatic", [True, False])
def test_nothing_is_brought_for_a_driver_that_is_switched_off(automatic: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await _pause(stage)
        await apply(stage, prestage=IMAGE)
        await stage.patch_policy("driver/version", NEW)
        await stage.rest(60)
        assert staging_pods(stage) == [], "upgrades are off"
        made: list[str] = []
        stage.sandbox.store.subscribe(
            lambda event: made.append(event.obj["metadata"]["name"]) if event.obj["metadata"].get("labels", {}).get("app")
            == names.STAGING_APP else None, "pods")
        await stage.patch_policy("driver", {"enabled": False, "upgradePolicy": {"autoUpgrade": automatic}})
        await stage.until(lambda: not stage.pods(names.DRIVER_APP), within=600)
        assert made == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_another_target_has_its_own_images_brought(stage: Stage) -> None:
    await waiting(stage, IMAGE, pull=3000)
    await stage.rest(10)
    before = {pod["metadata"]["uid"] for pod in staging_pods(stage)}
    stage.sandbox.pull_seconds = lambda image: 60.0
    await stage.upgrade_to("595.91.09")
    await stage.rest(10)
    pods = staging_pods(stage)
    assert len(pods) == 2
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    assert all("595.91.09" in str(pod["spec"]["containers"]) for pod in pods)
    await stage.upgraded("595.91.09")


@on_stage(gpu_nodes=2)
async def test_a_new_operator_goes_on_with_the_pods_that_are_there(stage: Stage) -> None:
    await waiting(stage, IMAGE)
    await stage.rest(60)
    before = {pod["metadata"]["uid"] for pod in staging_pods(stage)}
    await stage.restart_operator()
    await stage.rest(60)
    assert {pod["metadata"]["uid"] for pod in staging_pods(stage)} == before
    await stage.rest(PULL)
    await stage.restart_operator()
    await stage.upgraded(NEW)
    assert max(out_of_service(stage).values()) < PULL / 3


@on_stage(gpu_nodes=2)
async def test_images_are_brought_before_a_window_opens(stage: Stage) -> None:
    await stage.installed()
    slow(stage)
    await apply(stage, prestage=IMAGE, windows=[window(3600, 7200)])
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.rest(3400)
    assert (started(stage), staging_pods(stage), len(remembered(stage))) == ([], [], 2)
    assert "2 of 2 waiting nodes have the next driver's images" in await headline_of(stage)
    await stage.until(lambda: stage.finished(NEW), within=200 + PULL)


@pytest.mark.parametrize("choice", ["Hold", "Ignore"])
def test_without_the_right_to_make_pods_it_says_so(choice: str) -> None:
    asked: list[str] = []

    def no_pods(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method != "POST" or not request.path.endswith("/pods"):
            return proceed()
        asked.append(request.path)
        return refusal(Forbidden('pods is forbidden: User "gpuward" cannot create resource "pods"'))

    @on_stage(gpu_nodes=3, interfere=no_pods)
    async def scenario(stage: Stage) -> None:
        await waiting(stage, {**IMAGE, "onFailure": choice}, pull=10)
        if choice == "Ignore":
            await stage.upgraded(NEW)
            assert any('cannot create resource "pods"' in event["message"] for event in stage.sandbox.store.list("events"))
            return
        await stage.rest(3600)
        assert started(stage) == []
        assert 'cannot create resource "pods"' in str(await explanation_of(stage, "gpu-1"))
        assert set(asked) == {f"/api/v1/namespaces/{names.DEFAULT_NAMESPACE}/pods"}
        assert 3 * 4 <= len(asked) <= 3 * 8
        assert sum(json.loads(text)["attempts"] for text in remembered(stage)) == len(asked)

    scenario()


@on_stage(gpu_nodes=2, upgrade={"drain": {"enable": True, "force": False}})
async def test_such_a_pod_is_in_the_way_of_no_drain(stage: Stage) -> None:
    await waiting(stage, {**IMAGE, "parallel": 1}, pull=60)
    await stage.upgraded(NEW)
    assert not [line for line in stage.log if "gpuward-prestage" in json.dumps(line) and "Evicted" in line.get("msg", "")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"images":1}', '{"images":"x","at":"never"}', "x" * 100_000])
def test_garbage_on_a_node_is_nothing(text: str) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.STAGED: text}}})
        await waiting(stage, IMAGE)
        await stage.rest(PULL / 2)
        assert started(stage) == []
        await stage.upgraded(NEW)
        assert remembered(stage) == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_pull_that_does_not_end_is_given_up_and_tried_again_later(stage: Stage) -> None:
    await waiting(stage, {**IMAGE, "parallel": 1}, pull=10 * 3600)
    await stage.rest(3500)
    assert [pod["spec"]["nodeName"] for pod in staging_pods(stage)] == ["gpu-1"]
    await stage.rest(130)
    assert stage.hold("gpu-1") == "StagingFailed"
    assert "not pulled within 60 minutes" in str(await explanation_of(stage, "gpu-1"))
    assert [pod["spec"]["nodeName"] for pod in staging_pods(stage)] == ["gpu-2"]
    stage.sandbox.pull_seconds = lambda image: 10.0
    await stage.upgraded(NEW, within=2 * 3600)


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_out_of_service_already_does_not_wait_for_its_images(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, node="gpu-1", image=f"*driver:{OLD}*"))
    await stage.user.delete(resources.PODS, stage.driver_pod("gpu-1")["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.rest(60)
    stage.sandbox.pull_seconds = lambda image: 600.0
    await apply(stage, prestage=IMAGE)
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "gpu-1" in started(stage), within=60)
    assert "gpu-2" not in started(stage)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=2)
async def test_a_node_that_was_not_ready_for_a_moment_waits_for_its_images(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, prestage=IMAGE)
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "StagingFailed", within=900)
    stage.sandbox.set_node_ready("gpu-1", False)
    await stage.until(lambda: stage.hold("gpu-1") == "NodeNotReady")
    await stage.rest(3)
    stage.sandbox.set_node_ready("gpu-1", True)
    await stage.rest(300)
    assert (stage.hold("gpu-1"), stage.sandbox.machine("gpu-1").driver, stage.cordons()) == ("StagingFailed", OLD, [])


@on_stage(gpu_nodes=4)
async def test_each_nvidiadriver_has_its_own_images_brought_and_all_share_the_limit(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    for node in stage.states():
        await stage.label(node, "pool", "a" if node in ("gpu-1", "gpu-2") else "b")
    await make(stage, *(nvidia_driver(pool, {"autoUpgrade": True, "maxUnavailable": 2}) for pool in "ab"))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD], within=1800)
    slow(stage)
    await apply(stage, prestage={**IMAGE, "parallel": 3})
    await stage.rest(5)
    for pool, version in (("a", NEW), ("b", "595.91.09")):
        await set_driver(stage, pool, {"version": version})
    await stage.rest(60)
    brought = {pod["spec"]["nodeName"]: str(pod["spec"]["containers"]) for pod in staging_pods(stage)}
    assert len(brought) == 3
    assert all((NEW in text) == (node in ("gpu-1", "gpu-2")) for node, text in brought.items())
    await stage.until(lambda: stage.drivers() == [NEW, "595.91.09"] and stage.all_are(State.DONE), within=3000)
    assert max(out_of_service(stage).values()) < PULL / 3


@on_stage(gpu_nodes=1)
async def test_a_failure_that_is_yet_to_come_keeps_nothing_waiting(stage: Stage) -> None:
    await stage.installed()
    slow(stage)
    await apply(stage, prestage=IMAGE)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: bool(staging_pods(stage)))
    digest = staging_pods(stage)[0]["metadata"]["labels"][names.STAGING_IMAGES]
    text = json.dumps({"images": digest, "at": "2999-01-01T00:00:00Z", "failed": "by hand", "attempts": 1})
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.STAGED: text}}})
    await stage.user.delete(resources.PODS, staging_pods(stage)[0]["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.upgraded(NEW, within=2 * PULL)


def answer_falsely(stage: Stage, state: State, *, times: int = 1) -> list[str]:
    """Let the API server say so many times that it did not write a state of gpu-1, the last time untruly; return what it was."""
    failed: list[str] = []

    def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
        mine = (request.method, request.path) == ("PATCH", "/api/v1/nodes/gpu-1") and state in str(request.body)
        if len(failed) == times or not mine:
            return proceed()
        failed.append(str(request.body))
        if len(failed) == times:
            proceed()
        return refusal(ServerError("request did not complete within the allotted timeout"))

    stage.transport.interfere = interfere
    return failed


@pytest.mark.parametrize(("times", "within"), [(1, 120), (3, 120), (6, 180)])
def test_an_answer_that_failed_keeps_no_image_away(times: int, within: float) -> None:
    """The node's state is written, and the API server says otherwise: nobody tries it again while the window is shut."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, prestage=IMAGE, windows=[window(3600, 7200)])
        await stage.rest(5)
        failed = answer_falsely(stage, State.UPGRADE_REQUIRED, times=times)
        await stage.upgrade_to(NEW)
        await stage.rest(within)
        assert len(failed) == times
        assert (len(remembered(stage)), staging_pods(stage)) == (2, [])

    scenario()


@on_stage(gpu_nodes=2)
async def test_an_answer_that_failed_once_keeps_nothing_remembered(stage: Stage) -> None:
    """The driver is taken back: the node's state is written, the API server says otherwise, and nothing else is to be written."""
    await stage.installed()
    await apply(stage, prestage=IMAGE, windows=[window(3600, 7200)])
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: len(remembered(stage)) == 2 and not staging_pods(stage))
    failed = answer_falsely(stage, State.DONE)
    await stage.upgrade_to(OLD)
    await stage.until(lambda: stage.all_are(State.DONE))
    await stage.rest(120)
    assert (len(failed), remembered(stage)) == (1, [])


@on_stage(gpu_nodes=2)
async def test_a_pod_that_lost_its_labels_keeps_no_other_node_waiting(stage: Stage) -> None:
    """The operator does not follow it any more, and one of its name cannot be made."""
    await waiting(stage, {**IMAGE, "parallel": 1}, pull=30)
    await stage.until(lambda: staging_pods(stage))
    pod, = staging_pods(stage)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    other, = {"gpu-1", "gpu-2"} - {node}
    await stage.user.patch_merge(resources.PODS, name, {"metadata": {"labels": None}}, names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.state(other) == State.DONE and stage.hold(node) == "StagingFailed")
    assert any(f"there is a pod {names.DEFAULT_NAMESPACE}/{name} already" in text for text in stage.events(node))
    await stage.user.delete(resources.PODS, name, names.DEFAULT_NAMESPACE)
    await stage.upgraded()


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("choice", ["Hold", "Ignore"])
def test_a_pod_that_does_not_stop_is_named(choice: str, newer: bool) -> None:
    """Nothing can be pulled while it is there, be it for this driver or for an earlier one."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await waiting(stage, {**IMAGE, "parallel": 1, "onFailure": choice}, pull=60)
        await stage.until(lambda: staging_pods(stage))
        pod, = staging_pods(stage)
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        other, = {"gpu-1", "gpu-2"} - {node}
        kept = {"metadata": {"finalizers": ["example.com/audit"]}}
        await stage.user.patch_merge(resources.PODS, name, kept, names.DEFAULT_NAMESPACE)
        version = "595.91.09" if newer else NEW
        await stage.upgrade_to(version)
        if not newer:
            await stage.user.delete(resources.PODS, name, names.DEFAULT_NAMESPACE)
        if choice == "Ignore":
            await stage.upgraded(version, within=900)
            return
        await stage.until(lambda: stage.driver(other) == version and stage.state(other) == State.DONE, within=900)
        await stage.rest(7200)
        assert (stage.hold(node), stage.driver(node), stage.cordons()) == ("StagingFailed", OLD, [])
        told = f"pod {names.DEFAULT_NAMESPACE}/{name} does not stop, kept by its finalizers example.com/audit"
        assert told in str(await explanation_of(stage, node))
        assert json.loads(remembered(stage)[0])["attempts"] < 10
        await stage.user.patch_merge(resources.PODS, name, {"metadata": {"finalizers": None}}, names.DEFAULT_NAMESPACE)
        await stage.upgraded(version, within=2 * 3600)
        assert (staging_pods(stage), remembered(stage)) == ([], [])

    scenario()
