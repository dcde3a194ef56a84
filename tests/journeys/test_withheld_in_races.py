"""Writes that are each right on their own and meet: a node's labels, its driver pod's restart, and its DaemonSet's next driver.

Nothing may depend on which of them the API server takes first, and each may take its time. As in `test_withheld`, the pods that
count have GPUs and none of them open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.programs import OPENS_GPUS
from kubesandbox.builders import deployment
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, gpu_template, on_stage, policy
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import restarting, set_driver, torn, with_notebooks
from tests.journeys.test_withheld_further import NONE_MAY_START, switched_off

PRECOMPILED: Mapping[str, object] = {"usePrecompiled": True, "version": "580"}
FEWER_CPUS = {"limits": {"cpu": "1"}}
"""What changes driver pods and not their driver."""


def slow(stage: Stage, seconds: float) -> None:
    """Let changes of a node take their time, as behind a webhook."""
    stage.transport.delay = lambda request: seconds if (request.method, request.path) == ("PATCH", "/api/v1/nodes/gpu-1") else 0.0


async def drivers_come(stage: Stage, how: str) -> None:
    """Have drivers of another version made on nodes that have one loaded and no driver pod; none may start."""
    if how == "nvidiadriver":
        await make(stage, nvidia_driver("default", NONE_MAY_START, version=NEW, default=True))
    else:
        await set_driver(stage, {"enabled": True, "upgradePolicy": NONE_MAY_START, **(
            PRECOMPILED if how == "precompiled" else {"version": NEW})})


@pytest.mark.parametrize("change", [{"version": NEW}, PRECOMPILED, {"useNvidiaDriverCRD": True}],
                         ids=["version", "precompiled", "nvidiadrivers"])
@pytest.mark.parametrize("late", [0.0, 0.5, 2.1])
def test_no_other_driver_comes_while_a_driver_pod_is_only_restarted_and_its_pods_may_not_go(
        change: Mapping[str, object], late: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        if "useNvidiaDriverCRD" in change:
            await make(stage, nvidia_driver("default", default=True, version=NEW))
        await stage.patch_policy("driver/resources", FEWER_CPUS)
        await stage.until(lambda: restarting(stage))
        for node in stage.states():
            stage.set_budget(f"notebook-{node}", 0)
        await stage.rest(late)
        await set_driver(stage, change)
        await stage.rest(600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("early", [0.0, 0.5, 1.0])
def test_a_version_that_is_edited_as_a_node_s_restart_begins_waits_for_it(seconds: float, early: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        await stage.patch_policy("driver/resources", FEWER_CPUS)
        await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
        await stage.rest(11.5 - early)
        stage.transport.delay = lambda request: seconds if request.method == "PUT" and "/daemonsets/" in request.path else 0.0
        await set_driver(stage, {"version": NEW})
        await stage.until(lambda: stage.state("gpu-2") == State.POD_RESTART_REQUIRED)
        stage.set_budget("notebook-gpu-2", 0)
        await stage.rest(600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("how", ["precompiled", "nvidiadriver", "plain"])
@pytest.mark.parametrize("seconds", [0.3, 8.0])
def test_a_change_of_a_node_that_takes_long_lets_no_driver_come_that_was_made_meanwhile(how: str, seconds: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        if how == "nvidiadriver":
            await set_driver(stage, {"enabled": True, "useNvidiaDriverCRD": True})
            await stage.rest(60)
        slow(stage, seconds)
        await drivers_come(stage, how)
        await stage.rest(300)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("seconds", [0.3, 8.0])
def test_a_node_without_a_pool_that_is_labelled_slowly_is_emptied_first(seconds: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a"))
        await stage.installed()
        await with_notebooks(stage)
        await stage.label("gpu-1", "pool", None)
        await stage.until(lambda: stage.hold("gpu-1") == "NotSelected" and not driver_pods(stage, "gpu-1"))
        await stage.rest(60)
        slow(stage, seconds)
        await make(stage, nvidia_driver("z", NONE_MAY_START, default=True, version=NEW))
        await stage.rest(300)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("how", ["precompiled", "nvidiadriver"])
def test_a_burst_of_refusals_for_load_tears_no_driver(how: str) -> None:
    @on_stage(gpu_nodes=8)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        if how == "nvidiadriver":
            await set_driver(stage, {"enabled": True, "useNvidiaDriverCRD": True})
            await stage.rest(60)
        refused: list[str] = []

        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method == "PATCH" and "/nodes/gpu-" in request.path and len(refused) < 8:
                refused.append(request.path)
                return refusal(errors.TooManyRequests("too many requests"))
            return proceed()

        stage.transport.interfere, stage.transport.latency = interfere, 0.02
        await drivers_come(stage, how)
        await stage.rest(300)
        assert refused
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=2)
async def test_a_version_that_is_taken_back_and_asked_for_again_tears_no_driver(stage: Stage) -> None:
    await switched_off(stage)
    await drivers_come(stage, "plain")
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    for version in ("595.91.07", NEW, "595.91.07", NEW):
        await set_driver(stage, {"version": version})
        await stage.rest(0.12)
    await stage.rest(300)
    assert torn(stage) == []
    await set_driver(stage, {"version": "595.91.07"})
    await stage.until(lambda: len(driver_pods(stage)) == 2)
    await stage.until(lambda: stage.all_are(State.DONE))
    assert torn(stage) == [], "the same driver comes back under its pods"


def holding(node: str) -> Object:
    """Return a workload that asks for no GPU and holds the driver: it has NVIDIA's runtime class."""
    template = gpu_template(f"monitor-{node}")
    template["metadata"]["annotations"] = {OPENS_GPUS: "false"}
    template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": node}, "runtimeClassName": "nvidia",
                         "containers": [{"name": "main", "image": "registry.example/monitor:1"}]}
    return deployment(f"monitor-{node}", WORKLOAD_NAMESPACE, 1, template)


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_pod_that_only_holds_the_driver_keeps_another_one_away_while_its_driver_pod_is_restarted(late: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        for node in stage.states():
            stage.sandbox.apply(holding(node))
        await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 2)
        before = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        await stage.patch_policy("driver/resources", FEWER_CPUS)
        await stage.until(lambda: restarting(stage))
        await stage.rest(late)
        await set_driver(stage, {"version": NEW})
        await stage.rest(300)
        assert stage.drivers() == [OLD]
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == before
        assert {stage.hold(node) for node in stage.states()} == {"HeldDevices"}

    story()


