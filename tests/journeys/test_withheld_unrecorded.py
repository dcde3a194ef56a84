"""Nodes about whose driver no upgrade of ours has written: it is known all the same, and no other comes under their pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver
from tests.journeys.test_withheld import set_driver, torn, with_notebooks

VERSIONS = {"plain": NEW, "precompiled": "580", "nvidiadriver": NEW}
"""What drivers come back as, by how they do."""
LAST_STEPS_HANG = Fault(FaultKind.VALIDATOR_NEVER_READY, pod="nvidia-operator-validator*")


async def switched_off(stage: Stage) -> None:
    """Switch the drivers off under pods that keep them loaded, and let none stay but such as have no GPU open."""
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
    await stage.switch_off_at_once()
    await stage.until(lambda: not driver_pods(stage))
    await stage.rest(30)
    for node in stage.states():
        stage.sandbox.store.modify("deployments.apps", WORKLOAD_NAMESPACE, f"train-{node}", _nobody)
    await stage.rest(120)
    assert stage.drivers() == [OLD]


def _nobody(deployment: dict[str, Any]) -> None:
    deployment["spec"]["replicas"] = 0


async def switched_on(stage: Stage, how: str, version: str = "", unavailable: int = 1) -> None:
    version = version or VERSIONS[how]
    if how == "nvidiadriver":
        await set_driver(stage, {"enabled": True, "useNvidiaDriverCRD": True})
        await make(stage, nvidia_driver("default", {"maxUnavailable": unavailable}, version=version, default=True))
    elif how == "precompiled":
        await set_driver(stage, {"enabled": True, "usePrecompiled": True, "version": version})
    else:
        await set_driver(stage, {"enabled": True, "version": version})


async def as_nvidias_operator_left_it(stage: Stage) -> None:
    """Leave all nodes as NVIDIA's operator would when it has finished."""
    await stage.kill_operator()
    for node in stage.states():
        await stage.user.patch_merge(resources.NODES, node, {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})


async def without_digests(stage: Stage) -> None:
    """Make the drivers those of an operator of NVIDIA's so old that its driver pods have no digest."""
    await stage.kill_operator()
    ds = stage.get("daemonsets.apps", "nvidia-driver-daemonset")
    meta = ds["metadata"]
    await stage.user.delete(resources.DAEMON_SETS, meta["name"], meta["namespace"])
    await stage.sandbox.until(lambda: not driver_pods(stage), 600)
    for container in ds["spec"]["template"]["spec"]["containers"]:
        container["env"] = [one for one in container.get("env", ()) if one["name"] != names.DRIVER_CONFIG_DIGEST]
    stage.sandbox.apply({**ds, "metadata": {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}})
    await stage.sandbox.until(lambda: sum(map(is_ready, driver_pods(stage))) == len(stage.states()), 600)


