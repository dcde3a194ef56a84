"""Drivers that the ClusterPolicy switches off: which go, which run on, and what is said of their nodes."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.cli.drivers import without_pools
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.machine import HOST_DRIVER_ANNOTATION
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from tests.journeys.looking import condition_of, explanation_of, headline_of, looking, reason_of
from tests.journeys.stage import NEW, OLD, POLICY, Object, Proceed, Stage, on_stage, policy
from tests.journeys.test_moves import Watcher, be_precompiled, with_one_owner, with_workloads
from tests.journeys.test_nvidiadriver import condition as driver_condition
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver
from tests.journeys.test_status_screen import delete_pods

OFF = "driver.enabled is false: no drivers are managed"
WHAT_TO_DO = ("cordon and reboot such a node, with a driver installed on the host if its GPUs are to be used, or set "
              "nvidia.com/gpu.deploy.operands=false on it")


def off_with(nodes: int) -> str:
    """Return what is told once drivers are off and their modules still loaded on so many nodes."""
    offer = f"{nodes} nodes offer" if nodes > 1 else "1 node offers"
    return f"{OFF}; {offer} GPUs by a driver that is still loaded and that nobody serves: {WHAT_TO_DO}"


class OnHosts(Stage):
    """Every node has a driver of its own, and a setting of precompiled drivers is left over."""

    def _nodes(self) -> list[Object]:
        nodes = super()._nodes()
        for node in nodes:
            node["metadata"].setdefault("annotations", {})[HOST_DRIVER_ANNOTATION] = OLD
        return nodes

    def _policy(self) -> Object:
        body = policy()
        body["spec"]["driver"] |= {"enabled": False, "usePrecompiled": True, "version": "580"}
        return body


class WithoutDrivers(OnHosts):
    """No node has a driver of its own, though the ClusterPolicy installs none."""

    def _nodes(self) -> list[Object]:
        return Stage._nodes(self)


@on_stage(gpu_nodes=2, kind=WithoutDrivers)
async def test_a_host_without_a_driver_is_told_what_to_do(stage: Stage) -> None:
    for seconds in (60, 600):
        await stage.rest(seconds)
        first, second = (await explanation_of(stage, "gpu-1")).remedies
        assert first.do.startswith("install a driver on the host, or see why the one there does not work: driver.")
        (command,) = first.commands
        pod = command.split()[2]
        assert command == f"kubectl logs {pod} -n gpu-operator -c driver-validation"
        assert pod in [each["metadata"]["name"] for each in stage.sandbox.store.list("pods", "gpu-operator")
                       if each["spec"].get("nodeName") == "gpu-1"]
        assert second.do == "or have gpuward install drivers: set driver.enabled to true"
    await stage.patch_policy("driver/usePrecompiled", False)
    await stage.patch_policy("driver/version", OLD)
    await stage.patch_policy("driver/enabled", True)
    await stage.rest(300)
    assert stage.driver("gpu-1") == OLD
    assert (await explanation_of(stage, "gpu-1")).remedies == ()


@on_stage(gpu_nodes=2, kind=OnHosts)
async def test_hosts_with_drivers_of_their_own_wait_for_no_precompiled_one(stage: Stage) -> None:
    await stage.until(lambda: stage.policy_status().get("state") == "ready")
    assert (await explanation_of(stage, "gpu-1")).remedies == ()
    await stage.rest(120)
    assert condition_of(stage) == ("", "", ""), "no node was ever to be upgraded"
    assert {stage.hold(node) for node in stage.states()} == {""}
    assert driver_pods(stage) == []
    told = await explanation_of(stage, "gpu-1")
    assert (told.status, reason_of(told)) == (None, "ClusterPolicy cluster-policy has driver.enabled: false")
    assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {OFF}"


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_read_says_where_a_driver_is_still_loaded_that_nobody_serves(at_once: bool) -> None:
    """The device plugin and DCGM hold the modules open, so that these nodes go on offering GPUs."""
    @on_stage(gpu_nodes=2, upgrade={"autoUpgrade": True})
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await (stage.switch_off_at_once() if at_once else stage.patch_policy("driver/enabled", False))
        await stage.until(lambda: not driver_pods(stage) and condition_of(stage)[:2] == ("Unknown", "NoNodes"), within=1800)
        await stage.rest(120)
        machines = [stage.sandbox.machine(node) for node in ("gpu-1", "gpu-2")]
        assert [(machine.driver, machine.server) for machine in machines] == [(OLD, ""), (OLD, "")]
        told = off_with(2)
        assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {told}"
        assert condition_of(stage) == ("Unknown", "NoNodes", told)
        async with looking(stage) as picture:
            assert without_pools(picture.snapshot) == "no node has a driver that is served; one is still loaded on gpu-1, gpu-2"
        why = f"its driver is still loaded, nobody serves it, and the node offers its GPUs: {WHAT_TO_DO}"
        assert reason_of(await explanation_of(stage, "gpu-1")) == f"ClusterPolicy cluster-policy has driver.enabled: false; {why}"
        await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")
        await stage.until(lambda: "1 node offers" in condition_of(stage)[2])
        await stage.patch_policy("driver/enabled", True)
        await stage.label("gpu-1", names.DEPLOY_OPERANDS, None)
        await stage.until(lambda: len(driver_pods(stage)) == 2)
        await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"))
        assert "nobody serves" not in await headline_of(stage)

    scenario()


@on_stage(gpu_nodes=1, upgrade={"autoUpgrade": True})
async def test_a_validator_that_begins_where_a_driver_was_left_loaded_finds_no_libraries(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/enabled", False)
    await stage.until(lambda: not driver_pods(stage) and condition_of(stage)[:2] == ("Unknown", "NoNodes"), within=1800)
    [validator] = stage.pods(names.VALIDATOR_APP)
    await stage.user.delete(resources.PODS, validator["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.rest(300)
    [validator] = stage.pods(names.VALIDATOR_APP)
    assert (stage.driver("gpu-1"), is_ready(validator), stage.policy_status()["state"]) == (OLD, False, "notReady")
    assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {off_with(1)}"


@on_stage(gpu_nodes=2)
async def test_precompiled_drivers_that_are_switched_off_go_with_their_daemonsets(stage: Stage) -> None:
    await be_precompiled(stage)
    await stage.patch_policy("driver/enabled", False)
    await stage.until(lambda: not driver_pods(stage))
    left = [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")]
    assert not [name for name in left if name.startswith(names.DRIVER_APP)]
    await stage.until(lambda: condition_of(stage)[:2] == ("Unknown", "NoNodes"))
    assert set(stage.states().values()) == {""}
    assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {off_with(2)}"
    await stage.patch_policy("driver/enabled", True)
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate") and stage.all_are(State.DONE))
    assert len(driver_pods(stage)) == 2


@on_stage(gpu_nodes=2)
async def test_precompiled_drivers_that_are_switched_off_while_the_mode_changes_go(stage: Stage) -> None:
    await be_precompiled(stage)
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": {
        "enabled": False, "usePrecompiled": False, "version": OLD}}})
    await stage.until(lambda: not driver_pods(stage))
    await stage.until(lambda: condition_of(stage)[:2] == ("Unknown", "NoNodes"))


@pytest.mark.parametrize("more", [{}, {"usePrecompiled": True, "version": "580"}])
def test_drivers_of_nvidia_drivers_run_on_until_those_are_deleted(more: Object) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        watcher = await with_one_owner(stage)
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": {
            "useNvidiaDriverCRD": False, "enabled": False, **more}}})
        await stage.rest(300)
        assert watcher.torn == []
        told = ("useNvidiaDriverCRD is not enabled in ClusterPolicy; its drivers run on 2 nodes until it is deleted: "
                "driver.enabled is false in ClusterPolicy")
        assert driver_condition(stage, "default") == ("disabled", "Reconciled", told)
        assert condition_of(stage)[:2] == ("Unknown", "NoNodes")
        assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {OFF}"
        pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
        why = f"driver.enabled: false; driver pod {pod} runs on until NVIDIADriver default is deleted"
        assert reason_of(await explanation_of(stage, "gpu-1")) == f"ClusterPolicy cluster-policy has {why}"
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
        await stage.until(lambda: driver_pods(stage) == [], within=1800)
        assert watcher.torn == []

    scenario()


async def left_without_a_daemonset(stage: Stage) -> None:
    """Take the driver pods from their DaemonSet and switch drivers off, before the operator makes it again."""
    await stage.kill_operator()
    for ds in stage.sandbox.store.list("daemonsets.apps"):
        if ds["metadata"]["name"].startswith(names.DRIVER_APP):
            stage.sandbox.store.delete("daemonsets.apps", names.DEFAULT_NAMESPACE, ds["metadata"]["name"], propagation="Orphan")
    await stage.rest(5)
    await stage.patch_policy("driver/enabled", False)
    await stage.restart_operator()


@pytest.mark.parametrize("precompiled", [False, True])
def test_drivers_that_somebody_took_from_their_daemonset_go_node_by_node_when_drivers_are_off(precompiled: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade={"autoUpgrade": True})
    async def scenario(stage: Stage) -> None:
        await (be_precompiled(stage) if precompiled else stage.installed())
        watcher = await with_workloads(stage)
        await left_without_a_daemonset(stage)
        await stage.until(lambda: condition_of(stage)[:2] == ("Unknown", "NoNodes"), within=1800)
        assert (driver_pods(stage), watcher.torn, stage.most_in_progress) == ([], [], 1)
        assert set(stage.states().values()) == {""}
        assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {off_with(2)}"

    scenario()


@on_stage(gpu_nodes=2, upgrade={"autoUpgrade": True})
async def test_an_upgrade_to_drivers_that_were_switched_off_becomes_their_removal(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("work", 2, max_unavailable=1)
    watcher = Watcher(stage)

    def close(event: Event) -> None:
        if event.obj["metadata"]["labels"].get(names.UPGRADE_STATE) == State.POD_DELETION_REQUIRED:
            stage.set_budget("work", 0)

    stage.sandbox.store.subscribe(close, "nodes")
    await stage.upgrade_to()
    await stage.until(lambda: State.POD_DELETION_REQUIRED in stage.states().values())
    users = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    await left_without_a_daemonset(stage)
    await stage.rest(60)
    assert (users, watcher.torn) == ({pod["metadata"]["uid"] for pod in stage.workload_pods()}, [])
    stage.set_budget("work", 1)
    await stage.rest(600)
    assert watcher.torn == []


@pytest.mark.parametrize("precompiled", ["never", "always", "next"])
@pytest.mark.parametrize("refused", [False, True], ids=["", "refused"])
def test_limits_hold_where_drivers_are_switched_off_in_mid_upgrade(precompiled: str, refused: bool) -> None:
    stuck: list[str] = []

    def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
        if refused and request.method == "PATCH" and any(request.path.endswith(f"/nodes/{name}") for name in stuck):
            return refusal(Forbidden("admission webhook denied the request"))
        return proceed()

    @on_stage(gpu_nodes=4, interfere=refuse)
    async def play(stage: Stage) -> None:
        await (be_precompiled(stage) if precompiled == "always" else stage.installed())
        await with_workloads(stage)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 1)
        await stage.rest(30)
        stage.watch_limits()
        if precompiled == "next":
            await stage.patch_policy("driver/usePrecompiled", True)
        await stage.patch_policy("driver/version", {"never": NEW, "always": "580.1", "next": "580"}[precompiled])
        await stage.until(lambda: "pod-restart-required" in stage.states().values())
        first = next(node for node, state in stage.states().items() if state == "pod-restart-required")
        await stage.until(lambda: not stage.driver(first))
        await stage.rest(3)
        stuck.append(first)
        await stage.patch_policy("driver/enabled", False)
        await stage.rest(600)
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)

    play()


@on_stage(gpu_nodes=2)
async def test_a_host_that_has_lost_its_own_driver_is_told_what_to_do(stage: Stage) -> None:
    """Its label says for ever that it has one, so no driver pod comes whose log could say more."""
    await stage.installed()
    machine = stage.sandbox.machine("gpu-1")
    machine.host_driver = OLD
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
    await stage.rest(300)
    found = await explanation_of(stage, "gpu-1")
    assert found.unmanaged == "its host has a driver of its own, as its label nvidia.com/gpu.deploy.driver=pre-installed says"
    assert found.remedies == ()
    machine.host_driver = machine.driver = ""
    machine.files.clear()
    await delete_pods(stage, names.TOOLKIT_APP, "gpu-1")
    await stage.rest(400)
    first, second = (await explanation_of(stage, "gpu-1")).remedies
    assert first.do == ("install a driver on the host, or see why the one there does not work: the label "
                        "nvidia.com/gpu.deploy.driver=pre-installed says that there is one, so gpuward installs none")
    assert second.do == "or have gpuward install drivers: take that label away"
    assert second.commands == ("kubectl label node gpu-1 nvidia.com/gpu.deploy.driver-",)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, None)
    await stage.until(lambda: stage.driver("gpu-1") == OLD and stage.state("gpu-1") == "upgrade-done")


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 1})
async def test_nodes_that_run_on_with_an_nvidiadrivers_driver_are_not_said_to_have_none_any_more(stage: Stage) -> None:
    """A move to NVIDIADrivers is called off in its middle, and the ClusterPolicy's drivers are switched off with it."""
    await stage.installed()
    await with_workloads(stage)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: len(moved := moved_of(stage)) == 2 and all(stage.state(node) == State.DONE for node in moved), 1800)
    moved = moved_of(stage)
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {
        "spec": {"driver": {"enabled": False, "useNvidiaDriverCRD": False}}})
    await stage.until(lambda: not any(map(stage.state, moved)))
    assert f"{POLICY}: drivers are being removed: 0 of " in await headline_of(stage)
    await stage.until(lambda: OFF in condition_of(stage)[2])
    assert moved <= moved_of(stage)


def moved_of(stage: Stage) -> set[str]:
    return {node for node in stage.states() if stage.driver(node) == NEW}


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_under_way_by_its_label_alone_is_none_whose_driver_goes(stage: Stage) -> None:
    await with_one_owner(stage)
    await stage.label("gpu-1", names.UPGRADE_STATE, "post-maintenance-required")
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {
        "spec": {"driver": {"enabled": False, "useNvidiaDriverCRD": False}}})
    await stage.rest(120)
    assert (await headline_of(stage)).startswith(f"ClusterPolicy {POLICY}: 0 of 0 nodes up to date")