@pytest.mark.parametrize("skip", [True, False])
def test_a_pod_that_only_holds_the_driver_keeps_another_one_away_from_a_node_without_a_driver_pod(skip: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        for node in stage.states():
            stage.sandbox.apply(holding(node))
        await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 2)
        await stage.switch_off_at_once()
        await stage.until(lambda: not driver_pods(stage))
        await stage.label("gpu-1", names.UPGRADE_SKIP, "true" if skip else None)
        await stage.rest(30)
        await set_driver(stage, {"enabled": True, "version": NEW})
        await stage.rest(300)
        assert stage.driver("gpu-1") == OLD

    story()


@pytest.mark.parametrize("error", [errors.Forbidden, errors.ServerError])
def test_a_node_whose_driver_may_not_be_given_back_says_so_and_holds_no_other(error: type[errors.ApiError]) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        await drivers_come(stage, "plain")
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")

        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            gives = b'gpu.deploy.driver","value":"true"' in request.body.replace(b" ", b"")
            if request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1" and gives:
                return refusal(error("policy X says no"))
            return proceed()

        stage.transport.interfere = interfere
        await set_driver(stage, {"upgradePolicy": {"maxUnavailable": 2, "maxParallelUpgrades": 2}})
        await stage.rest(600)
        assert stage.hold("gpu-1") == "WriteRefused"
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=3600)
        assert stage.driver("gpu-2") == NEW, "others go on"
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.until(lambda: stage.finished(NEW) and not stage.cordons(), within=3 * 3600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("mode", ["plain", "nvidiadriver"])
def test_where_upgrades_are_by_hand_an_idle_node_gets_its_driver_back_whatever_version_that_is(mode: str) -> None:
    @on_stage(gpu_nodes=1, upgrade={"autoUpgrade": False})
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", {"autoUpgrade": False}, default=True))
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
        await stage.rest(60)
        await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")
        await stage.until(lambda: not driver_pods(stage))
        if mode == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": {"version": NEW}})
        else:
            await set_driver(stage, {"version": NEW})
        await stage.rest(60)
        await stage.label("gpu-1", names.DEPLOY_OPERANDS, None)
        await stage.until(lambda: stage.drivers() == [NEW], within=900)

    story()


@pytest.mark.parametrize("seconds", [0.0, 5.0])
@pytest.mark.parametrize("mode", ["plain", "nvidiadriver"])
def test_upgrades_that_become_a_person_s_with_another_version_tear_no_driver(mode: str, seconds: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        await with_notebooks(stage)

        async def edit(spec: dict[str, object]) -> None:
            if mode == "nvidiadriver":
                await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": spec})
            else:
                await set_driver(stage, spec)

        await edit({"resources": FEWER_CPUS})
        await stage.until(lambda: restarting(stage))
        slow(stage, seconds)
        await edit({"version": NEW, "upgradePolicy": {"autoUpgrade": False}})
        await stage.rest(900)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("how", ["plain", "precompiled", "nvidiadriver", "moved"])
def test_a_pod_that_only_holds_the_driver_stops_no_node_where_such_ones_are_ignored(how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.user.create(resources.ROLLOUT_POLICIES, {
            "apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"deviceHolders": "Ignore"}})
        await stage.installed()
        stage.sandbox.apply(holding("gpu-1"))
        await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 1)
        if how != "moved":
            await stage.switch_off_at_once()
            await stage.until(lambda: not driver_pods(stage))
            await stage.rest(30)
        if how in ("nvidiadriver", "moved"):
            await set_driver(stage, {"enabled": True, "useNvidiaDriverCRD": True})
            await make(stage, nvidia_driver("default", version=NEW, default=True))
        else:
            await set_driver(stage, {"enabled": True, **(PRECOMPILED if how == "precompiled" else {"version": NEW})})
        await stage.until(lambda: stage.finished("580" if how == "precompiled" else NEW) and not stage.cordons(), within=1800)

    story()


@on_stage(gpu_nodes=2)
async def test_a_node_that_lacks_its_label_and_loses_its_cordon_is_cordoned_again(stage: Stage) -> None:
    """It gets the label only while it is cordoned, and would wait for its driver pod until its deadline."""
    lifted: list[str] = []

    def lift(event: Event) -> None:
        name, labels = event.obj["metadata"]["name"], event.obj["metadata"]["labels"]
        waits = labels.get(names.UPGRADE_STATE) == State.POD_RESTART_REQUIRED and names.DEPLOY_DRIVER not in labels
        if waits and event.obj["spec"].get("unschedulable") and not lifted:
            lifted.append(name)
            stage.sandbox.store.modify("nodes", None, name, lambda node: node["spec"].pop("unschedulable"))

    await stage.installed()
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await stage.until(lambda: all(map(is_ready, stage.workload_pods())))
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(60)
    stage.sandbox.store.subscribe(lift, "nodes")
    body = policy()
    body["spec"]["driver"]["version"] = NEW
    await stage.user.create(resources.CLUSTER_POLICIES, body)
    await stage.upgraded(within=900)
    assert (len(lifted), torn(stage), stage.cordons()) == (1, [], [])
