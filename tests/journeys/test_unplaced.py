"""Driver pods that find no place: a template that asks for more than the machines have, and is corrected after that.

Their DaemonSets replace no pod by themselves (OnDelete), one without a node neither.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from tests.journeys.looking import explanation_of, headline_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, make, nvidia_driver
from tests.journeys.test_nvidiadriver import set_driver as set_nvidia_driver
from tests.journeys.test_withheld import set_driver, with_notebooks

TOO_MUCH = {"requests": {"cpu": "1000"}}
ONE = {"maxUnavailable": 1, "maxParallelUpgrades": 1}
OWNERS = ("clusterpolicy", "nvidiadriver", "precompiled")


async def installed_by(stage: Stage, owner: str, **spec: Any) -> None:
    """Begin to install drivers of a ClusterPolicy, of an NVIDIADriver, or precompiled ones."""
    if owner == "nvidiadriver":
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", ONE, default=True, **spec))
    else:
        await set_driver(stage, {**spec, **({"usePrecompiled": True, "version": "580"} if owner == "precompiled" else {})})


def is_served(stage: Stage) -> bool:
    """Tell whether all nodes are done, with driver pods that all run."""
    done = stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE)
    return done and len(driver_pods(stage)) == len(stage.states()) and not unplaced(stage) and not stage.cordons()


async def ask_for(stage: Stage, owner: str, **spec: Any) -> None:
    await (set_nvidia_driver(stage, "default", spec) if owner == "nvidiadriver" else set_driver(stage, spec))


def unplaced(stage: Stage) -> list[str]:
    return [pod["metadata"]["name"] for pod in driver_pods(stage) if not pod["spec"].get("nodeName")]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_driver_pod_that_finds_no_place_takes_the_corrected_template(owner: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        await ask_for(stage, owner, resources=TOO_MUCH)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverUnplaced")
        (lost,) = unplaced(stage)
        told = await explanation_of(stage, "gpu-1")
        assert any(note.startswith(f"the scheduler finds no node for driver pod {lost}: ") and "Insufficient cpu" in note
                   for note in told.notes)
        assert told.status is not None
        assert told.status.hold is not None
        assert sentence(told.status.hold) == f"waits until driver pod {lost} finds a place on this node (Unschedulable)"
        await stage.rest(120)
        (first, *_) = (await explanation_of(stage, "gpu-1")).remedies
        assert first.do == f"let the scheduler place driver pod {lost}: its events say what it lacks"
        assert first.commands == (f"kubectl describe pod {lost} -n gpu-operator",)
        await ask_for(stage, owner, resources=None)
        await stage.until(lambda: is_served(stage), 900)

    play()


@pytest.mark.parametrize("owner", OWNERS)
def test_an_install_that_found_no_place_goes_on_once_the_driver_is_corrected(owner: str) -> None:
    @on_stage(gpu_nodes=3)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner, resources=TOO_MUCH)
        await stage.until(lambda: len(unplaced(stage)) == 3)
        await stage.rest(300)
        assert {stage.hold(node) for node in stage.states()} == {"DriverUnplaced"}
        await ask_for(stage, owner, resources=None)
        await stage.until(lambda: is_served(stage))

    play()


@on_stage(gpu_nodes=3)
async def test_it_is_replaced_while_upgrades_are_off_too(stage: Stage) -> None:
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await set_driver(stage, {"resources": TOO_MUCH})
    await stage.until(lambda: len(unplaced(stage)) == 3)
    await set_driver(stage, {"resources": None})
    await stage.until(lambda: stage.drivers() == [OLD])
    assert unplaced(stage) == []


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_node_that_failed_for_it_runs_the_next_driver(stage: Stage) -> None:
    await stage.installed()
    await set_driver(stage, {"resources": TOO_MUCH})
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, 3600)
    await stage.rest(7200)
    assert (stage.state("gpu-1"), stage.hold("gpu-1")) == (State.FAILED, "DriverUnplaced")
    assert {stage.hold("gpu-2"), stage.hold("gpu-3")} == {"NewDriverFails"}
    assert "1 failed" in await headline_of(stage)
    await set_driver(stage, {"resources": None, "version": NEW})
    await stage.upgraded()
    assert stage.cordons() == []


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_switch_leaves_none_behind(stage: Stage) -> None:
    await stage.installed()
    await set_driver(stage, {"resources": TOO_MUCH})
    await stage.until(lambda: stage.hold("gpu-1") == "DriverUnplaced")
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True, version=NEW))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.upgraded()
    assert stage.cordons() == unplaced(stage) == []


@pytest.mark.parametrize(("before", "after"), [(TOO_MUCH, None), (TOO_MUCH, {"requests": {"cpu": "2000"}})])
def test_pods_run_on_the_driver_that_is_loaded_meanwhile(before: Any, after: Any) -> None:
    """Somebody deletes a driver pod, and the next one finds no place: no pod has to go for that."""
    @on_stage(gpu_nodes=2)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        there = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
        await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
        await set_driver(stage, {"resources": before})
        await stage.rest(10)
        await stage.user.delete(resources.PODS, stage.driver_pod("gpu-1")["metadata"]["name"], "gpu-operator")
        await stage.until(lambda: unplaced(stage))
        await set_driver(stage, {"resources": after})
        await stage.rest(60)
        assert len(unplaced(stage)) == 1, "it stays on a node that is skipped"
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == there
        await stage.label("gpu-1", names.UPGRADE_SKIP, None)
        await set_driver(stage, {"resources": None})
        await stage.until(lambda: stage.driver("gpu-1") == OLD and not unplaced(stage), 1800)

    play()


@on_stage(gpu_nodes=3)
async def test_a_driver_pod_that_waits_a_moment_for_the_one_before_it_is_no_warning(stage: Stage) -> None:
    await stage.installed()
    before = {node: len(stage.events(node)) for node in stage.states()}
    await stage.user.delete(resources.DAEMON_SETS, "nvidia-driver-daemonset", names.DEFAULT_NAMESPACE)
    await stage.until(lambda: is_served(stage), within=900)
    await stage.rest(120)
    assert is_served(stage)
    said = [message for node, known in before.items() for message in stage.events(node)[known:]]
    assert [message for message in said if "DriverUnplaced" in message] == []


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_driver_that_gets_no_pod_on_a_tainted_node_is_not_called_bad(stage: Stage) -> None:
    await stage.installed()
    taint = {"key": "maintenance", "value": "yes", "effect": "NoSchedule"}
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": [taint]}})
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, 3600)
    await stage.until(lambda: stage.hold("gpu-1") == "RetryLater", 3600)
    for _ in range(2):
        assert "stopped: no driver pod is made on gpu-1" in await headline_of(stage)
        found = await explanation_of(stage, "gpu-2")
        assert [remedy.do for remedy in found.remedies if "take the new driver back" in remedy.do] == []
        assert found.remedies[0].do == "look at node gpu-1, on which no driver pod is made"
        assert found.remedies[0].commands == ("gpuward explain gpu-1",)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverPodMissing", 3600)
        await stage.rest(60)
    assert rollout(stage)[1] == "NewDriverFails"
    assert "and is tried again once a driver pod is made there" in rollout(stage)[2]
    assert "by itself" not in rollout(stage)[2]
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": None}})
    await stage.upgraded()
