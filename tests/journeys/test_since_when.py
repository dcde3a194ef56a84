"""Since when a node stands as `gpuward status` and `gpuward explain` show it: never the age of something else."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from tests.journeys.looking import row_of, status_of, told_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_node_workload import PASSTHROUGH, runs


@on_stage(gpu_nodes=2)
async def test_a_driver_that_comes_anew_is_not_said_to_be_away_since_the_upgrade(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(1000)
    assert (await row_of(stage, "gpu-1")).since.startswith("17m")
    await stage.user.delete(resources.DAEMON_SETS, "nvidia-driver-daemonset", names.DEFAULT_NAMESPACE)
    await stage.rest(2)
    row = await row_of(stage, "gpu-1")
    assert (row.state, row.since) == ("not ready", "-"), "a pod that ends does not tell since when"
    assert (await told_of(stage, "gpu-1", "STATE")).startswith("not ready; its state label is upgrade-done for 17m")
    await stage.rest(25)
    row = await row_of(stage, "gpu-1")
    assert (row.state, row.since) == ("not ready", "24s")
    assert (await told_of(stage, "gpu-1", "STATE")).startswith("not ready for 24s, since ")
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    assert (await row_of(stage, "gpu-1")).state == "upgrade-done"


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_held_is_not_said_to_be_so_since_the_upgrade(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("train", "gpu-1")
    await stage.until(lambda: runs(stage, "train"))
    await stage.rest(1000)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH})
    await stage.until(lambda: stage.hold("gpu-1") == "WorkloadKept")
    row = await row_of(stage, "gpu-1")
    assert (row.state, row.since) == ("held", "-")
    assert await told_of(stage, "gpu-1", "STATE") == "held; it has no label while upgrades are off"
    (node,) = [node for node in (await status_of(stage))["nodes"] if node["name"] == "gpu-1"]
    assert node["since"] is None


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_not_ready_is_so_since_its_condition_says_so(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(1000)
    stage.sandbox.disconnect("gpu-2")
    await stage.user.delete(resources.DAEMON_SETS, "nvidia-driver-daemonset", names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.hold("gpu-2") == "NodeNotReady", within=600)
    await stage.rest(100)
    row = await row_of(stage, "gpu-2")
    assert (row.state, row.code, row.since) == ("held", "NodeNotReady", "100s")