@pytest.mark.parametrize("how", sorted(VERSIONS))
def test_a_driver_that_no_validator_has_seen_stays_under_its_pods(how: str) -> None:
    """The last steps of validation hang, as where all GPUs are taken; the toolkit's is over, so that the device plugin runs."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        machines = [stage.sandbox.machine(node["metadata"]["name"]) for node in stage.gpu_node_objects()]
        await stage.until(lambda: all("toolkit-ready" in machine.files for machine in machines))
        stage.sandbox.faults.add(LAST_STEPS_HANG)
        await stage.rest(300)
        await with_notebooks(stage)
        await switched_off(stage)
        await switched_on(stage, how)
        await stage.rest(900)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("how", sorted(VERSIONS))
@pytest.mark.parametrize("told", [True, False], ids=["digests", "no digests"])
def test_nodes_that_nvidias_operator_finished_keep_the_driver_under_their_pods(how: str, told: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade={"maxUnavailable": 0})
    async def story(stage: Stage) -> None:
        await stage.installed()
        if not told:
            await without_digests(stage)
        await as_nvidias_operator_left_it(stage)
        await stage.restart_operator()
        await with_notebooks(stage)
        await stage.rest(600)
        await switched_off(stage)
        await switched_on(stage, how, unavailable=0)
        await stage.rest(300)
        assert (torn(stage), stage.drivers(), stage.cordons()) == ([], [OLD], [])
        policy = {"spec": {"upgradePolicy": {"maxUnavailable": 1}}}
        if how == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", policy)
        else:
            await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": policy["spec"]}})
        await stage.until(lambda: torn(stage) or (stage.finished(VERSIONS[how]) and not stage.cordons()), within=3600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("auto", [True, False])
def test_the_driver_that_nvidias_operator_left_comes_back_at_once_under_its_pods(auto: bool) -> None:
    """What is loaded is known, so that nobody has to go for the same driver; in a pause, too."""
    @on_stage(gpu_nodes=2, upgrade={"autoUpgrade": auto})
    async def story(stage: Stage) -> None:
        await stage.until(lambda: driver_pods(stage) and all(stage.driver(node) == OLD for node in stage.states()))
        await with_notebooks(stage)
        before = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        await as_nvidias_operator_left_it(stage)
        await stage.restart_operator()
        await stage.rest(300)
        await switched_off(stage)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
        await switched_on(stage, "plain", OLD)
        await stage.until(lambda: stage.finished(OLD))
        assert torn(stage) == []
        assert before <= {pod["metadata"]["uid"] for pod in stage.workload_pods()}

    story()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_fleet_that_nvidias_operator_finished_is_disturbed_by_nothing_and_written_once(hangs: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        await as_nvidias_operator_left_it(stage)
        if hangs:
            stage.sandbox.faults.add(LAST_STEPS_HANG)
            for pod in stage.pods(names.VALIDATOR_APP):
                await stage.user.delete(resources.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        uids = {pod["metadata"]["uid"] for pod in (*driver_pods(stage), *stage.workload_pods())}
        before = stage.client.stats.requests.copy()
        await stage.restart_operator()
        await stage.rest(900)
        spent = stage.client.stats.requests - before
        assert uids == {pod["metadata"]["uid"] for pod in (*driver_pods(stage), *stage.workload_pods())}
        assert sum(count for key, count in spent.items() if key.resource == "nodes" and key.verb == "patch") <= 3
        assert all(names.UPGRADE_RECORD in stage.node(node)["metadata"]["annotations"] for node in stage.states())
        assert (stage.cordons(), stage.all_are(State.DONE)) == ([], True)

    story()


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_the_driver_stays_under_its_pods_though_somebody_deleted_our_record(auto: bool, restart: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await set_driver(stage, {"enabled": False})
        await stage.until(lambda: not driver_pods(stage))
        await with_notebooks(stage)
        for node in stage.states():
            await stage.user.patch_merge(resources.NODES, node, {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
        await stage.rest(5)
        if restart:
            await stage.restart_operator()
        await set_driver(stage, {"enabled": True, "version": NEW, "upgradePolicy": {"autoUpgrade": auto}})
        await stage.until(lambda: torn(stage) or (stage.drivers() == [NEW] and not stage.cordons()), within=3600)
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=2)
async def test_a_driver_of_the_host_s_own_is_found_though_pods_run_on_it(stage: Stage) -> None:
    """Nothing of ours was ever on this node."""
    await set_driver(stage, {"enabled": False})
    stage.sandbox.machine("gpu-1").host_driver = OLD
    await stage.rest(60)
    stage.run_pod("train", "gpu-1")
    await stage.until(lambda: [is_ready(pod) for pod in stage.workload_pods("train")] == [True])
    await set_driver(stage, {"enabled": True, "version": NEW})
    await stage.until(lambda: stage.labels("gpu-1")[names.DEPLOY_DRIVER] == "pre-installed" and stage.driver("gpu-2") == NEW)
    assert ([is_ready(pod) for pod in stage.workload_pods("train")], stage.cordons()) == ([True], [])
