"""NVIDIADrivers that nodes are moved to, seen from there: what their own upgrade policies say holds for nodes that come, too."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import arguments, sentence
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.states import State
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import with_one_owner
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, most_at_once, nvidia_driver, owners, set_driver

ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}
NO_FAILURES = {"failureBudget": {"nodes": 0, "percent": 0}, "retries": 0, "deadlines": {"pod-restart-required": "5m"}}
TEN_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": 10}


class Reasons:
    """Collect the sentences that people read of waiting nodes."""

    def __init__(self, stage: Stage) -> None:
        self.said: set[str] = set()
        stage.operator.upgrades.listeners.append(self._planned)

    def _planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        plan = seen.decision or Plan()
        self.said |= {sentence(hold) for hold in plan.holds.values()}


@on_stage(gpu_nodes=3)
async def test_a_driver_that_crashes_where_upgrades_are_off_is_said_to_crash(stage: Stage) -> None:
    await with_one_owner(stage)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await label_pools(stage, b="gpu-1")
    await make(stage, nvidia_driver("b", {"autoUpgrade": False}, version=NEW))
    await stage.until(lambda: stage.labels("gpu-1").get(names.DRIVER_OWNER) == "b" and driver_pods(stage, "gpu-1"))
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing")
    pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
    hold = stage.operator.plan.holds["gpu-1"]
    assert arguments(hold.what)["pod"] == pod
    assert "restart" in str(arguments(hold.what)["trouble"])
    await stage.rest(3600)
    assert (stage.hold("gpu-1"), stage.state("gpu-1")) == ("DriverFailing", State.POD_RESTART_REQUIRED)
    assert stage.driver("gpu-1") == ""


async def moved_at_once(stage: Stage, upgrade: dict[str, object]) -> tuple[int, set[str]]:
    """Give three nodes to another NVIDIADriver, which sets limits; return how many were under way at once, and what was said."""
    watcher = await with_one_owner(stage, TEN_AT_ONCE)
    reasons = Reasons(stage)
    stage.history.clear()
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    await make(stage, nvidia_driver("b", {**ALL_AT_ONCE, **upgrade}, version=NEW))
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")] == [NEW] * 3
                      and stage.all_are(State.DONE), within=3600)
    assert watcher.torn == []
    return most_at_once(stage, "gpu-1", "gpu-2", "gpu-3"), reasons.said


@on_stage(gpu_nodes=4)
async def test_nodes_that_come_keep_to_the_parallel_limit_of_where_they_go(stage: Stage) -> None:
    most, said = await moved_at_once(stage, {"maxParallelUpgrades": 2})
    assert most == 2
    assert any(text.startswith("waits for its turn: 2 of 2 parallel upgrades of NVIDIADriver b under way (gpu-") for text in said)


@on_stage(gpu_nodes=4)
async def test_nodes_that_come_keep_to_the_unavailable_limit_of_where_they_go(stage: Stage) -> None:
    most, said = await moved_at_once(stage, {"maxUnavailable": 1})
    assert most == 1
    assert any(text.startswith("maxUnavailable of NVIDIADriver b allows 1, and 1 is out of service already") for text in said)


@on_stage(gpu_nodes=4)
async def test_where_nodes_go_without_limits_those_of_where_they_come_from_hold_alone(stage: Stage) -> None:
    assert (await moved_at_once(stage, {}))[0] == 3


@on_stage(gpu_nodes=6)
async def test_nodes_that_come_and_nodes_that_are_there_share_one_limit(stage: Stage) -> None:
    await label_pools(stage, b="gpu-4 gpu-5 gpu-6")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    two = {**ALL_AT_ONCE, "maxParallelUpgrades": 2}
    await make(stage, nvidia_driver("a", TEN_AT_ONCE, default=True), nvidia_driver("b", two))
    await stage.installed()
    stage.history.clear()
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    await set_driver(stage, "b", {"version": NEW})
    await stage.upgraded()
    assert set(owners(stage).values()) == {"b"}
    assert most_at_once(stage, *stage.states()) == 2


@pytest.mark.parametrize(("settings", "reason"), [({}, "NewDriverFails"), (NO_FAILURES, "FailureBudget")])
def test_no_node_comes_to_where_the_rollout_of_a_bad_driver_is_held(settings: dict[str, Any], reason: str) -> None:
    @on_stage(gpu_nodes=5)
    async def scenario(stage: Stage) -> None:
        if settings:
            await stage.user.create(resources.ROLLOUT_POLICIES, {
                "apiVersion": f"{names.GPUWARD_GROUP}/{names.ROLLOUT_POLICY_VERSION}", "kind": "RolloutPolicy",
                "metadata": {"name": "default"}, "spec": settings})
        await label_pools(stage, a="gpu-1", b="gpu-4 gpu-5")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True), nvidia_driver("a", ALL_AT_ONCE),
                   nvidia_driver("b", {"maxParallelUpgrades": 1, "maxUnavailable": "75%"}))
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
        await set_driver(stage, "b", {"version": NEW})
        await stage.until(lambda: "upgrade-failed" in stage.states().values(), within=7200)
        await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
        await stage.rest(3600)
        (lost,) = (node for node in stage.states() if stage.driver(node) != OLD)
        assert lost in ("gpu-4", "gpu-5")
        assert {stage.hold(node) for node in stage.states() if node != lost} == {reason}

    scenario()
