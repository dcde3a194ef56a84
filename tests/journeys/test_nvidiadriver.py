"""Drivers that NVIDIADrivers describe: pools with drivers and limits of their own, trouble that stays where it is, and the move
from a ClusterPolicy's drivers to theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import IN_PROGRESS
from tests.journeys.stage import NEW, OLD, Object, Stage, on_stage
from tests.operands.build import EXAMPLES

IS_DRIVER = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


def nvidia_driver(name: str, upgrade: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    """Return the example NVIDIADriver under another name, for the nodes labelled `pool: <name>` unless it is the default."""
    body: Object = yaml.safe_load((EXAMPLES / "nvidiadriver.yaml").read_text())
    chosen = {} if spec.get("default") else {"default": False, "nodeSelector": {"pool": name}}
    body["metadata"]["name"] = name
    body["spec"] |= {"version": OLD, **chosen, **spec}
    body["spec"]["upgradePolicy"] |= upgrade or {}
    return body


async def make(stage: Stage, *drivers: Object) -> None:
    for driver in drivers:
        await stage.user.create(resources.NVIDIA_DRIVERS, driver)


async def set_driver(stage: Stage, name: str, spec: Mapping[str, Any]) -> None:
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, name, {"spec": spec})


async def label_pools(stage: Stage, **pools: str) -> None:
    """Label nodes with their pools: `a="gpu-1 gpu-2"`."""
    for pool, nodes in pools.items():
        for node in nodes.split():
            await stage.label(node, "pool", pool)


async def with_pools(stage: Stage, *drivers: Object) -> None:
    """Leave the drivers of gpu-1 to gpu-3 to NVIDIADriver a and of the others to b, and wait until they run."""
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3", b="gpu-4 gpu-5 gpu-6")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, *drivers)
    await stage.installed()


def condition(stage: Stage, name: str) -> tuple[str, str, str]:
    """Return state, reason and message of an NVIDIADriver's true condition."""
    status = (stage.sandbox.store.get("nvidiadrivers.nvidia.com", None, name).get("status")) or {}
    true = next((one for one in status.get("conditions", ()) if one["status"] == "True"), {})
    return status.get("state", ""), true.get("reason", ""), true.get("message", "")


def driver_pods(stage: Stage, node: str = "") -> list[Object]:
    return [pod for pod in stage.pods(node=node) if IS_DRIVER.items() <= (pod["metadata"].get("labels") or {}).items()]


def owners(stage: Stage) -> dict[str, str]:
    return {name: stage.labels(name).get(names.DRIVER_OWNER, "") for name in stage.states()}


def most_at_once(stage: Stage, *nodes: str) -> int:
    """Return the most of some nodes that were under way at once since the limits are watched."""
    most, under_way = 0, set()
    for moment in stage.history:
        if moment.node in nodes:
            (under_way.add if moment.state in IN_PROGRESS else under_way.discard)(moment.node)
            most = max(most, len(under_way))
    return most


@on_stage(gpu_nodes=6)
async def test_two_pools_are_upgraded_each_within_its_own_limits(stage: Stage) -> None:
    two = {**ALL_AT_ONCE, "maxParallelUpgrades": 2}
    await with_pools(stage, nvidia_driver("a", {"maxUnavailable": 3}), nvidia_driver("b", two))
    assert owners(stage) == dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), "a") | dict.fromkeys(("gpu-4", "gpu-5", "gpu-6"), "b")
    assert condition(stage, "a") == ("ready", "Reconciled", "All resources have been successfully reconciled")
    stage.history.clear()
    for name in "ab":
        await set_driver(stage, name, {"version": NEW})
    await stage.upgraded()
    assert most_at_once(stage, "gpu-1", "gpu-2", "gpu-3") == 1
    assert most_at_once(stage, "gpu-4", "gpu-5", "gpu-6") == 2
    assert stage.cordons() == []
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    assert condition(stage, "b")[0] == "ready"


@on_stage(gpu_nodes=6)
async def test_one_pool_is_upgraded_and_the_other_left_alone(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
    before = {pod["metadata"]["uid"] for node in ("gpu-4", "gpu-5", "gpu-6") for pod in driver_pods(stage, node)}
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.policy_status()["state"] == "notReady")
    assert "NVIDIADriver upgrade has not completed" in stage.condition()["message"]
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (1, 2, 3)] == [NEW] * 3)
    assert {pod["metadata"]["uid"] for node in ("gpu-4", "gpu-5", "gpu-6") for pod in driver_pods(stage, node)} == before
    assert stage.driver("gpu-4") == OLD
