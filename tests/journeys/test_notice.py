"""Notice before pods are evicted: judged from the pods, what is on the nodes, and what their owners read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.timeloop import LoopClock
from tests.journeys.looking import condition_of, explanation_of, obey, reason_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_removed import COMPILED, MODES, installed, remove, users
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_waves import ALL_AT_ONCE, abort, on_new
from tests.journeys.test_windows import ask, window

NOTICE = {"before": "15m"}


def notice_on(stage: Stage, node: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((stage.node(node)["metadata"].get("annotations") or {}).get(names.NOTICE, "{}"))
    return found


def noticed(stage: Stage) -> list[str]:
    return [node for node in stage.states() if notice_on(stage, node)]


async def acknowledge(stage: Stage, pod: str, notice: str) -> None:
    body = {"metadata": {"annotations": {names.ACKNOWLEDGED: notice}}}
    await stage.user.patch_merge(resources.PODS, pod, body, namespace=WORKLOAD_NAMESPACE)


def pod_events(stage: Stage, pod: str) -> list[str]:
    return [event["message"] for event in stage.sandbox.store.list("events", WORKLOAD_NAMESPACE)
            if event["involvedObject"]["name"] == pod and event["involvedObject"]["kind"] == "Pod"
            and event.get("reason") == names.DRIVER_EVENT_REASON]


@MODES
def test_nobody_is_evicted_before_the_time_is_up_and_idle_nodes_do_not_wait(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
        await apply(stage, notice=NOTICE)
        await stage.rest(10)
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: notice_on(stage, "gpu-1"), within=3000)
        given = LoopClock().now()
        assert noticed(stage) == ["gpu-1"]
        assert on_new(stage, old) == ["gpu-2", "gpu-3"], "idle nodes go first, and need no notice"
        await stage.rest(880)
        assert pod in users(stage)
        assert (stage.hold("gpu-1"), stage.cordons()) == ("NoticeGiven", [])
        assert sentence(stage.operator.plan.holds["gpu-1"]).endswith(f"; not acknowledged yet by {WORKLOAD_NAMESPACE}/training")
        await stage.until(lambda: pod not in users(stage))
        assert LoopClock().now() - given >= 900 - 1
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        assert noticed(stage) == []

    scenario()


@MODES
def test_a_node_goes_on_as_soon_as_all_its_pods_have_acknowledged(mode: str) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        both = {stage.run_pod(name, "gpu-1", owned=True)["metadata"]["uid"] for name in ("training", "serving")}
        await apply(stage, notice=NOTICE)
        await stage.rest(10)
        await remove(stage, mode)
        await stage.until(lambda: notice_on(stage, "gpu-1"))
        notice = notice_on(stage, "gpu-1")["id"]
        await acknowledge(stage, "training", notice)
        await stage.rest(60)
        assert both <= users(stage), "one of two has answered"
        whys = {pod.name: pod.why for pod in (await explanation_of(stage, "gpu-1")).pods}
        assert whys == {f"{WORKLOAD_NAMESPACE}/training": "",
                        f"{WORKLOAD_NAMESPACE}/serving": f"it has not acknowledged notice {notice}"}
        assert [line["node"] for line in stage.log if line["msg"] == "Node is given notice before pods are evicted"] == ["gpu-1"]
        command = f"kubectl annotate pod -n {WORKLOAD_NAMESPACE} serving {names.ACKNOWLEDGED}={notice} --overwrite"
        assert command in pod_events(stage, "serving")[-1]
        await acknowledge(stage, "serving", notice)
        await stage.until(lambda: not both & users(stage), within=120)

    scenario()


@on_stage(gpu_nodes=3)
async def test_notice_is_given_to_so_many_nodes_as_may_start_and_keeps_their_places(stage: Stage) -> None:
    await installed(stage, COMPILED, out=2)
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 2)
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await apply(stage, notice=NOTICE)
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: noticed(stage))
    await stage.rest(5)
    assert noticed(stage) == ["gpu-1", "gpu-2"]
    assert stage.operator.plan.counts.unavailable == 0, "they are in service"
    await stage.until(lambda: "1 UnavailableLimit" in condition_of(stage)[2], within=60)
    assert condition_of(stage)[1] == "Progressing"
    assert "2 NoticeGiven (gpu-1, gpu-2)" in condition_of(stage)[2]
    told = sentence(stage.operator.plan.holds["gpu-3"])
    assert told == ("maxUnavailable allows 2, and 2 are out of service, or next (gpu-1, gpu-2); "
                    "2 of them wait for the end of their notice")
    await stage.user.delete(resources.PODS, "train-gpu-3", namespace=WORKLOAD_NAMESPACE)
    await stage.rest(30)
    assert noticed(stage) == ["gpu-1", "gpu-2"]
    assert stage.cordons() == [], "an idle node takes no place that is kept"


@on_stage(gpu_nodes=1)
async def test_a_notice_is_taken_back_by_a_pause_an_abort_and_another_driver(stage: Stage) -> None:
    await installed(stage, COMPILED)
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
    await apply(stage, notice=NOTICE)
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: notice_on(stage, "gpu-1"))
    first = notice_on(stage, "gpu-1")
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: not noticed(stage), within=30)
    assert pod_events(stage, "training")[-1] == f"Notice {first['id']} is taken back: no pod is evicted for it"
    await acknowledge(stage, "training", first["id"])
    await stage.rest(1000)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.until(lambda: notice_on(stage, "gpu-1"))
    second = notice_on(stage, "gpu-1")
    assert second["id"] != first["id"], "an answer to one that was taken back is none to another"
    await abort(stage)
    await stage.until(lambda: not noticed(stage), within=30)
    await stage.rest(1000)
    assert pod in users(stage)
    await stage.patch_policy("driver/version", "580.65.06")
    await stage.until(lambda: notice_on(stage, "gpu-1"))
    third = notice_on(stage, "gpu-1")
    await stage.patch_policy("driver/version", "590.44.01")
    await stage.until(lambda: notice_on(stage, "gpu-1").get("target") not in (None, third["target"]))
    await stage.rest(880)
    assert pod in users(stage)
    await stage.until(lambda: pod not in users(stage), within=60)


@on_stage(gpu_nodes=1)
async def test_a_new_operator_begins_no_time_anew_and_pods_that_come_later_have_what_is_left(stage: Stage) -> None:
    await installed(stage, COMPILED)
    stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, notice=NOTICE)
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: notice_on(stage, "gpu-1"))
    given, notice = LoopClock().now(), notice_on(stage, "gpu-1")
    await stage.rest(600)
    await stage.restart_operator()
    late = stage.run_pod("late", "gpu-1", owned=True)["metadata"]["uid"]
    await stage.rest(200)
    assert notice_on(stage, "gpu-1") == notice
    await acknowledge(stage, "training", notice["id"])
    await stage.rest(60)
    assert late in users(stage), "it has not acknowledged"
    await stage.until(lambda: late not in users(stage), within=120)
    assert 899 <= LoopClock().now() - given <= 1000


@on_stage(gpu_nodes=2)
async def test_where_an_answer_is_required_others_go_on_and_explain_says_what_helps(stage: Stage) -> None:
    await installed(stage, COMPILED)
    pod = stage.run_pod("training", "gpu-1")["metadata"]["uid"]
    await stage.patch_policy("driver/upgradePolicy/podDeletion", {"force": True})
    other = stage.run_pod("serving", "gpu-2", owned=True)["metadata"]["uid"]
    await apply(stage, notice={"before": "1m", "acknowledge": "Required"})
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: stage.hold("gpu-1") == stage.hold("gpu-2") == "NoticeUnanswered", within=600)
    await stage.rest(3600)
    assert {pod, other} <= users(stage)
    assert stage.cordons() == []
    helps = (await explanation_of(stage, "gpu-1")).remedies
    notice = notice_on(stage, "gpu-1")["id"]
    assert helps[0].commands == (
        f"kubectl annotate pod training -n {WORKLOAD_NAMESPACE} {names.ACKNOWLEDGED}={notice} --overwrite",)
    assert helps[0].then == "this node starts at once"
    await acknowledge(stage, "training", notice)
    await stage.until(lambda: pod not in users(stage), within=120)
    await stage.until(lambda: stage.state("gpu-1") == State.DONE)
    assert other in users(stage)
    optional = next(each for each in (await explanation_of(stage, "gpu-2")).remedies if "Optional" in each.do)
    await obey(stage, optional.commands[0])
    await stage.until(lambda: other not in users(stage), within=120)


@on_stage(gpu_nodes=1)
async def test_no_notice_is_given_in_a_window_that_shuts_before_its_end(stage: Stage) -> None:
    await installed(stage, COMPILED)
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
    await apply(stage, notice=NOTICE, windows=[window(0, 600), window(7200, 9000)])
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: stage.hold("gpu-1") == "WindowShut")
    told = sentence(stage.operator.plan.holds["gpu-1"])
    assert "too soon for a notice of 15 min; the next that is long enough opens at" in told, told
    await stage.rest(7000)
    assert (noticed(stage), pod in users(stage)) == ([], True)
    await stage.until(lambda: noticed(stage), within=600)
    await stage.until(lambda: pod not in users(stage), within=960)


@on_stage(gpu_nodes=1)
async def test_a_window_that_shuts_takes_a_notice_back(stage: Stage) -> None:
    await installed(stage, COMPILED)
    pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
    await apply(stage, notice=NOTICE)
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: noticed(stage))
    await edit(stage, windows=[window(300, 36000, "Deny")])
    await stage.rest(400)
    assert noticed(stage) == []
    assert condition_of(stage)[1] == "WindowShut"
    await stage.rest(3600)
    assert pod in users(stage)


@pytest.mark.parametrize("how", ["selector", "deleted"])
def test_pods_are_told_before_their_node_goes_to_another_nvidiadriver(how: str) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await label_pools(stage, b="gpu-1")
        await make(stage, nvidia_driver("b", ALL_AT_ONCE), nvidia_driver("default", ALL_AT_ONCE, default=True, version=NEW))
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
        pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
        await apply(stage, notice=NOTICE)
        await stage.rest(10)
        if how == "deleted":
            await stage.user.delete(resources.NVIDIA_DRIVERS, "b")
        else:
            await set_driver(stage, "b", {"nodeSelector": {"pool": "nobody"}})
        await stage.until(lambda: noticed(stage), within=300)
        given = LoopClock().now()
        await stage.rest(880)
        assert pod in users(stage)
        await stage.until(lambda: pod not in users(stage), within=120)
        assert LoopClock().now() - given >= 899
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_silent_for_a_while_now_and_then_begins_no_notice_anew(stage: Stage) -> None:
    await installed(stage, COMPILED)
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await apply(stage, notice=NOTICE)
    await stage.rest(10)
    (old,) = stage.drivers()
    await ask(stage, COMPILED)
    await stage.until(lambda: noticed(stage))
    (node,) = noticed(stage)
    first = notice_on(stage, node)["id"]
    for _ in range(2):
        await stage.rest(400)
        stage.sandbox.set_node_ready(node, False)
        await stage.rest(20)
        assert (notice_on(stage, node)["id"], noticed(stage)) == (first, [node])
        stage.sandbox.set_node_ready(node, True)
    await stage.until(lambda: stage.driver(node) != old, within=300)


@on_stage(gpu_nodes=2)
async def test_while_windows_are_shut_that_none_is_long_enough_for_a_notice_is_said(stage: Stage) -> None:
    """Each of them is shorter than the notice: nothing would ever start, whatever their next opening is."""
    await installed(stage, COMPILED)
    stage.run_pod("train-gpu-1", "gpu-1", owned=True)
    at = datetime.fromtimestamp(stage.clock.now() + 2 * 3600, UTC)
    await apply(stage, notice={"before": "2h"}, windows=[{"schedule": f"{at.minute} {at.hour} * * *", "duration": "1h"}])
    await stage.rest(10)
    await ask(stage, COMPILED)
    await stage.until(lambda: stage.hold("gpu-1") == "WindowShut")
    told = sentence(stage.operator.plan.holds["gpu-1"])
    assert told.endswith("none that comes is long enough for a notice of 2 h"), told
    assert "they open at" in sentence(stage.operator.plan.holds["gpu-2"])
    await edit(stage, notice={"before": "30m"})
    await stage.until(lambda: "long enough for a notice of 30 min opens at" in sentence(stage.operator.plan.holds["gpu-1"]))
    await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=4 * 3600)


@on_stage(gpu_nodes=1)
async def test_a_notice_that_nobody_has_given_has_no_id_that_could_be_answered(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", 1, node="gpu-1")
    await apply(stage, notice=NOTICE)
    await stage.upgrade_to(NEW)
    await stage.rest(1)
    await stage.kill_operator()
    await stage.rest(30)
    told = await explanation_of(stage, "gpu-1")
    assert (noticed(stage), stage.driver("gpu-1")) == ([], OLD)
    assert reason_of(told) == "its pods are to be given notice: they are evicted 15m after that, or once all have acknowledged it"
    assert not any("annotate pod" in command for remedy in told.remedies for command in remedy.commands)
    stage.begin_operator()
    await stage.until(lambda: notice_on(stage, "gpu-1"), within=900)
    await stage.rest(5)
    told, given = await explanation_of(stage, "gpu-1"), notice_on(stage, "gpu-1")["id"]
    assert reason_of(told).startswith(f"its pods were given notice {given}: ")
    assert any(f"{names.ACKNOWLEDGED}={given}" in command for remedy in told.remedies for command in remedy.commands)
